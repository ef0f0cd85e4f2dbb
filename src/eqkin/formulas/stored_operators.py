"""Operator trees in few bytes, of which some are read at a time.

    names        labels as compressed JSON, frequent ones first; the first character says whether nodes have operands
    nodes        (trees,)        number of nodes of each tree
    label_bytes  (trees,)        number of bytes of their labels
    label        (bytes,)        labels in depth-first order, in a prefix code that depends on the parent
    prefixes     (contexts, symbols)  number of bits of each prefix code
    shape        (bytes,)        for each leaf a bit 1 for each operator whose last operand it ends, then a bit 0
    forms        (trees, kinds)  hashes of the whole formula (`SAME_FORM_KINDS`)
    unparsed     (some, 2)       trees with presentation nodes without a meaning, and how many

Other statements of a formula are not stored: their forms are terms of an index.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.formulas.operators import FORM_KINDS, SAME_FORM_KINDS, Integers, OperatorForest, StoredLabels, accumulate
from eqkin.storage.bits import WINDOW, assign_prefixes, compute_prefix_lengths

OPERATOR_ARRAYS: dict[str, tuple[str, list[int]]] = {
    "names": ("U8", [-1]),
    "nodes": ("U16", [-1]),
    "label_bytes": ("U16", [-1]),
    "label": ("U8", [-1]),
    "prefixes": ("U8", [-1, -1]),
    "shape": ("U8", [-1]),
    "forms": ("U32", [-1, len(SAME_FORM_KINDS)]),
    "unparsed": ("U32", [-1, 2]),
}
_LEAF, _OPERATOR = ".", "("
_MAX_NAME_BYTES = 1 << 28


class StoredOperators:
    """Operator trees in stored arrays.

    Args:
        arrays: What `pack_operators` made.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        self.nodes: npt.NDArray[np.uint16] = arrays["nodes"]
        self.forms: npt.NDArray[np.uint32] = arrays["forms"]  # of whole formulas
        self.n_unparsed: int = len(arrays["unparsed"])  # trees with presentation nodes without a meaning

    def __len__(self) -> int:
        return len(self.nodes)

    def is_valid(self) -> bool:
        """Return whether the arrays fit one another; trees are checked when they are read."""
        arrays = self._arrays
        return (
            len(arrays["label_bytes"]) == len(arrays["forms"]) == len(self)
            and int(self._label_starts[-1]) + WINDOW == len(arrays["label"])
            and int(self._shape_starts[-1]) == len(arrays["shape"])
            and int(arrays["unparsed"][:, 0].max(initial=0)) < max(len(self), 1)
        )

    @cached_property
    def names(self) -> list[str]:
        """The labels; raises `ValueError`. One that has operands in some places only is there twice."""
        return [name[1:] for name in self._marked_names]

    @cached_property
    def _marked_names(self) -> list[str]:
        try:
            text = zlib.decompressobj().decompress(self._arrays["names"].tobytes(), _MAX_NAME_BYTES)
            return list(map(str, json.loads(text)))
        except zlib.error as error:
            raise ValueError("labels cannot be read") from error

    @cached_property
    def _is_leaf(self) -> npt.NDArray[np.bool_]:
        return np.array([name[:1] == _LEAF for name in self._marked_names], bool)

    @cached_property
    def _prefixes(self) -> npt.NDArray[np.uint16]:
        """Symbol and length of each prefix; raises `ValueError`."""
        from eqkin.formulas.kernels import LABEL_CONTEXTS, LABEL_SYMBOLS

        lengths = self._arrays["prefixes"]
        if lengths.shape != (LABEL_CONTEXTS, LABEL_SYMBOLS):
            raise ValueError("prefixes of labels are not complete")
        symbols = assign_prefixes(lengths)
        table: npt.NDArray[np.uint16] = symbols << 4 | np.take_along_axis(lengths, symbols, axis=1)
        return table.ravel()

    @cached_property
    def _label_starts(self) -> Integers:
        return accumulate(self._arrays["label_bytes"])

    @cached_property
    def _shape_starts(self) -> Integers:
        return accumulate(self.nodes.astype(np.int64) + 7 >> 3)

    def read(self, trees: Integers | None = None, labels: StoredLabels | None = None, first: int = 0) -> OperatorForest:
        """Return a forest of some trees.

        It has one statement per tree, of `SAME_FORM_KINDS` only.

        Args:
            trees: Their numbers; by default all.
            labels: Labels of which something is known already, `names` among them.
            first: The number of the first of `names` in `labels`.

        Raises:
            ValueError: A tree is damaged.
        """
        from eqkin.formulas.kernels import decode_trees

        rows = np.arange(len(self)) if trees is None else np.ascontiguousarray(trees, np.int64)
        sizes = self.nodes[rows].astype(np.int64)
        offsets, starts = accumulate(sizes), (self._label_starts, self._shape_starts)
        data = self._arrays["label"], starts[0], self._arrays["shape"], starts[1]
        label, depth = decode_trees(*data, rows, offsets, self._is_leaf, self._prefixes)
        if len(label) != offsets[-1]:
            raise ValueError("nodes do not fit the shape of trees")
        forms = np.zeros((len(rows), len(FORM_KINDS)), np.uint32)
        forms[:, : len(SAME_FORM_KINDS)] = self.forms[rows]
        unparsed = np.zeros(len(rows), np.int64)
        if self.n_unparsed:
            known, counts = self._arrays["unparsed"].T
            place = np.minimum(np.searchsorted(known, rows), len(known) - 1)
            unparsed = np.where(known[place] == rows, counts[place], 0).astype(np.int64)
        names = labels if labels is not None else StoredLabels(self.names)
        return OperatorForest(names, label + first, depth, offsets, unparsed, forms, np.arange(len(rows) + 1))


