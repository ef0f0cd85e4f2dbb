"""What many readers of one index share: mapped vectors, and the cache of hashes."""

import os
import sys
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import CorruptData
from eqkin.index.manifest import IndexManifest, IndexSettings
from eqkin.index.reader import VectorIndex
from eqkin.index.update import update_index
from eqkin.storage.segments import SegmentEntry, cache_hashes, has_hash, is_intact

SETTINGS = IndexSettings(max_flat_vectors=1_000, max_compared_trees=10)


def _state(library: Library) -> IndexManifest:
    state = IndexManifest.load(library.folder / "index")
    assert state is not None
    return state


def _vectors(library: Library) -> tuple[Path, SegmentEntry]:
    (entry,) = _state(library).files
    return library.folder / "index" / entry.file, entry


def _refuse(*_: object) -> str:
    raise AssertionError("a file was read to its end again")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
def test_readers_map_the_vectors_and_never_change_them(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    path, entry = _vectors(atlas)
    atlas.remove("atlas:probability")
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    gone = entry.count - len(index)
    assert gone > 0
    index.search(index.get_vectors(index.trees[:50]), 20)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    assert mapped and all(line.split()[1].startswith("r--") for line in mapped)
    assert is_intact(path.parent, entry, force=True)


def test_intact_files_are_not_hashed_again_until_they_change(
    atlas: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_index(atlas, encoder, rebuild=True, settings=SETTINGS)
    path, _ = _vectors(atlas)
    Library.open(atlas.folder).close()  # checks the database, which is old enough by now
    with monkeypatch.context() as patch:
        patch.setattr("eqkin.storage.segments.hash_file", _refuse)
        VectorIndex.open(atlas, encoder.digest, SETTINGS)
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(content[:-2_000] + b"\xff" + content[-1_999:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CorruptData, match="does not match its hash"):
        VectorIndex.open(atlas, encoder.digest, SETTINGS)
    path.write_bytes(content)
    VectorIndex.open(atlas, encoder.digest, SETTINGS)


def test_verify_finds_damage_that_left_file_times_unchanged(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    for path in sorted((atlas.folder / "index").glob("*-*.safetensors")):
        content = bytearray(path.read_bytes())
        content[-1_000] ^= 1
        path.write_bytes(content)
        digest = _state(atlas).hashes[path.name]
        cache_hashes(path.parent, {path.name: digest})  # as if the disk had changed it
        assert has_hash(path, digest)
        assert any(path.name in problem for problem in verify(atlas.folder).problems)
        assert not has_hash(path, digest)
        update_index(atlas, encoder, settings=SETTINGS)
        assert not verify(atlas.folder).problems
