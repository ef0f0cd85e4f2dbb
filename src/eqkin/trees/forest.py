"""A forest: many trees as a handful of flat arrays.

Nodes stand in breadth-first order, tree after tree. Then the children of a node are one contiguous run, and a tree is
given by one number a node, `n_children`; parent, first child, position and depth follow from it without loops. A
node's tag, attributes and text are indices into three lists of distinct strings, so a forest is lossless: MathML can
be written from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData

Array = npt.NDArray[np.integer[Any]]


def _to_smallest_dtype(values: Array, at_least: int) -> Array:
    """The array in the narrowest unsigned type that holds numbers below `at_least`."""
    return np.asarray(values, dtype=np.min_scalar_type(max(at_least - 1, 0)))


@dataclass
class Forest:
    """Trees in flat arrays. `attributes` entries are lines `name=value`, sorted by name."""

    tags: list[str]
    attributes: list[str]
    texts: list[str]
    tag: Array  # (nodes,) index into tags
    attribute: Array  # (nodes,) index into attributes
    text: Array  # (nodes,) index into texts
    n_children: Array  # (nodes,)
    offsets: npt.NDArray[np.int64]  # (trees + 1,) first node of each tree

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Nodes of each tree."""
        return np.diff(self.offsets)

    def compute_first_child(self) -> npt.NDArray[np.int64]:
        """Index of each node's first child (where one would stand, for a leaf), counted over the whole forest."""
        counts = self.n_children.astype(np.int64)
        before = np.cumsum(counts) - counts
        # within tree t, whose root is no child: 1 + children of the nodes before
        tree = np.repeat(np.arange(len(self)), self.sizes)
        return before + tree + 1

    def compute_parent(self) -> npt.NDArray[np.int64]:
        """Index of each node's parent over the whole forest; a root is its own parent."""
        parents = np.empty(len(self.n_children), np.int64)
        parents[self.offsets[:-1]] = self.offsets[:-1]
        inner = np.ones(len(parents), bool)
        inner[self.offsets[:-1]] = False
        parents[inner] = np.repeat(np.arange(len(parents)), self.n_children)
        return parents

    def compute_position(self) -> npt.NDArray[np.int64]:
        """Position of each node among its siblings, from 0."""
        parent = self.compute_parent()
        position = np.arange(len(parent)) - self.compute_first_child()[parent]
        position[self.offsets[:-1]] = 0
        return position

    def select(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Forest:
        """A forest of the trees at `indices`, in that order, with only the strings they use."""
        indices = np.asarray(indices, dtype=np.int64)
        sizes = self.sizes[indices]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        nodes = np.repeat(self.offsets[:-1][indices] - offsets[:-1], sizes) + np.arange(offsets[-1])
        tags, tag = _compact_strings(self.tags, self.tag[nodes])
        attributes, attribute = _compact_strings(self.attributes, self.attribute[nodes])
        texts, text = _compact_strings(self.texts, self.text[nodes])
        return Forest(tags, attributes, texts, tag, attribute, text, np.array(self.n_children[nodes]), offsets)

    def canonicalise(self) -> Forest:
        """The same trees with string lists in alphabetical order and fixed types: equal forests have equal bytes."""
        tags, tag = _sort_strings(self.tags, self.tag)
        attributes, attribute = _sort_strings(self.attributes, self.attribute)
        texts, text = _sort_strings(self.texts, self.text)
        most = int(self.n_children.max()) + 1 if len(self.n_children) else 1
        return Forest(
            tags, attributes, texts, tag, attribute, text, _to_smallest_dtype(self.n_children, most), self.offsets
        )

    def validate(self) -> None:
        """Check that the arrays describe trees and stay inside their string lists; raises `CorruptData`."""
        nodes = len(self.tag)
        lengths = {len(self.tag), len(self.attribute), len(self.text), len(self.n_children)}
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else []
        if len(lengths) != 1 or ends != [0, nodes] or (self.sizes < 1).any():
            raise CorruptData("forest arrays differ in length or a tree is empty")
        for name in ("tag", "attribute", "text"):
            values = getattr(self, name)
            if nodes and int(values.max()) >= len(getattr(self, name + "s")):
                raise CorruptData(f"forest: a {name} index points past its list")
        if nodes == 0:
            return
        if int(self.n_children.max()) >= nodes:
            raise CorruptData("forest: a node has more children than there are nodes")
        children = np.add.reduceat(self.n_children.astype(np.int64), self.offsets[:-1])
        inner = np.ones(nodes, bool)
        inner[self.offsets[:-1]] = False
        if (children != self.sizes - 1).any() or (self.compute_parent()[inner] >= np.flatnonzero(inner)).any():
            raise CorruptData("forest: child counts do not make a tree")


def _compact_strings(strings: list[str], indices: Array) -> tuple[list[str], Array]:
    """The strings in use, in their order, and the indices into that list."""
    used = np.flatnonzero(np.bincount(indices, minlength=len(strings)))
    rank = np.zeros(max(len(strings), 1), np.int64)
    rank[used] = np.arange(len(used))
    return [strings[i] for i in used], _to_smallest_dtype(rank[indices], max(len(used), 1))


def _sort_strings(strings: list[str], indices: Array) -> tuple[list[str], Array]:
    """The strings in use, in alphabetical order, and the indices into that list."""
    used = np.flatnonzero(np.bincount(indices, minlength=len(strings))).tolist()
    used.sort(key=strings.__getitem__)
    rank = np.zeros(max(len(strings), 1), np.int64)
    rank[used] = np.arange(len(used))
    return [strings[i] for i in used], _to_smallest_dtype(rank[indices], max(len(used), 1))


@dataclass
class ForestBuilder:
    """Collects trees, from batches with string lists of their own, into one forest."""

    tags: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    _parts: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)
    _sizes: list[Array] = field(default_factory=list)

    def add_batch(
        self, tags: list[str], attributes: list[str], texts: list[str], trees: Iterable[Sequence[Sequence[int]]]
    ) -> None:
        """Add trees given as (tag, attribute, text, n_children) lists; their numbers index the batch's own strings."""
        trees = list(trees)
        columns = [np.fromiter(chain.from_iterable(tree[c] for tree in trees), np.int64) for c in range(4)]
        self.add_columns(tags, attributes, texts, columns, [len(tree[0]) for tree in trees])

    def add_columns(
        self, tags: list[str], attributes: list[str], texts: list[str], columns: Sequence[Array], sizes: Sequence[int]
    ) -> None:
        """Add trees whose nodes stand one after the other in four columns: tag, attribute, text, n_children."""
        if len(sizes):
            self._add_part(tags, attributes, texts, columns, np.asarray(sizes, np.int64))

    def add_forest(self, forest: Forest) -> None:
        """Add all trees of another forest."""
        if len(forest):
            columns = [forest.tag, forest.attribute, forest.text, forest.n_children]
            self._add_part(forest.tags, forest.attributes, forest.texts, columns, forest.sizes)

    def _add_part(
        self, tags: list[str], attributes: list[str], texts: list[str], columns: Sequence[Array], sizes: Array
    ) -> None:
        self._parts.append(
            (
                _map_strings(self.tags, tags)[columns[0]],
                _map_strings(self.attributes, attributes)[columns[1]],
                _map_strings(self.texts, texts)[columns[2]],
                columns[3],
            )
        )
        self._sizes.append(sizes)

    def build(self) -> Forest:
        """The forest of everything added so far."""
        empty = np.zeros(0, np.int64)
        columns = [np.concatenate([empty, *(part[c] for part in self._parts)]) for c in range(4)]
        sizes = np.concatenate([empty, *self._sizes])
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        most = int(columns[3].max()) + 1 if len(columns[3]) else 1
        return Forest(
            list(self.tags), list(self.attributes), list(self.texts),
            _to_smallest_dtype(columns[0], len(self.tags)), _to_smallest_dtype(columns[1], len(self.attributes)),
            _to_smallest_dtype(columns[2], len(self.texts)), _to_smallest_dtype(columns[3], most), offsets,
        )  # fmt: skip


def _map_strings(index: dict[str, int], strings: list[str]) -> npt.NDArray[np.int64]:
    return np.fromiter((index.setdefault(s, len(index)) for s in strings), np.int64, len(strings))
