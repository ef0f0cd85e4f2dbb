"""The stored form of forests: what is read is what was written, and damage is found."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.operators import OperatorForest
from tests.formulas.strategies import FORESTS, build

SMALL = build([("math", "a=1", "x", [("mi", "", "α", []), ("mo", "", "12", [])])] * 3)
OPERATORS = OperatorForest(
    labels=["=", "unused", "v:x", "n:2"],
    label=np.array([0, 2, 3, 2]),
    depth=np.array([0, 1, 1, 0]),
    offsets=np.array([0, 3, 4]),
    unparsed=np.array([0, 1]),
    forms=np.arange(2**32 - 12, 2**32, dtype=np.uint32).reshape(3, 4),
    form_offsets=np.array([0, 2, 3]),
)


@given(FORESTS)
def test_forests_are_read_as_they_were_written(trees):
    forest = build(trees)
    found = Forest.from_bytes(forest.to_bytes())
    for column in fields(Forest):
        read, written = getattr(found, column.name), getattr(forest, column.name)
        assert np.array_equal(read, written) and type(read) is type(written)
        assert not isinstance(read, np.ndarray) or read.dtype == written.dtype
    assert found.to_bytes() == forest.to_bytes()


def test_operator_trees_are_read_as_they_were_written():
    found = OperatorForest.from_bytes(OPERATORS.to_bytes())
    assert found.labels == ["=", "n:2", "v:x"]
    assert [found.to_json(tree) for tree in range(2)] == [["=", "v:x", "n:2"], "v:x"]
    for name in ("depth", "offsets", "unparsed", "forms", "form_offsets"):
        assert np.array_equal(getattr(found, name), getattr(OPERATORS, name))
    nothing = OPERATORS.select([])
    assert len(OperatorForest.from_bytes(nothing.to_bytes())) == 0


@pytest.mark.parametrize("forest", [SMALL, OPERATORS], ids=["forest", "operators"])
def test_damage_is_found(forest):
    packed = forest.to_bytes()
    for at in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[at] ^= 1 << bit
            try:
                found = type(forest).from_bytes(bytes(damaged))
            except CorruptData:
                continue
            # A few bits have no meaning.
            assert found.to_bytes() == packed
    for damaged in (b"", packed[:-1], packed + b"x", packed + packed, b"hello" * 20):
        with pytest.raises(CorruptData):
            type(forest).from_bytes(damaged)


def test_a_forest_is_not_read_as_operators():
    with pytest.raises(CorruptData):
        OperatorForest.from_bytes(SMALL.to_bytes())


@pytest.mark.parametrize("column", ["tag", "attribute", "text", "n_children"])
def test_arrays_that_are_no_trees_are_refused(column):
    values = np.array(getattr(SMALL, column))
    values[0] += 7
    with pytest.raises(CorruptData):
        Forest.from_bytes(replace(SMALL, **{column: values}).to_bytes()).validate()


@pytest.mark.parametrize("column", ["label", "depth", "offsets", "form_offsets"])
def test_arrays_that_are_no_operator_trees_are_refused(column):
    values = np.array(getattr(OPERATORS, column))
    values[1] = 0 if column.endswith("offsets") else 7
    with pytest.raises(CorruptData):
        replace(OPERATORS, **{column: values}).validate()


def test_digests_do_not_depend_on_the_numbers_of_labels():
    swapped = replace(OPERATORS, labels=["n:2", "v:x", "="], label=np.array([2, 1, 0, 1]))
    assert swapped.compute_digest() == OPERATORS.compute_digest()
    assert swapped.to_bytes() == OPERATORS.to_bytes()
    assert replace(swapped, unparsed=np.array([1, 1])).compute_digest() != OPERATORS.compute_digest()


def test_zero_characters_are_refused():
    with pytest.raises(BadInput):
        replace(SMALL, texts=["x", "a\0b", "12"]).to_bytes()
