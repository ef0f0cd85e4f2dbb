"""Forest files: round trips, and detection of damage."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.errors import CorruptData
from eqkin.formulas import ForestBuilder
from eqkin.formulas.forest import from_bytes, open_forest, to_bytes

from .strategies import FORESTS, breadth_first, build, rows_of

LEAF = ("mi", "mathvariant=bold", "x", [])
SMALL = build([("mrow", "", "", [LEAF, ("mo", "a=1\nb=2", "+", []), LEAF]), LEAF])


@given(FORESTS)
def test_forest_round_trips_through_bytes(trees):
    forest = from_bytes(to_bytes(build(trees)))
    forest.validate()
    assert rows_of(forest) == [breadth_first(tree) for tree in trees]
    assert to_bytes(forest) == to_bytes(build(trees))


def test_open_forest_maps_the_file(tmp_path):
    path = tmp_path / "forest"
    path.write_bytes(to_bytes(SMALL))
    forest = open_forest(path)
    assert rows_of(forest) == rows_of(SMALL)
    assert not forest.tag.flags.writeable
    assert not forest.tag.flags.owndata


@pytest.mark.parametrize("name", ["tag", "attribute", "text", "n_children"])
def test_negative_numbers_in_a_file_are_damage(name):
    column = getattr(SMALL, name).astype(np.int8)
    column[-1] = -1
    with pytest.raises(CorruptData):
        from_bytes(to_bytes(replace(SMALL, **{name: column}))).validate()


def test_empty_forest_round_trips():
    assert len(from_bytes(to_bytes(ForestBuilder().build()))) == 0


def test_forest_file_is_readable_by_safetensors():
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = safetensors.load(to_bytes(SMALL))
    assert np.array_equal(arrays["offsets"], SMALL.offsets)
    assert bytes(arrays["tags"]).decode().split("\0") == SMALL.tags


def read(data):
    forest = from_bytes(data)
    forest.validate()
    return rows_of(forest)


def test_flipped_bits_give_an_error_or_as_many_trees():
    data = to_bytes(SMALL)
    refused = 0
    for at in range(len(data)):
        for bit in (1, 4, 32, 128):
            damaged = bytearray(data)
            damaged[at] ^= bit
            try:
                assert len(read(bytes(damaged))) == len(SMALL)
            except CorruptData:
                refused += 1
    assert 0 < refused < 4 * len(data)


def test_every_truncated_file_is_refused():
    data = to_bytes(SMALL)
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            read(data[:length])


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(CorruptData):
        read(data)


HEADERS = [
    b"[" * 500_000,
    b"{}",
    b'{"__metadata__": {}}',
    b"null",
    b'{"__metadata__": {"format": "eqkin-forest", "version": "1"}, "tag": 3}',
    b'{"__metadata__": {"format": "eqkin-forest", "version": "1"}, "tag":'
    b' {"dtype": "U8", "shape": [1e400], "data_offsets": [0, 1]}}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("header", HEADERS)
def test_malformed_headers_are_refused(header):
    with pytest.raises(CorruptData):
        from_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 64)


def test_unknown_version_is_refused_with_its_name():
    data = to_bytes(SMALL)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["version"] = "7"
    text = json.dumps(header).encode()
    with pytest.raises(CorruptData, match="eqkin-forest 7"):
        from_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_missing_and_empty_files_are_named_in_the_error(tmp_path):
    with pytest.raises(CorruptData, match="missing"):
        open_forest(tmp_path / "none")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(CorruptData, match="empty"):
        open_forest(tmp_path / "empty")
