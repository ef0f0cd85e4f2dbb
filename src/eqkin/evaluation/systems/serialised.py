"""Trees as sequences of tokens, one a node, in depth-first order: the order in which a formula is written.

All of it works on whole forests, level by level or string by string, never node by node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.forest import Forest
from eqkin.forest.forest import Array

Numbers = npt.NDArray[np.int32]

_BLOCK = 1_000_000  # nodes worked on at a time
_SPACE = "\u2423"  # stands for blanks inside a token
_NOTHING = "\u2205"  # stands for a tag without a name
_VARIANT = "mathvariant="
_UPRIGHT = "normal"  # which the converter gives to most symbols that are not letters


@dataclass(frozen=True)
class Sequences:
    """A sequence of tokens for each tree; tokens are indices into `names`."""

    names: list[str]  # distinct, not empty, without blanks
    token: Numbers  # (nodes,)
    offsets: npt.NDArray[np.int64]  # (trees + 1,) first token of each sequence

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lines(self) -> Iterator[str]:
        """Each sequence as its tokens' names with blanks between."""
        for start in range(0, len(self), 10_000):
            part = self.offsets[start : start + 10_001]
            words = [self.names[token] for token in self.token[part[0] : part[-1]].tolist()]
            ends = (part - part[0]).tolist()
            for first, last in zip(ends[:-1], ends[1:], strict=True):
                yield " ".join(words[first:last])


def serialised(forest: Forest) -> Sequences:
    """The labels of each tree's nodes in depth-first order."""
    names, label = labels(forest)
    return Sequences(names, label[depth_first(forest)], forest.offsets)


def labels(forest: Forest) -> tuple[list[str], Numbers]:
    """What each node says: the distinct labels, and the index of each node's.

    A leaf's label is its tag and its text, so that a variable, a number and an operator differ, and how the letter is
    written (bold, script) unless that is upright; an inner node's is its tag. Other attributes are about layout alone.
    """
    variants, variant = _variants(forest)
    code = forest.tag.astype(np.int64)
    code *= len(forest.texts)
    code += forest.text
    code *= len(variants)
    code += variant[forest.attribute]
    codes, label = _distinct(code, len(forest.tags) * len(forest.texts) * len(variants))
    names: dict[str, int] = {}
    merged = np.empty(len(codes), np.int32)  # blanks may make two of them one
    for at, value in enumerate(codes.tolist()):
        rest, written = divmod(value, len(variants))
        tag, text = divmod(rest, len(forest.texts))
        name = _name(forest.tags[tag], forest.texts[text], variants[written])
        merged[at] = names.setdefault(name, len(names))
    return list(names), merged[label]


def preorder(forest: Forest, block: int = _BLOCK) -> Numbers:
    """Each node's rank in depth-first order within its tree, from 0; (nodes,) in the forest's order."""
    rank = np.empty(len(forest.n_children), np.int32)
    for trees, nodes in blocks(forest.offsets, block):
        rank[nodes] = _ranks(forest.n_children[nodes], forest.offsets[trees.start : trees.stop + 1] - nodes.start)
    return rank


def depth_first(forest: Forest) -> npt.NDArray[np.int64]:
    """The nodes, tree after tree, each tree's in depth-first order: what is indexed by it comes in that order."""
    places = preorder(forest).astype(np.int64)
    places += np.repeat(forest.offsets[:-1], forest.sizes)
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return order


def blocks(offsets: npt.NDArray[np.int64], size: int = _BLOCK) -> Iterator[tuple[slice, slice]]:
    """Consecutive trees, or sequences, of at most so many nodes together: which they are, and which nodes they have.

    A tree with more nodes is a block of its own.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, "right")) - 1)
        yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))
        first = last


def _ranks(n_children: Array, offsets: npt.NDArray[np.int64]) -> Numbers:
    """`preorder` for some trees: sizes of subtrees from the leaves up, then ranks from the roots down.

    rank(child) = rank(parent) + 1 + the sizes of the subtrees of its elder siblings
    """
    counts = n_children.astype(np.int64)
    first_child = np.cumsum(counts) - counts + np.repeat(np.arange(1, len(offsets)), np.diff(offsets))
    levels = [offsets[:-1]]
    owners = []  # of each node of the next level, its parent's place in this one
    while True:
        level = levels[-1]
        owner = np.repeat(np.arange(len(level)), counts[level])
        if not len(owner):
            break
        start = np.cumsum(counts[level]) - counts[level]
        levels.append(first_child[level][owner] + np.arange(len(owner)) - start[owner])
        owners.append(owner)
    sizes = [np.ones(len(levels[-1]), np.int64)]
    for level, owner in zip(levels[-2::-1], owners[::-1], strict=True):
        sizes.append(1 + np.bincount(owner, sizes[-1], len(level)).astype(np.int64))
    sizes.reverse()
    rank = np.zeros(len(counts), np.int32)
    for above, below, owner, size in zip(levels[:-1], levels[1:], owners, sizes[1:], strict=True):
        before = np.cumsum(size) - size
        eldest = np.concatenate(([True], owner[1:] != owner[:-1]))
        before -= before[eldest][np.cumsum(eldest) - 1]
        rank[below] = rank[above][owner] + 1 + before
    return rank


def _variants(forest: Forest) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct ways letters are written, and the index of each attribute entry's."""
    variants = {"": 0}
    of_entry = np.zeros(len(forest.attributes), np.int64)
    for at, lines in enumerate(forest.attributes):
        found = [line[len(_VARIANT) :] for line in lines.split("\n") if line.startswith(_VARIANT)]
        if found and found[0] != _UPRIGHT:
            of_entry[at] = variants.setdefault(found[0], len(variants))
    return list(variants), of_entry


def _distinct(codes: npt.NDArray[np.int64], bound: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct codes, ascending, and where each one stands among them; without sorting if there is room."""
    if bound > 1 << 26:
        values, inverse = np.unique(codes, return_inverse=True)
        return values, inverse.reshape(-1)
    present = np.zeros(max(bound, 1), bool)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


def _name(tag: str, text: str, variant: str) -> str:
    parts = [tag or _NOTHING] + ([text] if text else []) + ([variant] if variant and text else [])
    return _SPACE.join(":".join(parts).split())
