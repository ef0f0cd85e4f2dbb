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

from eqkin.evaluation.lines import Kind, LineReader
from eqkin.evaluation.systems.serialised import labels
from eqkin.forest import Forest

Integers = npt.NDArray[np.int64]

SETS: dict[str, frozenset[int]] = {
    "equalities": frozenset({Kind.EQUAL}),
    "inequalities": frozenset({Kind.LESS}),
    "relations": frozenset({Kind.EQUAL, Kind.LESS, Kind.GREATER}),
}
SMALLEST = 6  # nodes: more than f(x), which has five with the row around it
RATIO = 1.3


@dataclass(frozen=True, eq=False)
class Pairs:
    """Left and right sides: those of pair i are the trees i and len + i."""

    forest: Forest
    origin: Integers  # (pairs,) the tree that a pair was found in

    def __len__(self) -> int:
        return len(self.origin)

    def select(self, pairs: Integers) -> Pairs:
        """Some pairs, in that order."""
        return Pairs(self.forest.select(np.concatenate([pairs, len(self) + pairs])), self.origin[pairs])


def extract(forest: Forest, signs: frozenset[int]) -> Pairs:
    """The pairs of sides that trees have around some relation signs (one of `SETS`)."""
    reader = LineReader(forest)
    origin: list[int] = []
    statement: list[int] = []
    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    for tree in np.unique(_trees_of(forest, np.flatnonzero(np.isin(reader.kind, list(signs))))).tolist():
        for number, parts in enumerate(reader.statements(tree)):
            for left, right in pairwise(parts):
                if right.sign in signs and left.nodes and right.nodes:
                    origin.append(tree)
                    statement.append(number)
                    sides[0].append(left.nodes)
                    sides[1].append(right.nodes)
    pairs = Pairs(subforest(forest, sides[0] + sides[1]), np.array(origin, np.int64))
    small, large = np.sort(pairs.forest.sizes.reshape(2, -1), axis=0)
    fits = np.flatnonzero((small >= SMALLEST) & (large <= RATIO * small))
    names = np.stack([pairs.origin, np.array(statement, np.int64)], axis=1)[fits]
    _, first = np.unique(names, axis=0, return_index=True)
    pairs = pairs.select(fits[first])
    return pairs.select(_distinct(pairs.forest))


def _trees_of(forest: Forest, nodes: Integers) -> Integers:
    """The tree of each node."""
    return np.searchsorted(forest.offsets, nodes, side="right") - 1


def _distinct(forest: Forest) -> Integers:
    """The pairs none of whose sides stands in an earlier one of them."""
    _, label = labels(forest)
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


def subforest(forest: Forest, tops: list[list[int]]) -> Forest:
    """A tree for each list of nodes: the node with all that is below it, several in a row of their own."""
    tags, attributes, texts = (list(strings) for strings in (forest.tags, forest.attributes, forest.texts))
    row = [_place(tags, "mrow"), _place(attributes, ""), _place(texts, "")]
    lengths = np.array([len(nodes) for nodes in tops], np.int64)
    several = np.flatnonzero(lengths > 1)
    owner = np.repeat(np.arange(len(tops)), lengths)
    node = np.array([node for nodes in tops for node in nodes], np.int64)
    levels, first_child, counts = [(owner, node)], forest.first_child(), forest.n_children
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


def _place(strings: list[str], wanted: str) -> int:
    """Where a string stands in a list, at whose end it is put if it is missing."""
    if wanted not in strings:
        strings.append(wanted)
    return strings.index(wanted)