def pack_operators(forest: OperatorForest) -> dict[str, npt.NDArray[Any]]:
    """Return arrays from which `StoredOperators` reads the forest."""
    is_leaf, sizes = forest.is_leaf, np.diff(forest.offsets)
    used, label, counts = np.unique(2 * forest.label + is_leaf, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    names = [(_LEAF if at & 1 else _OPERATOR) + forest.labels[at >> 1] for at in used[order].tolist()]
    unparsed = np.flatnonzero(forest.unparsed)
    return {
        "names": np.frombuffer(zlib.compress(json.dumps(names).encode(), 9), np.uint8),
        "nodes": sizes.astype(np.uint16),
        **_encode_labels(rank[label], forest),
        "shape": _encode_shape(forest, is_leaf, sizes),
        "forms": forest.formula_forms[:, : len(SAME_FORM_KINDS)],
        "unparsed": np.stack((unparsed, forest.unparsed[unparsed]), axis=1).astype(np.uint32),
    }


def _encode_shape(forest: OperatorForest, is_leaf: npt.NDArray[np.bool_], sizes: Integers) -> npt.NDArray[np.uint8]:
    ended = (forest.depth - np.append(forest.depth[1:], 0))[is_leaf]  # operators that end with a leaf
    bits = np.ones(len(forest.depth), np.uint8)
    bits[np.cumsum(ended + 1) - 1] = 0
    starts = accumulate(sizes + 7 >> 3)
    padded = np.zeros(8 * int(starts[-1]), np.uint8)
    padded[np.repeat(8 * starts[:-1] - forest.offsets[:-1], sizes) + np.arange(len(bits))] = bits
    return np.packbits(padded, bitorder="little")


def _encode_labels(label: Integers, forest: OperatorForest) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays `label`, `label_bytes` and `prefixes`, given the number of each node's label."""
    from eqkin.formulas import kernels

    parent = kernels.find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))
    nodes = np.arange(len(label))
    known = np.minimum(label[parent], kernels.KNOWN_PARENTS)
    context = np.where(parent == nodes, 0, 1 + 2 * known + (parent == nodes - 1))
    bits = np.maximum(np.frexp(label)[1].astype(np.int64) - kernels.LEADING_BITS, 0)  # that do not belong to the symbol
    shift = kernels.LEADING_BITS - 1
    symbol = (label >> bits) - (1 << shift) + (bits - 3 << shift) + kernels.FIRST_LABELS
    bits[label < kernels.FIRST_LABELS] = 0
    symbol = np.where(label < kernels.FIRST_LABELS, label, symbol)
    counts = np.zeros((kernels.LABEL_CONTEXTS, kernels.LABEL_SYMBOLS), np.int64)
    np.add.at(counts, (context, symbol), 1)
    lengths = np.array([compute_prefix_lengths(own) for own in counts], np.uint8)
    table = assign_prefixes(lengths)
    codes = np.zeros(counts.shape, np.int64)
    for start in range(table.shape[1] - 1, -1, -1):  # the code of a symbol is the first place where it is
        codes[np.arange(len(table)), table[:, start]] = start
    length = lengths[context, symbol].astype(np.int64)
    values = codes[context, symbol] | (label & (1 << bits) - 1) << length
    data = np.zeros(5 * len(label) + len(forest) + WINDOW, np.uint8)
    starts = kernels.write_trees(values, length + bits, forest.offsets, data)
    if int(np.diff(starts).max(initial=0)) > np.iinfo(np.uint16).max:
        raise ValueError("an operator tree is too large to be stored")
    return {
        "label": data[: int(starts[-1]) + WINDOW].copy(),
        "label_bytes": np.diff(starts).astype(np.uint16),
        "prefixes": lengths,
    }
