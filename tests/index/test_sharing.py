"""What many readers of one index share: mapped lists, and the cache of hashes."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import CorruptData
from eqkin.index import IndexSettings, TextIndex, VectorIndex, update_index
from eqkin.index.faiss_index import load_index
from eqkin.index.manifest import FaissEntry, IndexManifest
from eqkin.library.queries import list_tree_ids
from eqkin.storage import WriterLock
from eqkin.storage.segments import cache_hashes, has_hash, is_intact
from tests.index.conftest import write_note

SETTINGS = IndexSettings(max_flat_vectors=1_000, max_compared_trees=10)


def _state(library: Library) -> IndexManifest:
    state = IndexManifest.load(library.folder / "index")
    assert state is not None
    return state


def _lists(library: Library) -> tuple[Path, FaissEntry]:
    entry = _state(library).nearest
    assert entry is not None
    return library.folder / "index" / entry.file, entry


def _refuse(*_: object) -> str:
    raise AssertionError("a file was read to its end again")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
def test_readers_map_the_lists_and_never_change_them(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    path, entry = _lists(atlas)
    atlas.remove("atlas:probability")
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    gone = entry.count - len(index)
    assert gone > 0
    index.search(index.get_vectors(index.trees[:50]), 20)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    assert mapped and all(line.split()[1].startswith("r--") for line in mapped)
    assert is_intact(path.parent, entry, force=True)


def test_search_combines_lists_with_later_vectors(atlas: Library, encoder: Encoder, tmp_path: Path) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    path, _ = _lists(atlas)
    atlas.add(write_note(tmp_path / "notes", 1, 40))
    atlas.add(write_note(tmp_path / "notes", 2, 1))
    update_index(atlas, encoder, settings=SETTINGS)
    atlas.remove(str(tmp_path / "notes" / "n2.md"))
    assert _lists(atlas)[0] == path
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    vectors = index.get_vectors(index.trees)
    best = -np.sort(-(vectors @ vectors.T), axis=1)[:, :10]
    similarities, trees = index.search(vectors, 10)
    assert (trees >= 0).all() and set(trees.ravel().tolist()) <= set(index.trees.tolist())
    assert (np.diff(similarities, axis=1) <= 0).all()
    assert float((similarities >= best[:, -1:] - 1e-3).mean()) >= 0.98
    chosen = index.trees[-60:]  # of the lists, and of those that came later
    found = index.search(vectors, 60, chosen)[1]
    assert all(set(row.tolist()) == set(chosen.tolist()) for row in found)


def test_intact_files_are_not_hashed_again_until_they_change(
    atlas: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_index(atlas, encoder, rebuild=True, settings=SETTINGS)
    path, _ = _lists(atlas)
    with monkeypatch.context() as patch:
        patch.setattr("eqkin.storage.segments.hash_file", _refuse)
        VectorIndex.open(atlas, encoder.digest, SETTINGS)
        TextIndex.open(atlas)
        update_index(atlas, encoder, settings=SETTINGS)
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(content[:-20_000] + b"\0" + content[-19_999:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CorruptData, match="does not match its hash"):
        load_index(path.parent, _lists(atlas)[1], encoder.dimensions)
    path.write_bytes(content)
    load_index(path.parent, _lists(atlas)[1], encoder.dimensions)


def test_verify_finds_damage_that_left_file_times_unchanged(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    for path in sorted((atlas.folder / "index").glob("*-*")):
        content = bytearray(path.read_bytes())
        content[-5_000] ^= 1
        path.write_bytes(content)
        digest = _state(atlas).hashes[path.name]
        cache_hashes(path.parent, {path.name: digest})  # as if the disk had changed it
        assert has_hash(path, digest)
        assert any(path.name in problem for problem in verify(atlas.folder).problems)
        assert not has_hash(path, digest)
        update_index(atlas, encoder, settings=SETTINGS)
        assert not verify(atlas.folder).problems


def test_faiss_never_sees_a_damaged_head_and_damaged_lists_are_harmless(
    atlas: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    path, entry = _lists(atlas)
    content = path.read_bytes()
    assert 0 < entry.head < len(content) // 2
    chance = np.random.default_rng(5)
    for at in chance.integers(0, entry.head, 10):
        path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
        cache_hashes(path.parent, {path.name: entry.sha256})
        with monkeypatch.context() as patch, pytest.raises(CorruptData, match="does not match"):
            patch.setattr("faiss.read_index", _refuse)
            load_index(path.parent, entry, encoder.dimensions)
    for _ in range(5):
        path.write_bytes(content[: entry.head] + chance.bytes(len(content) - entry.head))
        cache_hashes(path.parent, {path.name: entry.sha256})
        damaged = load_index(path.parent, entry, encoder.dimensions)
        damaged.restrict_to(np.arange(900))
        trees = damaged.search(encoder.encode(["x^2", "y"]), 50)[1]
        assert ((trees >= -1) & (trees < 900)).all()


def test_readers_search_while_lists_are_built(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    state, folder = _state(atlas), atlas.folder / "index"
    replace(state, nearest=None).save(folder)
    with WriterLock(folder):
        index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
        assert _state(atlas).nearest is None
    assert (len(index), index.missing) == (1_401, 401)
    assert index.search(index.get_vectors(index.trees[:1_000]), 1)[0].min() > 0.999
    assert VectorIndex.open(atlas, encoder.digest, SETTINGS).missing == 0
    assert _state(atlas).nearest == state.nearest


def test_search_finds_a_limited_number_of_later_vectors(atlas: Library, encoder: Encoder, tmp_path: Path) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    atlas.add(write_note(tmp_path / "notes", 1, 12))
    update_index(atlas, encoder, settings=SETTINGS)
    index = VectorIndex.open(atlas, encoder.digest, replace(SETTINGS, max_flat_vectors=10))
    assert (len(index), index.missing) == (1_413, 2)
    assert index.search(index.get_vectors(index.trees[1_401:1_411]), 1)[0].min() > 0.999


@pytest.mark.parametrize("gaps", [[], [0], [5, 6, 7, 300], [*range(0, 900, 7)], [*range(100, 1_400)], [*range(1_401)]])
def test_list_tree_ids_returns_all_trees_whatever_gaps_there_are(atlas: Library, gaps: list[int]) -> None:
    everything = list_tree_ids(atlas).tolist()
    atlas.connection.executemany("DELETE FROM equations WHERE tree = ?", [(everything[gap],) for gap in gaps])
    atlas.connection.execute("UPDATE equations SET tree = 5000000000 WHERE tree = ?", (everything[50],))
    rows = atlas.connection.execute("SELECT tree FROM equations WHERE tree IS NOT NULL ORDER BY tree").fetchall()
    assert list_tree_ids(atlas).tolist() == [row[0] for row in rows]
