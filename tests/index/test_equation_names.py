"""Names of equations in the text index: stored with their paper, removed with it."""

import json

import pytest

from eqkin import Library
from eqkin.index.text import TextIndex
from eqkin.index.update import update_index


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
    assert index.get_names([tree, 77]) == {tree: "Nernst equation"}
    assert index.match_name("NERNST EQUATION") == "Nernst equation"
    assert index.complete_name("ner", 5) == index.complete_name("equ", 5) == [("Nernst equation", 1)]
    assert index.complete_name("", 5) == [] and index.match_name("Ohm's law") == ""


def test_names_change_with_their_paper(library, tmp_path, encoder):
    library.add(write_paper(tmp_path, "Goldman equation"))
    update_index(library, encoder)
    index = TextIndex.open(library)
    assert not index.find_named("Nernst equation") and len(index.find_named("Goldman equation")) == 1
