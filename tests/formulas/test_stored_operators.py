"""Operator trees in few bytes: what is read is what was stored, and damage is found."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.formulas.stored_operators import StoredOperators, pack_operators
from eqkin.formulas.terms import extract_terms

LABELS = ["+", "list", *(f"v:{number}" for number in range(10_000))]


def make_forest(trees: int, labels: int, seed: int = 0) -> OperatorForest:
    """Make random trees; `list` occurs with operands and without."""
    chance = np.random.default_rng(seed)
    label, depth, sizes = [], [], []
    for _ in range(trees):
        open_operands, before = [1], len(label)  # of the operators above the next node
        while open_operands:
            open_operands[-1] -= 1
            is_operator = len(label) - before < 50 and chance.random() < 0.4
            depth.append(len(open_operands) - 1)
            label.append(int(chance.integers(0, 2) if is_operator else chance.integers(1, labels)))
            if is_operator:
                open_operands.append(int(chance.integers(1, 4)))
            while open_operands and not open_operands[-1]:
                open_operands.pop()
        sizes.append(len(label) - before)
    offsets = np.cumsum([0, *sizes])
    forms = chance.integers(0, 1 << 32, (2 * trees, len(FORM_KINDS)), dtype=np.uint32)
    columns = np.array(label, np.int64), np.array(depth, np.int64), offsets, chance.integers(0, 2, trees)
    return OperatorForest(LABELS, *columns, forms, 2 * np.arange(trees + 1))


def check_same(found: OperatorForest, expected: OperatorForest) -> None:
    assert [found.to_json(tree) for tree in range(len(found))] == [
        expected.to_json(tree) for tree in range(len(expected))
    ]
    assert np.array_equal(found.depth, expected.depth) and np.array_equal(found.unparsed, expected.unparsed)
    assert np.array_equal(found.forms[:, :3], expected.forms[expected.form_offsets[:-1], :3])


@pytest.mark.parametrize("trees, labels", [(0, 3), (1, 3), (16, 300), (100, 7_000), (100, len(LABELS))])
def test_stored_trees_are_read_as_they_were(trees: int, labels: int) -> None:
    forest = make_forest(trees, labels)
    stored = StoredOperators(pack_operators(forest))
    assert stored.is_valid() and stored.n_unparsed == np.count_nonzero(forest.unparsed)
    check_same(stored.read(), forest)
    some = np.random.default_rng(1).permutation(trees)[: trees // 3]
    check_same(stored.read(some), forest.select(some))
    check_same(StoredOperators(pack_operators(stored.read(some))).read(), forest.select(some))


@pytest.mark.parametrize("name", ["names", "nodes", "label_bytes", "label", "prefixes", "shape"])
def test_damaged_arrays_raise_value_error(name: str) -> None:
    arrays = pack_operators(make_forest(20, 300))
    for value in (0, 1, 250, 255):
        damaged = StoredOperators(arrays | {name: np.full_like(arrays[name], value)})
        if damaged.is_valid():
            with pytest.raises((ValueError, IndexError)):
                damaged.read()
                assert value == 0 and name == "label"  # other labels of the same shape cannot be told apart
                raise ValueError


def test_random_bytes_never_crash_the_reader() -> None:
    arrays, chance = pack_operators(make_forest(20, 300)), np.random.default_rng(2)
    for _ in range(300):
        names = "label shape nodes prefixes".split()[: 4 if chance.random() < 0.3 else 2]
        changed = {name: arrays[name].copy() for name in names}
        for array in changed.values():
            array.reshape(-1)[chance.integers(0, array.size, 3)] = chance.integers(0, 256, 3)
        damaged = StoredOperators(arrays | changed)
        try:
            forest = damaged.read()
        except ValueError:
            continue
        assert damaged.is_valid() and extract_terms(forest).offsets[-1] > 0


def test_shape_that_ends_more_operators_than_are_open_is_damaged() -> None:
    one = make_forest(1, 3)
    label, depth, offsets = np.array([0, 2]), np.array([0, 1]), np.array([0, 2])  # an operator and its operand
    forest = replace(one, label=label, depth=depth, offsets=offsets)
    arrays = pack_operators(forest)
    assert StoredOperators(arrays).read().depth.tolist() == [0, 1]
    marks = [
        "." + name[1:] if name[:1] == "(" else "(" + name[1:] for name in json.loads(zlib.decompress(arrays["names"]))
    ]
    names = np.frombuffer(zlib.compress(json.dumps(marks).encode()), np.uint8)  # the leaf comes first
    with pytest.raises(ValueError, match="shape"):
        StoredOperators(arrays | {"names": names}).read()


def test_what_is_no_tree_has_no_terms() -> None:
    forest = make_forest(3, 30)
    for name, column in (("depth", forest.depth), ("label", forest.label)):
        for value in (-1, 1 << 40):
            wrong = column.copy()
            wrong[2] = value
            with pytest.raises(ValueError, match="trees"):
                extract_terms(replace(forest, **{name: wrong}))
