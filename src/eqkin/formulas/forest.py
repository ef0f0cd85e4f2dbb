"""Forests: many trees as a few flat arrays.

Nodes are stored in breadth-first order, tree after tree. The children of a node are therefore contiguous, and one
number per node, `n_children`, describes the shape of a tree; parent, first child, position and depth follow from it
without loops. Tag, attributes and text of a node are indices into three lists of distinct strings. A forest is
lossless: MathML can be written from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.formulas.packing import hash_columns, pack_columns, unpack_columns

Array = npt.NDArray[np.integer[Any]]
Places = npt.NDArray[np.int64]

# Processed at a time, to limit memory.
NODES_PER_BLOCK = 1_000_000


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
    offsets: Places  # (trees + 1,) first node of each tree

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Places:
        """Number of nodes of each tree."""
        return np.diff(self.offsets)

    def compute_first_child(self) -> Places:
        """Return the index of each node's first child (for a leaf: where it would be) in the whole forest."""
        return compute_first_children(self.n_children, self.offsets)

    def compute_parent(self) -> Places:
        """Return the index of each node's parent in the whole forest; a root is its own parent."""
        return compute_parents(self.n_children, self.offsets)

    def select(self, indices: Sequence[int] | Places) -> Forest:
        """Return a forest of the trees at `indices`, in that order, with only the strings they use."""
        indices = np.asarray(indices, dtype=np.int64)
        sizes = self.offsets[indices + 1] - self.offsets[indices]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        nodes: slice | Places
        if len(indices) and (np.diff(indices) == 1).all():
            nodes = slice(int(self.offsets[indices[0]]), int(self.offsets[indices[-1] + 1]))
        else:
            nodes = np.repeat(self.offsets[:-1][indices] - offsets[:-1], sizes) + np.arange(offsets[-1])
        tags, tag = _compact_strings(self.tags, self.tag[nodes])
        attributes, attribute = _compact_strings(self.attributes, self.attribute[nodes])
        texts, text = _compact_strings(self.texts, self.text[nodes])
        return Forest(tags, attributes, texts, tag, attribute, text, np.array(self.n_children[nodes]), offsets)

    def canonicalise(self) -> Forest:
        """Return the same trees with sorted string lists and fixed types: equal forests have equal bytes."""
        tags, tag = _compact_strings(self.tags, self.tag, alphabetical=True)
        attributes, attribute = _compact_strings(self.attributes, self.attribute, alphabetical=True)
        texts, text = _compact_strings(self.texts, self.text, alphabetical=True)
        most = int(self.n_children.max(initial=0)) + 1
        n_children = _to_smallest_dtype(self.n_children, most)
        return Forest(tags, attributes, texts, tag, attribute, text, n_children, self.offsets)

    def to_bytes(self) -> bytes:
        """Return the stored form of this forest; `from_bytes` reads it. Raises `BadInput` for a zero character."""
        return pack_columns(*self._get_parts())

    def compute_digest(self) -> str:
        """Return the hexadecimal SHA-256 of the content; that of equal trees is equal after `canonicalise`."""
        return hash_columns(*self._get_parts())

    def _get_parts(self) -> tuple[list[list[str]], list[Array]]:
        columns = [self.tag, self.attribute, self.text, self.n_children, self.sizes]
        return [self.tags, self.attributes, self.texts], columns

    @classmethod
    def from_bytes(cls, packed: bytes) -> Forest:
        """Return the forest that `to_bytes` stored; raises `CorruptData` for bytes that were changed since."""
        strings, columns = unpack_columns(packed, 3, 5)
        tag, attribute, text, n_children, sizes = columns
        return cls(
            tags=strings[0],
            attributes=strings[1],
            texts=strings[2],
            tag=_to_smallest_dtype(tag, len(strings[0])),
            attribute=_to_smallest_dtype(attribute, len(strings[1])),
            text=_to_smallest_dtype(text, len(strings[2])),
            n_children=_to_smallest_dtype(n_children, int(n_children.max(initial=0)) + 1),
            offsets=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
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
            if nodes and not 0 <= int(values.min()) <= int(values.max()) < len(getattr(self, name + "s")):
                raise CorruptData(f"forest: a {name} index points past its list")
        if nodes == 0:
            return
        if not 0 <= int(self.n_children.min()) <= int(self.n_children.max()) < nodes:
            raise CorruptData("forest: a node has more children than there are nodes, or fewer than none")
        for trees, part in iter_blocks(self.offsets):  # to limit memory
            offsets, counts = self.offsets[trees.start : trees.stop + 1] - part.start, self.n_children[part]
            children = np.add.reduceat(counts, offsets[:-1], dtype=np.int64)
            first_child = compute_first_children(counts, offsets)
            if (children != np.diff(offsets) - 1).any() or (first_child <= np.arange(len(counts))).any():
                raise CorruptData("forest: child counts do not make a tree")


def _to_smallest_dtype(values: Array, bound: int) -> Array:
    """Convert an array to the narrowest unsigned type that holds numbers below `bound`."""
    return np.asarray(values, dtype=np.min_scalar_type(max(bound - 1, 0)))


def _compact_strings(strings: list[str], indices: Array, alphabetical: bool = False) -> tuple[list[str], Array]:
    """Return the strings in use, in their order or sorted, and the indices into that list."""
    used = np.flatnonzero(np.bincount(indices, minlength=len(strings))).tolist()
    if alphabetical:
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
        self,
        tags: list[str],
        attributes: list[str],
        texts: list[str],
        columns: Sequence[Array],
        sizes: Sequence[int] | Array,
    ) -> None:
        """Add trees whose nodes are concatenated in four columns: tag, attribute, text, n_children."""
        if not len(sizes):
            return
        tag, attribute, text = (
            _to_smallest_dtype(
                np.fromiter((index.setdefault(s, len(index)) for s in strings), np.int64, len(strings)), len(index)
            )[column]
            for index, strings, column in (
                (self.tags, tags, columns[0]),
                (self.attributes, attributes, columns[1]),
                (self.texts, texts, columns[2]),
            )
        )
        self._parts.append((tag, attribute, text, columns[3]))
        self._sizes.append(np.asarray(sizes, np.int64))

    def add_forest(self, forest: Forest) -> None:
        """Add all trees of another forest."""
        columns = [forest.tag, forest.attribute, forest.text, forest.n_children]
        self.add_columns(forest.tags, forest.attributes, forest.texts, columns, forest.sizes)

    def build(self) -> Forest:
        """Return the forest of everything added so far."""
        empty = np.zeros(0, np.uint8)
        columns = [np.concatenate([empty, *(part[c] for part in self._parts)]) for c in range(4)]
        sizes = np.concatenate([empty, *self._sizes])
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        bounds = (len(self.tags), len(self.attributes), len(self.texts), int(columns[3].max(initial=0)) + 1)
        tag, attribute, text, n_children = map(_to_smallest_dtype, columns, bounds)
        strings = list(self.tags), list(self.attributes), list(self.texts)
        return Forest(*strings, tag, attribute, text, n_children, offsets)


def compute_first_children(n_children: Array, offsets: Places) -> Places:
    """Return the index of each node's first child: 1 + the tree's number + the children of all nodes before."""
    counts = n_children.astype(np.int64)
    return np.cumsum(counts) - counts + np.repeat(np.arange(1, len(offsets)), np.diff(offsets))


def compute_parents(n_children: Array, offsets: Places) -> Places:
    """Return the index of each node's parent; a root is its own parent."""
    parent = np.empty(len(n_children), np.int64)
    parent[offsets[:-1]] = offsets[:-1]
    inner = np.ones(len(parent), bool)
    inner[offsets[:-1]] = False
    parent[inner] = np.repeat(np.arange(len(parent)), n_children)
    return parent


def iter_blocks(offsets: Places, size: int = NODES_PER_BLOCK) -> Iterator[tuple[slice, slice]]:
    """Yield consecutive trees (or sequences) with at most `size` nodes together, as slices of trees and of nodes.

    A tree with more nodes is a block of its own.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, "right")) - 1)
        yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))
        first = last
