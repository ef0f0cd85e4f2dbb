"""Terms of operator trees and of their outlines, and how often some formulas have the terms of a query.

    path       a leaf and its slots in up to four ancestors, once for each length from zero
    anypath    the same with an anonymous leaf for every variable
    subtree    an operator with everything below it
    anytree    the same with an anonymous leaf for every variable
    form       a whole statement, in each of `FORM_KINDS`; not of outlines

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a subtree adds
up the hashes of its operands, so operands that commute need not be sorted.

An outline is an operator tree without details that authors add or leave out. It has no arguments of functions
(`u(x, t)` is `u`), indices, accents, signs, ranges of sums and integrals, norms and transposes; every relation is `=`,
and a derivative is a quotient. Two ways to write a law often share their outline where their operator trees differ.

A query needs only those terms of a formula that it has itself. A path is its path without the last step, and then that
step; a subtree consists of subtrees: whatever grows from a part that the query does not have is left out at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.hashing import Codes, combine_hashes, hash_strings
from eqkin.trees.operators import (
    SAME_FORM_KINDS,
    Integers,
    LabelKinds,
    OperatorForest,
)
from eqkin.trees.terms import TERM_FAMILIES, Terms, count_terms, make_term_keys, split_term_keys

OPERATOR_TERM_FAMILIES = ("path", "anypath", "subtree", "anytree", "form")
OUTLINE_TERM_FAMILIES = OPERATOR_TERM_FAMILIES[:4]
FIRST_OPERATOR_FAMILY = len(TERM_FAMILIES)  # in `Terms.family`; the numbers before it are presentation families
FIRST_OUTLINE_FAMILY = FIRST_OPERATOR_FAMILY + len(OPERATOR_TERM_FAMILIES)
NEIGHBOUR_FAMILY = TERM_FAMILIES.index("sibling")
RANKED_FAMILIES = (NEIGHBOUR_FAMILY, *range(FIRST_OPERATOR_FAMILY, FIRST_OUTLINE_FAMILY + len(OUTLINE_TERM_FAMILIES)))
_SEEDS = hash_strings(
    [*(f"operator {name}" for name in OPERATOR_TERM_FAMILIES), *(f"outline {name}" for name in OUTLINE_TERM_FAMILIES)]
)  # of each family from `FIRST_OPERATOR_FAMILY` on
_OPERATORS, _OUTLINES = 0, 1  # kinds of trees
_KINDS = 2
_VARIANTS = 2  # of each tree: with names, without names
_FORM_SEED = _SEEDS[OPERATOR_TERM_FAMILIES.index("form")][None]
FORM_FAMILY = FIRST_OPERATOR_FAMILY + OPERATOR_TERM_FAMILIES.index("form")
_MAX_PATH = 4  # ancestors of a leaf in its longest path
_MAX_POSITION = 3  # later operands share a slot
_LAST_BITS = np.uint16  # of a hash, by which most terms that a query does not have are told apart

Mask = npt.NDArray[np.bool_]
Hashes = tuple[Integers, Codes]  # of terms, and the numbers of their trees


def extract_operator_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree; families are numbered from `FIRST_OPERATOR_FAMILY`."""
    return _extract(forest, [_OPERATORS])


