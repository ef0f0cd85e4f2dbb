"""Operator trees: what a formula says instead of how it is set, in flat arrays; and terms extracted from them.

`eqkin.mathml.operators` parses them from presentation trees. A label is an operator (`+`, `frac`, `D`, `f:sin`, `app`)
or a leaf with its kind: variable `v:x`, number `n:2`, constant `c:∞`, name `fn:sin`, `text:`, sign `o:→`.

Terms come in four families:

    0 path       a leaf and its slots in up to four ancestors, once for each length from zero
    1 anypath    the same with an anonymous leaf for every variable
    2 subtree    an operator with everything below it
    3 anytree    the same with an anonymous leaf for every variable

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a subtree adds
up the hashes of its operands, so operands that commute need not be sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.trees.hashing import Codes, combine_hashes, hash_strings

Integers = npt.NDArray[np.int64]
OPERATOR_TERM_FAMILIES = ("path", "anypath", "subtree", "anytree")
# operators whose operands have no order, symmetric relations among them
UNORDERED = frozenset("+ * = ≠ ≈ ~ ∪ ∩ ⊕ chain rows list set with cases inner".split())
_VARIABLE_PREFIX = "v:"
_ANY_VARIABLE = "any variable"
_MAX_PATH = 4  # ancestors of a leaf in its longest path
_MAX_POSITION = 3  # later operands share a slot


@dataclass(frozen=True)
class OperatorForest:
    """Operator trees, tree after tree, each in depth-first order."""

    labels: list[str]
    label: Integers  # (nodes,) index into labels
    parent: Integers  # (nodes,) counted over the whole forest; a root is its own parent
    origin: Integers  # (nodes,) presentation node it was parsed from, counted within its tree
    depth: Integers  # (nodes,) number of ancestors
    position: Integers  # (nodes,) among the operands of its parent, from 0
    offsets: Integers  # (trees + 1,) first node of each tree
    unparsed: Integers  # (trees,) presentation nodes without a meaning here, which keep their structure

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def n_children(self) -> Integers:
        """Number of operands of each node: (nodes,)."""
        return np.bincount(self.parent[self.depth > 0], minlength=len(self.parent))

    def to_json(self, tree: int) -> Any:
        """Return a tree as nested lists: `["=", "v:E", ["*", "v:m", ["pow", "v:c", "n:2"]]]`."""
        done: list[Any] = []  # subtrees that wait for their parent, the last one first
        for node in range(self.offsets[tree + 1] - 1, self.offsets[tree] - 1, -1):
            name, count = self.labels[self.label[node]], int(self.n_children[node])
            children = [done.pop() for _ in range(count)]
            done.append([name, *children] if count else name)
        return done[0]


@dataclass(frozen=True)
class OperatorTerms:
    """Terms of one family: a tree and a code for each occurrence."""

    tree: Integers
    code: Codes


def extract_operator_terms(forest: OperatorForest) -> list[OperatorTerms]:
    """Extract the terms of each tree, family by family (`OPERATOR_TERM_FAMILIES`)."""
    if not len(forest.label):
        return [OperatorTerms(np.zeros(0, np.int64), np.zeros(0, np.uint64)) for _ in OPERATOR_TERM_FAMILIES]
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.offsets))
    variable = np.array([label.startswith(_VARIABLE_PREFIX) for label in forest.labels])
    unordered = np.array([label in UNORDERED for label in forest.labels])
    named = hash_strings(forest.labels)
    anonymous = np.where(variable, hash_strings([_ANY_VARIABLE])[0], named)
    above = forest.label[forest.parent]
    place = np.where(unordered[above], 0, np.minimum(forest.position, _MAX_POSITION) + 1).astype(np.uint64)
    slot = combine_hashes(named[above], place)
    families = []
    for labels in (named, anonymous):
        families.append(_extract_paths(forest, labels[forest.label], slot, tree))
    for labels in (named, anonymous):
        inner = forest.n_children > 0
        families.append(OperatorTerms(tree[inner], _hash_subtrees(forest, labels[forest.label], place)[inner]))
    return families


def _extract_paths(forest: OperatorForest, labels: Codes, slot: Codes, tree: Integers) -> OperatorTerms:
    leaves = np.flatnonzero(forest.n_children == 0)
    ancestor, code = leaves, labels[leaves]
    trees, codes = [tree[leaves]], [code]
    for _ in range(_MAX_PATH):
        below = forest.depth[ancestor] > 0
        leaves, ancestor, code = leaves[below], ancestor[below], code[below]
        code = combine_hashes(code, slot[ancestor])
        ancestor = forest.parent[ancestor]
        trees.append(tree[leaves])
        codes.append(code)
    return OperatorTerms(np.concatenate(trees), np.concatenate(codes))


def _hash_subtrees(forest: OperatorForest, labels: Codes, place: Codes) -> Codes:
    """Hash every node with everything below it, level by level from the deepest."""
    order = np.argsort(forest.depth, kind="stable")
    ends = np.cumsum(np.bincount(forest.depth))
    below = np.zeros(len(labels), np.uint64)  # sum over the operands
    hashes = labels.copy()
    for depth in range(len(ends) - 1, -1, -1):
        level = order[ends[depth - 1] if depth else 0 : ends[depth]]
        inner = level[forest.n_children[level] > 0]
        hashes[inner] = combine_hashes(labels[inner], below[inner])
        if depth:
            np.add.at(below, forest.parent[level], combine_hashes(place[level], hashes[level]))
    return hashes
