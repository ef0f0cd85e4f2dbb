"""Equalities and inequalities as pairs of sides (paper, section 6.5): what is finetuned on, and asked for.

The paper split LaTeX with regular expressions; here trees are split at relation signs, after these rules, which were
fixed before anything was measured on the pairs:

- A line is the content of the root, or of a row of the root's table, its cells one after the other. A line that begins
  with a relation sign goes on with the last statement of the line above. One that begins with another operator, or with
  an empty cell where the first line has none, goes on with a side, which is left out.
- Wide spaces, words, arrows of implication, and commas, semicolons and colons outside of brackets part a line into
  statements. Relation signs outside of brackets part a statement into sides. A sign below or above which something is
  written is that sign.
- Two neighbouring sides with a sign of the set between them are a pair if each has at least `SMALLEST` nodes, and the
  larger one at most `RATIO` times as many as the smaller one. Full stops and spaces at their ends are dropped.
- A statement gives one pair at most, the first: in a chain a = b = c all are right answers to each other.
- No side occurs twice, whatever side it is on: of pairs that share one, the first is kept. So every side has one right
  answer, and what is learned from never comes up again in a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.sets.lines import NodeKind, StatementReader
from eqkin.trees import Forest
from eqkin.trees.normal import label_nodes

Integers = npt.NDArray[np.int64]

PAIR_SIGNS: dict[str, frozenset[int]] = {
    "equalities": frozenset({NodeKind.EQUAL}),
    "inequalities": frozenset({NodeKind.LESS}),
    "relations": frozenset({NodeKind.EQUAL, NodeKind.LESS, NodeKind.GREATER}),
}
MIN_SIDE_NODES = 6  # nodes: more than f(x), which has five with the row around it
MAX_SIZE_RATIO = 1.3


@dataclass(frozen=True, eq=False)
class SidePairs:
    """Left and right sides: those of pair i are the trees i and len + i."""

    forest: Forest
    origin: Integers  # (pairs,) the tree that a pair was found in

    def __len__(self) -> int:
        return len(self.origin)

    def select(self, pairs: Integers) -> SidePairs:
        """Some pairs, in that order."""
        return SidePairs(self.forest.select(np.concatenate([pairs, len(self) + pairs])), self.origin[pairs])


def extract_pairs(forest: Forest, signs: frozenset[int]) -> SidePairs:
    """The pairs of sides that trees have around some relation signs (one of `SETS`)."""
    return NeighbouringSides.read(forest).select_pairs(signs)


@dataclass(frozen=True, eq=False)
class NeighbouringSides:
    """All neighbouring sides of a forest, with the sign between them: the pairs of any set are some of them."""

    sides: SidePairs
    statement: Integers  # (pairs,) which of its tree's statements each is from
    sign: Integers  # (pairs,)

    @classmethod
    def read(cls, forest: Forest) -> NeighbouringSides:
        """Read all trees that have a sign of any set; takes seconds for 100,000."""
        reader = StatementReader(forest)
        signs = frozenset[int]().union(*PAIR_SIGNS.values())
        trees = np.searchsorted(forest.offsets, np.flatnonzero(np.isin(reader.kind, list(signs))), side="right") - 1
        found = [
            (tree, number, right.sign, left.nodes, right.nodes)
            for tree in np.unique(trees).tolist()
            for number, statement in enumerate(reader.read_statements(tree))
            for left, right in pairwise(statement)
            if right.sign in signs and left.nodes and right.nodes
        ]
        origin, statement, sign = np.array([row[:3] for row in found], np.int64).reshape(-1, 3).T
        sides = extract_subforest(forest, [row[3] for row in found] + [row[4] for row in found])
        return cls(SidePairs(sides, origin), statement, sign)

    def select_pairs(self, signs: frozenset[int]) -> SidePairs:
        """Those with some signs that make good pairs: one a statement, none with a side that came up before."""
        small, large = np.sort(self.sides.forest.sizes.reshape(2, -1), axis=0)
        fits = np.flatnonzero(
            (small >= MIN_SIDE_NODES) & (large <= MAX_SIZE_RATIO * small) & np.isin(self.sign, list(signs))
        )
        names = np.stack([self.sides.origin[fits], self.statement[fits]], axis=1)
        _, first = np.unique(names, axis=0, return_index=True)
        pairs = self.sides.select(fits[first])
        return pairs.select(_find_distinct(pairs.forest))


def _find_distinct(forest: Forest) -> Integers:
    """The pairs none of whose sides stands in an earlier one of them."""
    _, label = label_nodes(forest)
    content = np.stack([label, forest.n_children.astype(np.int32)], axis=1)
    names = [content[start:end].tobytes() for start, end in pairwise(forest.offsets.tolist())]
    half = len(names) // 2
    seen: set[bytes] = set()
    kept = []
    for pair, sides in enumerate(zip(names[:half], names[half:], strict=True)):
        if sides[0] != sides[1] and seen.isdisjoint(sides):
            seen.update(sides)
            kept.append(pair)
    return np.array(kept, np.int64)


def extract_subforest(forest: Forest, tops: list[list[int]]) -> Forest:
    """A tree for each list of nodes: the node with all that is below it, several in a row of their own."""
    tags, attributes, texts = (list(strings) for strings in (forest.tags, forest.attributes, forest.texts))
    row = [_find_or_append(tags, "mrow"), _find_or_append(attributes, ""), _find_or_append(texts, "")]
    lengths = np.array([len(nodes) for nodes in tops], np.int64)
    several = np.flatnonzero(lengths > 1)
    owner = np.repeat(np.arange(len(tops)), lengths)
    node = np.array([node for nodes in tops for node in nodes], np.int64)
    levels, first_child, counts = [(owner, node)], forest.compute_first_child(), forest.n_children
    while len(node):
        below = counts[node].astype(np.int64)
        owner = np.repeat(owner, below)
        node = np.repeat(first_child[node] - np.cumsum(below) + below, below) + np.arange(below.sum())
        levels.append((owner, node))
    owner = np.concatenate([several, *(level[0] for level in levels)])
    order = np.argsort(owner, kind="stable")  # level by level within each tree
    rows = np.zeros(len(several), np.int64)
    node = np.concatenate([rows, *(level[1] for level in levels)])[order]
    is_row = order < len(several)
    tag, attribute, text = (
        np.where(is_row, own, column[node].astype(np.int64))
        for own, column in zip(row, (forest.tag, forest.attribute, forest.text), strict=True)
    )
    n_children = np.where(is_row, lengths[owner[order]], counts[node].astype(np.int64))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(tops)))))
    return Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets)


def _find_or_append(strings: list[str], wanted: str) -> int:
    """Where a string stands in a list, at whose end it is put if it is missing."""
    if wanted not in strings:
        strings.append(wanted)
    return strings.index(wanted)