def extract_structure_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree and of its outline."""
    return _extract(forest, [_OPERATORS, _OUTLINES])


def extract_query_terms(query: OperatorForest) -> tuple[Terms, Mask]:
    """Return the terms of each tree and of its outline, and the last bits of the hashes of paths and subtrees.

    `count_terms_of_query` counts these terms in other trees.
    """
    nodes, known = TermNodes.build(query, [_OPERATORS, _OUTLINES]), np.zeros(np.iinfo(_LAST_BITS).max + 1, bool)
    hashes = nodes.hash_paths(), nodes.hash_subtrees()
    for _, code in hashes:
        known[code.astype(_LAST_BITS)] = True
    return _count_terms([_make_keys(*hashes, len(query)), np.unique(_list_forms(query))], len(query)), known


def count_terms_of_query(forest: OperatorForest, codes: npt.NDArray[np.uint32], known: Mask) -> Integers:
    """Count terms in each tree of a forest: (trees, terms).

    Args:
        forest: Trees.
        codes: Terms of a query, ascending; only paths and subtrees are counted.
        known: What `extract_query_terms` returned with them.
    """
    counts = np.zeros((len(forest), len(codes)), np.int64)
    if not counts.size:
        return counts

    def find_terms(keys: Codes) -> tuple[Integers, Integers]:
        tree, code = split_term_keys(keys)
        term = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        found = np.flatnonzero(codes[term] == code)
        return tree[found], term[found]

    nodes = TermNodes.build(forest, [_OPERATORS, _OUTLINES])
    tree, term = find_terms(_make_keys(nodes.hash_paths(known), nodes.hash_subtrees(known), len(forest)))
    counts += np.bincount(tree * len(codes) + term, minlength=counts.size).reshape(counts.shape)
    return counts


@dataclass(frozen=True)
class TermNodes:
    """Nodes with the hashes that terms are made of: with names, then the same nodes without names."""

    tree: Integers  # (nodes,) number of the tree: operator trees, outlines, the same without names
    parent: Integers  # (nodes,) a root is its own parent
    label: Codes  # (nodes,)
    n_children: Integers  # (nodes,)
    place: Codes  # (nodes,) position among the parent's operands, from 1; 0 if they have no order
    slot: Codes  # (nodes,) hash of the parent's label, with its name, and the place

    @classmethod
    def build(cls, forest: OperatorForest, kinds: Sequence[int]) -> TermNodes:
        """Compute the hashes of operator trees, of outlines, or of both."""
        parts = []
        for kind in kinds:
            tree = np.repeat(np.arange(len(forest)) + kind * len(forest), np.diff(forest.offsets))
            if kind == _OPERATORS:
                named, anonymous, _, _, bits = forest.properties
                parts.append((tree, forest.parent, named, anonymous, bits & np.uint64(LabelKinds.UNORDERED)))
            else:
                node, label_of, parent = find_outlines(forest)
                _, _, named, anonymous, bits = forest.properties.take(label_of, axis=1)
                parent = parent + (len(parts[0][0]) if parts else 0)
                parts.append((tree[node], parent, named, anonymous, bits & np.uint64(LabelKinds.UNORDERED_OUTLINE)))
        columns = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        tree, parent, named, anonymous, unordered = columns
        nodes = len(tree)
        root = parent == np.arange(nodes)
        n_children = np.bincount(parent, minlength=nodes) - root
        position = np.minimum(_rank_in_groups(parent) - root[parent], _MAX_POSITION)  # a root is in its own group
        place = np.where(unordered[parent] != 0, 0, position + 1).astype(np.uint64)
        slot = combine_hashes(named[parent], place)
        tree = np.concatenate((tree, tree + _KINDS * len(forest)))
        twice = (np.concatenate((column, column)) for column in (n_children, place, slot))
        return cls(tree, np.concatenate((parent, parent + nodes)), np.concatenate((named, anonymous)), *twice)

    def hash_paths(self, known: Mask | None = None) -> Hashes:
        """Return tree and hash of every path."""
        node = np.flatnonzero(self.n_children == 0)
        code = self.label[node]
        trees, codes = [], []
        for _ in range(_MAX_PATH + 1):
            if known is not None:
                found = np.flatnonzero(known[code.astype(_LAST_BITS)])
                node, code = node[found], code[found]
            trees.append(self.tree[node])
            codes.append(code)
            above = self.parent[node]
            below = np.flatnonzero(above != node)
            code = combine_hashes(code[below], self.slot[node[below]])
            node = above[below]
        return np.concatenate(trees), np.concatenate(codes)

    def hash_subtrees(self, known: Mask | None = None) -> Hashes:
        """Return tree and hash of every subtree with an operator, from the leaves on."""
        hashes, waiting = self.label.copy(), self.n_children.copy()
        operands = np.zeros(len(hashes), np.uint64)  # sum of their hashes
        ready = np.flatnonzero(waiting == 0)
        found = [ready[:0]]
        while len(ready):
            if known is not None:
                ready = ready[known[hashes[ready].astype(_LAST_BITS)]]
            above = self.parent[ready]
            below = np.flatnonzero(above != ready)
            ready, above = ready[below], above[below]
            np.add.at(operands, above, combine_hashes(self.place[ready], hashes[ready]))
            np.subtract.at(waiting, above, 1)
            ready = above[waiting[above] == 0]
            last = ~np.arange(len(ready))
            waiting[ready] = last
            ready = ready[waiting[ready] == last]  # each once
            hashes[ready] = combine_hashes(self.label[ready], operands[ready])
            found.append(ready)
        node = np.concatenate(found)
        return self.tree[node], hashes[node]


def _rank_in_groups(groups: Integers) -> Integers:
    """Return how many earlier members each member's group has."""
    order = np.argsort(groups.astype(np.uint16) if len(groups) <= 1 << 16 else groups, kind="stable")
    here, ordered = np.arange(len(order)), groups[order]
    first = np.where(np.diff(ordered, prepend=-1) != 0, here, 0)
    rank = np.empty_like(order)
    rank[order] = here - np.maximum.accumulate(first)
    return rank


