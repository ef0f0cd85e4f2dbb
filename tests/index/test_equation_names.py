"""Names of equations in the text index: stored with their paper, removed with it, absent from older databases."""

import json
import sqlite3
from dataclasses import replace

import pytest

from eqkin import Library
from eqkin.index.manifest import INDEX_FOLDER, IndexManifest
from eqkin.index.text import TextIndex, is_usable
from eqkin.index.update import update_index
from eqkin.library.records import get_refs
from eqkin.storage.files import hash_file


def write_paper(folder, name):
    text = rf"\section{{Ions}} This gives \[ E = \frac{{RT}}{{zF}} \ln Q \] which is known as the {name}."
    path = folder / "papers.jsonl"
    path.write_text(json.dumps({"doc_id": "ions", "title": "Ions", "latex": text}))
    return path


@pytest.fixture
def library(tmp_path, encoder):
    with Library.open(tmp_path / "library", create=True) as opened:
        opened.add(write_paper(tmp_path, "Nernst equation"))
        update_index(opened, encoder)
        yield opened


def test_names_are_found_by_any_spelling(library):
    index = TextIndex.open(library)
    (tree,) = index.find_named("the nernst equations")
    ref = get_refs(library, [tree])[tree]
    assert index.get_names([(ref.paper, ref.number)]) == {(ref.paper, ref.number): "Nernst equation"}
    assert index.match_name("NERNST EQUATION") == "Nernst equation"
    assert index.complete_name("ner", 5) == index.complete_name("equ", 5) == [("Nernst equation", 1)]
    assert index.complete_name("", 5) == [] and index.match_name("Ohm's law") == ""


def test_names_change_with_their_paper(library, tmp_path, encoder):
    library.add(write_paper(tmp_path, "Goldman equation"))
    update_index(library, encoder)
    index = TextIndex.open(library)
    assert not index.find_named("Nernst equation") and len(index.find_named("Goldman equation")) == 1


def test_older_text_index_has_no_names_until_it_is_updated(library, encoder):
    path = library.folder / INDEX_FOLDER / IndexManifest.load(library.folder / INDEX_FOLDER).words.file
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TABLE names; PRAGMA user_version = 1;")
    connection.close()
    manifest = IndexManifest.load(library.folder / INDEX_FOLDER)
    assert not is_usable(library.folder / INDEX_FOLDER, replace(manifest.words, sha256=hash_file(path)))
    update_index(library, encoder)
    assert len(TextIndex.open(library).find_named("Nernst equation")) == 1
