"""Operator trees: what a formula says instead of how it is set, in flat arrays; and terms extracted from them.

`eqkin.mathml.operators` parses them from presentation trees. A label is an operator (`+`, `frac`, `D`, `f:sin`, `app`)
or a leaf with its kind: variable `v:x`, number `n:2`, constant `c:∞`, name `fn:sin`, `text:`, sign `o:→`.

Terms come in five families:

    path       a leaf and its slots in up to four ancestors, once for each length from zero
    anypath    the same with an anonymous leaf for every variable
    subtree    an operator with everything below it
    anytree    the same with an anonymous leaf for every variable
    form       a whole statement, in each of `FORM_KINDS`

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a subtree adds
up the hashes of its operands, so operands that commute need not be sorted. The statements of a formula are the formula
itself, which comes first, and the relations in its chains, lists and rows: `a = b = c` says `a = b`, `b = c`, `a = c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.trees.hashing import Codes, combine_hashes, hash_strings
from eqkin.trees.terms import TERM_FAMILIES, Terms, count_terms, make_term_keys

Integers = npt.NDArray[np.int64]
OPERATOR_TERM_FAMILIES = ("path", "anypath", "subtree", "anytree", "form")
FIRST_OPERATOR_FAMILY = len(TERM_FAMILIES)  # in `Terms.family`; the numbers before it are presentation families
# canonical: notation unified; renamed: its variables without names; weak: terms moved, scaled, solved for a variable
FORM_KINDS = ("canonical", "renamed", "weak", "weak renamed")
SAME_FORM_KINDS = FORM_KINDS[:3]  # in which two statements are the same, up to names and notation
# operators whose operands have no order, symmetric relations among them
UNORDERED = frozenset("+ * = ≠ ≈ ~ ∪ ∩ ⊕ chain rows list set with cases inner".split())
STORED_TYPES: dict[str, type[np.unsignedinteger[Any]]] = {
    "label_text": np.uint8,  # the labels' UTF-8, one after the other
    "label_end": np.uint32,  # where each of them ends
    "label": np.uint32,
    "origin": np.uint16,
    "depth": np.uint8,
    "offsets": np.uint32,
    "unparsed": np.uint16,
    "forms": np.uint32,
    "form_offsets": np.uint32,
}
_VARIABLE_PREFIX = "v:"
_ANY_VARIABLE = "any variable"
_MAX_PATH = 4  # ancestors of a leaf in its longest path
_MAX_POSITION = 3  # later operands share a slot


@dataclass(frozen=True)
class OperatorForest:
    """Operator trees, tree after tree, each in depth-first order."""

    labels: list[str]
    label: Integers  # (nodes,) index into labels
    origin: Integers  # (nodes,) presentation node it was parsed from, counted within its tree
    depth: Integers  # (nodes,) number of ancestors
    offsets: Integers  # (trees + 1,) first node of each tree
    unparsed: Integers  # (trees,) presentation nodes without a meaning here, which keep their structure
    forms: npt.NDArray[np.uint32]  # (statements, FORM_KINDS) hashes; a formula's first statement is all of it
    form_offsets: Integers  # (trees + 1,) first statement of each tree

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def parent(self) -> Integers:
        """Parent of each node, counted over the whole forest; a root is its own parent: (nodes,)."""
        parent = np.arange(len(self.depth))
        above: Integers | None = None
        for level in self.levels:
            if above is not None:
                parent[level] = above[np.searchsorted(above, level) - 1]
            above = level
        return parent

    @cached_property
    def levels(self) -> list[Integers]:
        """Nodes of each depth, in order."""
        order = np.argsort(self.depth.astype(np.uint8), kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1]) if len(order) else []

    @cached_property
    def position(self) -> Integers:
        """Position of each node among the operands of its parent, from 0: (nodes,)."""
        position = np.zeros(len(self.depth), np.int64)
        for level in self.levels[1:]:
            first = np.flatnonzero(np.diff(self.parent[level], prepend=-1))
            position[level] = np.arange(len(level)) - np.repeat(first, np.diff(first, append=len(level)))
        return position

    @cached_property
    def n_children(self) -> Integers:
        """Number of operands of each node: (nodes,)."""
        return np.bincount(self.parent[self.depth > 0], minlength=len(self.parent))

    def select(self, trees: Sequence[int] | Integers) -> OperatorForest:
        """Return a forest of the given trees, in that order; it keeps the whole list of labels."""
        trees = np.asarray(trees, np.int64)
        nodes, offsets = _gather(self.offsets, trees)
        statements, form_offsets = _gather(self.form_offsets, trees)
        columns = self.label[nodes], self.origin[nodes], self.depth[nodes]
        return OperatorForest(
            self.labels, *columns, offsets, self.unparsed[trees], self.forms[statements], form_offsets
        )

    @classmethod
    def concatenate(cls, forests: Sequence[OperatorForest]) -> OperatorForest:
        """Return one forest of all trees, one forest after the other."""
        parts = (_EMPTY, *forests)
        index: dict[str, int] = {}
        label = []
        for part in parts:
            numbers = np.array([index.setdefault(name, len(index)) for name in part.labels], np.int64)
            label.append(numbers[part.label])

        def join(name: str) -> Any:
            return np.concatenate([getattr(part, name) for part in parts])

        def join_offsets(name: str) -> Integers:
            return _accumulate(np.concatenate([np.diff(getattr(part, name)) for part in parts]))

        columns = np.concatenate(label), join("origin"), join("depth"), join_offsets("offsets"), join("unparsed")
        return cls(list(index), *columns, join("forms"), join_offsets("form_offsets"))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays of fixed small types that describe the forest (`STORED_TYPES`)."""
        used, label = np.unique(self.label, return_inverse=True)
        names = [self.labels[at].encode("utf-8", "surrogatepass") for at in used]
        arrays = {
            "label_text": np.frombuffer(b"".join(names), np.uint8),
            "label_end": np.cumsum([len(name) for name in names]),
            "label": label,
            "origin": self.origin,
            "depth": self.depth,
            "offsets": self.offsets,
            "unparsed": np.minimum(self.unparsed, np.iinfo(np.uint16).max),
            "forms": self.forms,
            "form_offsets": self.form_offsets,
        }
        return {name: values.astype(STORED_TYPES[name]) for name, values in arrays.items()}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], trees: Sequence[int] | Integers | None = None
    ) -> OperatorForest:
        """Return the forest that `to_arrays` described, or some of its trees without reading the others."""
        offsets, form_offsets = arrays["offsets"], arrays["form_offsets"]
        rows = np.arange(len(offsets) - 1) if trees is None else np.asarray(trees, np.int64)
        nodes, new_offsets = _gather(offsets, rows)
        statements, new_form_offsets = _gather(form_offsets, rows)
        used, label = np.unique(arrays["label"][nodes], return_inverse=True)
        used = used.astype(np.int64)
        text, ends = arrays["label_text"], arrays["label_end"]
        starts = np.where(used > 0, ends[used - 1], 0)
        names = [
            text[start:end].tobytes().decode("utf-8", "surrogatepass")
            for start, end in zip(starts.tolist(), ends[used].tolist(), strict=True)
        ]
        columns = label, arrays["origin"][nodes].astype(np.int64), arrays["depth"][nodes].astype(np.int64)
        unparsed = arrays["unparsed"][rows].astype(np.int64)
        return cls(names, *columns, new_offsets, unparsed, arrays["forms"][statements], new_form_offsets)

    def to_json(self, tree: int) -> Any:
        """Return a tree as nested lists: `["=", "v:E", ["*", "v:m", ["pow", "v:c", "n:2"]]]`."""
        done: list[Any] = []  # subtrees that wait for their parent, the last one first
        for node in range(self.offsets[tree + 1] - 1, self.offsets[tree] - 1, -1):
            name, count = self.labels[self.label[node]], int(self.n_children[node])
            children = [done.pop() for _ in range(count)]
            done.append([name, *children] if count else name)
        return done[0]