def find_outlines(forest: OperatorForest) -> tuple[Integers, Integers, Integers]:
    """Find the nodes that are left in outlines.

    Returns:
        The nodes, the nodes whose labels they get, and their parents, counted among the nodes that are left.
    """
    kinds, parent, n_children = forest.properties[-1], forest.parent, forest.n_children
    below = forest.depth > 0

    def mark(*bits: int) -> Mask:
        return np.asarray(kinds & np.uint64(sum(bits)) != 0, bool)

    simple = mark(LabelKinds.VARIABLE, LabelKinds.PLAIN, LabelKinds.INDEXED, LabelKinds.DETAIL)
    is_plain = np.bincount(parent[below & ~simple], minlength=len(parent)) == 0  # all operands are simple
    applied = np.flatnonzero(mark(LabelKinds.APPLIED) & is_plain & (n_children > 0))
    applied = applied[mark(LabelKinds.VARIABLE)[applied + 1]]  # the first operand follows its operator
    label_of = np.arange(len(parent))
    label_of[applied] += 1
    is_applied = np.zeros(len(parent), bool)
    is_applied[applied] = True
    dropped = mark(LabelKinds.DETAIL) | (is_applied[parent] & below)
    above = parent
    while not np.array_equal(further := above[above], above):  # with everything below
        dropped |= dropped[above]
        above = further
    dropped |= dropped[above]
    spliced = mark(LabelKinds.WRAPPER) & (n_children > 0) & (below | (n_children == 1))
    above = parent
    while (inside := spliced[above] & (above != parent[above])).any():
        above = np.where(inside, parent[above], above)
    node = np.flatnonzero(~(dropped | spliced))
    above = above[node]
    above = np.where(spliced[above], node, above)  # the root is spliced
    number = np.empty(len(parent), np.int64)
    number[node] = np.arange(len(node))
    return node, label_of[node], number[above]


def _make_keys(paths: Hashes, subtrees: Hashes, trees: int) -> Codes:
    """Return the keys (`make_term_keys`) of all paths and subtrees."""
    tree, code = np.concatenate((paths[0], subtrees[0])), np.concatenate((paths[1], subtrees[1]))
    named = np.repeat(np.array([FIRST_OPERATOR_FAMILY, FIRST_OUTLINE_FAMILY]), trees)
    family = np.concatenate((named, named + 1))[tree]  # with names, without
    family[len(paths[0]) :] += _VARIANTS
    number = np.tile(np.arange(trees), _KINDS * _VARIANTS)[tree]
    return make_term_keys(number, combine_hashes(_SEEDS[family - FIRST_OPERATOR_FAMILY], code), family)


def compute_form_codes(form: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the codes of the terms of one statement, (1, FORM_KINDS), of `SAME_FORM_KINDS`."""
    return split_term_keys(_make_form_keys(np.zeros(1, np.int64), form[:, : len(SAME_FORM_KINDS)]))[1]


def _list_forms(forest: OperatorForest) -> Codes:
    """Return the keys of the forms of all statements."""
    statements = np.repeat(np.arange(len(forest)), np.diff(forest.form_offsets))
    return _make_form_keys(statements, forest.forms)


def _make_form_keys(tree: Integers, forms: npt.NDArray[np.uint32]) -> Codes:
    kinds = np.arange(forms.shape[1], dtype=np.uint64)
    code = combine_hashes(_FORM_SEED, combine_hashes(kinds, forms.astype(np.uint64)))
    return make_term_keys(np.repeat(tree, len(kinds)), code.ravel(), FORM_FAMILY)


def _extract(forest: OperatorForest, kinds: Sequence[int]) -> Terms:
    nodes = TermNodes.build(forest, kinds)
    keys = [_make_keys(nodes.hash_paths(), nodes.hash_subtrees(), len(forest))]
    return _count_terms([*keys, *([np.unique(_list_forms(forest))] if _OPERATORS in kinds else [])], len(forest))


def _count_terms(keys: Sequence[Codes], trees: int) -> Terms:
    tree, code, family, count = count_terms(np.concatenate(keys))
    sizes = np.bincount(tree, minlength=trees)
    return Terms(np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), code, family, count)
