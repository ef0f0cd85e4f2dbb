"""Tokens: the symbols of a tree in reading order.

A token is a node of the normal form that is not a row, in depth-first order. It consists of the label of the node and
its slot in the parent, so a sequence of equal tokens is an equal piece of a formula. For comparisons up to renaming, a
letter is described by the distance to its previous occurrence: two sequences with the same distances are equal under a
consistent renaming (Baker 1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.forest import Forest, Places, iter_blocks
from eqkin.trees.hashing import Codes, combine_hashes, hash_strings
from eqkin.trees.normal import Normaliser, NormalNodes
from eqkin.trees.terms import TERM_FAMILIES

MAX_TOKENS = 192  # tokens of a formula that are compared; a longer formula is cut
LETTER_KIND, NUMBER_KIND = np.uint32(1), np.uint32(2)
NEW_LETTER = 255  # distance of a letter that has not occurred before, or too far back
_NODES_PER_BLOCK = 200_000  # nodes processed at a time

CodeTable = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Tokens:
    """Sequences of tokens, one per row, padded with zeros; (trees, longest)."""

    exact: CodeTable  # hash of label and slot; 0 only for padding
    shape: CodeTable  # the same, but equal for all letters
    distance: npt.NDArray[np.uint8]  # to the previous occurrence of the letter; 0 if the token is not a letter
    label: CodeTable  # hash of the label, equal to the label's term
    kind: CodeTable  # the same, but `LETTER_KIND` for all letters and `NUMBER_KIND` for all numbers
    node: npt.NDArray[np.int32]  # number of the node in its tree, breadth first; -1 for padding
    length: npt.NDArray[np.int64]  # (trees,) tokens of each tree

    def __len__(self) -> int:
        return len(self.length)

    @classmethod
    def make_empty(cls, trees: int) -> Tokens:
        """Return empty sequences for this many trees."""
        table = np.zeros((trees, 0), np.uint32)
        distance, node = table.astype(np.uint8), table.astype(np.int32)
        return cls(table, table, distance, table, table, node, np.zeros(trees, np.int64))

    def select(self, places: Places) -> Tokens:
        """Return the tokens of the trees at `places`, in that order, as wide as the longest of them."""
        length = self.length[places]
        within = np.ix_(places, np.arange(int(length.max(initial=0))))
        return Tokens(
            self.exact[within], self.shape[within], self.distance[within], self.label[within], self.kind[within],
            self.node[within], length,
        )  # fmt: skip


def extract_tokens(
    forest: Forest,
    longest: int = MAX_TOKENS,
    normaliser: Normaliser | None = None,
    block: int = _NODES_PER_BLOCK,
) -> Tokens:
    """Return the tokens of each tree of a forest.

    Args:
        forest: Trees.
        longest: Tokens of a tree that are kept, the first ones.
        normaliser: The forest's normaliser, if there is one already.
        block: Nodes processed at a time; it does not change the tokens.
    """
    normaliser = normaliser or Normaliser(forest)
    row, letter, family = hash_strings(["mrow", "any letter", TERM_FAMILIES[0]])
    is_number = np.array([tag == "mn" for tag in forest.tags], bool)
    lengths = np.zeros(len(forest), np.int64)
    parts = []
    for trees, nodes in iter_blocks(forest.offsets, block):
        normal = normaliser.normalise(trees, nodes)
        kept = np.flatnonzero(~normal.row)
        tree = normal.tree[kept] + trees.start
        counts = np.bincount(tree, minlength=len(forest))
        place = np.arange(len(kept)) - (np.cumsum(counts) - counts)[tree]
        slot = np.where(normal.parent[kept] < 0, combine_hashes(row[None], np.zeros(1, np.uint64)), normal.slot[kept])
        exact = combine_hashes(slot, normal.label[kept])
        shape = np.where(normal.identifier[kept], combine_hashes(slot, letter[None]), exact)
        label = _shorten_code(combine_hashes(family[None], normal.label[kept]))
        kind = np.where(is_number[forest.tag[nodes][normal.node[kept]]], NUMBER_KIND, label)
        kind[normal.identifier[kept]] = LETTER_KIND
        number = normal.node[kept] - forest.offsets[tree] + nodes.start
        distance = _compute_distances(normal, kept, place)
        columns = (tree, place, _shorten_code(exact), _shorten_code(shape), distance, label, kind, number)
        parts.append([column[place < longest] for column in columns])
        lengths += np.minimum(counts, longest)
    size = (len(forest), int(lengths.max(initial=0)))
    tables = [np.zeros(size, np.uint32) for _ in range(4)]
    tokens = Tokens(
        tables[0], tables[1], np.zeros(size, np.uint8), tables[2], tables[3], np.full(size, -1, np.int32), lengths
    )
    for tree, place, exact, shape, distance, label, kind, number in parts:
        tokens.exact[tree, place], tokens.shape[tree, place] = exact, shape
        tokens.distance[tree, place], tokens.node[tree, place] = distance, number
        tokens.label[tree, place], tokens.kind[tree, place] = label, kind
    return tokens


def _shorten_code(code: Codes) -> CodeTable:
    short: CodeTable = np.maximum(code >> np.uint64(32), np.uint64(1)).astype(np.uint32)
    return short


def _compute_distances(nodes: NormalNodes, kept: Places, place: Places) -> npt.NDArray[np.uint8]:
    """Return how many tokens before each letter the same letter occurred last."""
    distance = np.zeros(len(kept), np.uint8)
    letters = np.flatnonzero(nodes.identifier[kept])
    name, tree = nodes.name[kept], nodes.tree[kept]
    order = letters[np.lexsort((letters, name[letters], tree[letters]))]
    if len(order):
        same = (tree[order[1:]] == tree[order[:-1]]) & (name[order[1:]] == name[order[:-1]])
        back = np.where(same, np.minimum(place[order[1:]] - place[order[:-1]], NEW_LETTER), NEW_LETTER)
        distance[order] = np.concatenate(([NEW_LETTER], back))
    return distance