def share_form(
    forms: npt.NDArray[np.uint32], form: npt.NDArray[np.uint32], kinds: int = len(SAME_FORM_KINDS)
) -> npt.NDArray[np.bool_]:
    """Return which statements say the same as one: in the same names, consistently renamed, or with terms moved.

    Args:
        forms: Hashes of statements (n, FORM_KINDS).
        form: Hashes of one, (1, FORM_KINDS).
        kinds: The first so many `FORM_KINDS` are compared.
    """
    same: npt.NDArray[np.bool_] = (forms[:, :kinds] == form[:, :kinds]).any(axis=1)
    return same


def compute_form_codes(form: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the codes of the terms of one statement, (1, FORM_KINDS), of `SAME_FORM_KINDS`."""
    kinds = np.arange(len(SAME_FORM_KINDS), dtype=np.uint64)
    hashes = combine_hashes(kinds, form[0, : len(kinds)].astype(np.uint64))
    codes: npt.NDArray[np.uint32] = (combine_hashes(hash_strings(["operator form"]), hashes) >> np.uint64(32)).astype(
        np.uint32
    )
    return codes


def _accumulate(sizes: npt.NDArray[Any]) -> Integers:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _gather(offsets: npt.NDArray[Any], rows: Integers) -> tuple[Integers, Integers]:
    """Return the indices of all members of some rows, and the offsets of these rows in them."""
    starts = offsets[rows].astype(np.int64)
    sizes = offsets[rows + 1].astype(np.int64) - starts
    ends = _accumulate(sizes)
    return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1]), ends


_NO_NUMBERS, _NO_OFFSETS = np.zeros(0, np.int64), np.zeros(1, np.int64)
_NO_FORMS = np.zeros((0, len(FORM_KINDS)), np.uint32)
_EMPTY = OperatorForest([], _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_OFFSETS, _NO_NUMBERS, _NO_FORMS, _NO_OFFSETS)


def extract_operator_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree; families are numbered from `FIRST_OPERATOR_FAMILY`."""
    return extract_tree_terms(forest, "operator", OPERATOR_TERM_FAMILIES, FIRST_OPERATOR_FAMILY)


def extract_tree_terms(forest: OperatorForest, kind: str, families: Sequence[str], first: int) -> Terms:
    """Return terms of the first few families, with codes of their own for each kind of tree.

    Args:
        forest: Trees.
        kind: Kind of the trees, which enters the codes.
        families: Names of the families.
        first: Number of the first family.
    """
    seeds = hash_strings(f"{kind} {family}" for family in families)
    keys = [
        make_term_keys(tree, combine_hashes(seed[None], code), first + at)
        for at, (seed, (tree, code)) in enumerate(zip(seeds, _iter_families(forest), strict=False))
    ]
    tree, code, family, count = count_terms(np.concatenate(keys))
    return Terms(_accumulate(np.bincount(tree, minlength=len(forest))), code, family, count)


def _iter_families(forest: OperatorForest) -> Iterator[tuple[Integers, Codes]]:
    """Yield tree and 64-bit hash of all terms, family by family."""
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.offsets))
    variable = np.array([label.startswith(_VARIABLE_PREFIX) for label in forest.labels], bool)
    unordered = np.array([label in UNORDERED for label in forest.labels], bool)
    named = hash_strings(forest.labels)
    anonymous = np.where(variable, hash_strings([_ANY_VARIABLE])[0], named)
    above = forest.label[forest.parent]
    place = np.where(unordered[above], 0, np.minimum(forest.position, _MAX_POSITION) + 1).astype(np.uint64)
    slot = combine_hashes(named[above], place)
    for labels in (named, anonymous):
        yield _extract_paths(forest, labels[forest.label], slot, tree)
    inner = forest.n_children > 0
    for labels in (named, anonymous):
        yield tree[inner], _hash_subtrees(forest, labels[forest.label], place)[inner]
    statement = np.repeat(np.arange(len(forest)), np.diff(forest.form_offsets) * len(FORM_KINDS))
    kind = np.tile(np.arange(len(FORM_KINDS), dtype=np.uint64), len(forest.forms))
    codes = np.unique(np.stack([statement.astype(np.uint64), kind, forest.forms.ravel()]), axis=1)
    yield codes[0].astype(np.int64), combine_hashes(codes[1], codes[2])


def _extract_paths(forest: OperatorForest, labels: Codes, slot: Codes, tree: Integers) -> tuple[Integers, Codes]:
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
    return np.concatenate(trees), np.concatenate(codes)


def _hash_subtrees(forest: OperatorForest, labels: Codes, place: Codes) -> Codes:
    """Hash every node with everything below it, level by level from the deepest."""
    below = np.zeros(len(labels), np.uint64)  # sum over the operands
    hashes = labels.copy()
    for level in reversed(forest.levels):
        inner = level[forest.n_children[level] > 0]
        hashes[inner] = combine_hashes(labels[inner], below[inner])
        if forest.depth[level[0]]:
            np.add.at(below, forest.parent[level], combine_hashes(place[level], hashes[level]))
    return hashes
