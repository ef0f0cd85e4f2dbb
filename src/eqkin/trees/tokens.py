"""Trees as sequences of tokens that say what stands where, with and without the names of letters: what runs are of.

A token is a node that is no row, in depth-first order: its label and which child of what it is, so that a run of equal
tokens is an equal piece of a formula. Letters are named, for a comparison up to renaming, by how far back the same
letter stood last: two runs with the same distances are one run under a consistent renaming (Baker 1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.forest import Forest, iter_blocks
from eqkin.trees.hashing import combine_hashes, hash_strings
from eqkin.trees.normal import Normaliser, NormalNodes
from eqkin.trees.terms import TERM_FAMILIES

MAX_TOKENS = 192  # tokens of a formula that are compared; the rest of a longer one is left out
LETTER_KIND, NUMBER_KIND = np.uint32(1), np.uint32(2)
NEW_LETTER = 255  # distance of a letter that has not stood before, or too far back
_NODES_PER_BLOCK = 200_000  # nodes worked on at a time

CodeTable = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Tokens:
    """Sequences of tokens, one a row, padded with zeros; (trees, longest)."""

    exact: CodeTable  # code of label and place; 0 for padding alone
    shape: CodeTable  # the same, whatever the letter
    distance: npt.NDArray[np.uint8]  # to where the letter stood last; 0 for what is no letter
    label: CodeTable  # code of the label, wherever it stands: that of its term
    kind: CodeTable  # the same, but `LETTER` for all letters and `NUMBER` for all numbers
    node: npt.NDArray[np.int32]  # number of the node in its tree, breadth first; -1 for padding
    length: npt.NDArray[np.int64]  # (trees,) tokens of each

    def __len__(self) -> int:
        return len(self.length)

    @classmethod
    def make_empty(cls, trees: int) -> Tokens:
        """No tokens of so many trees."""
        table = np.zeros((trees, 0), np.uint32)
        distance, node = table.astype(np.uint8), table.astype(np.int32)
        return cls(table, table, distance, table, table, node, np.zeros(trees, np.int64))

    def select(self, places: npt.NDArray[np.int64]) -> Tokens:
        """The tokens of some of the trees, in that order, no wider than the longest of them."""
        length = self.length[places]
        within = np.ix_(places, np.arange(int(length.max(initial=0))))
        return Tokens(
            self.exact[within], self.shape[within], self.distance[within], self.label[within], self.kind[within],
            self.node[within], length,
        )  # fmt: skip


def extract_tokens(forest: Forest, longest: int = MAX_TOKENS, simplify: Normaliser | None = None) -> Tokens:
    """The tokens of each tree of a forest, the first `longest` of them; `simplify` is that of the forest, if known."""
    simplify = simplify or Normaliser(forest)
    row, letter, family = hash_strings(["mrow", "any letter", TERM_FAMILIES[0]])
    is_number = np.array([tag == "mn" for tag in forest.tags], bool)
    lengths = np.zeros(len(forest), np.int64)
    parts = []
    for trees, nodes in iter_blocks(forest.offsets, _NODES_PER_BLOCK):
        left = simplify(trees, nodes)
        kept = np.flatnonzero(~left.row)
        tree = left.tree[kept] + trees.start
        counts = np.bincount(tree, minlength=len(forest))
        place = np.arange(len(kept)) - (np.cumsum(counts) - counts)[tree]
        slot = np.where(left.parent[kept] < 0, combine_hashes(row[None], np.zeros(1, np.uint64)), left.slot[kept])
        exact = combine_hashes(slot, left.label[kept])
        shape = np.where(left.identifier[kept], combine_hashes(slot, letter[None]), exact)
        within = place < longest
        label = _shorten_code(combine_hashes(family[None], left.label[kept]))
        kind = np.where(is_number[forest.tag[nodes][left.node[kept]]], NUMBER_KIND, label)
        kind[left.identifier[kept]] = LETTER_KIND
        number = left.node[kept] - forest.offsets[tree] + nodes.start
        columns = (
            tree,
            place,
            _shorten_code(exact),
            _shorten_code(shape),
            _compute_distances(left, kept, place),
            label,
            kind,
            number,
        )
        parts.append([column[within] for column in columns])
        lengths += np.minimum(counts, longest)
    width = int(lengths.max(initial=0))
    size = (len(forest), width)
    tables = [np.zeros(size, np.uint32) for _ in range(4)]
    tokens = Tokens(
        tables[0], tables[1], np.zeros(size, np.uint8), tables[2], tables[3], np.full(size, -1, np.int32), lengths
    )
    for tree, place, exact, shape, distance, label, kind, number in parts:
        tokens.exact[tree, place], tokens.shape[tree, place] = exact, shape
        tokens.distance[tree, place], tokens.node[tree, place] = distance, number
        tokens.label[tree, place], tokens.kind[tree, place] = label, kind
    return tokens


def _shorten_code(code: npt.NDArray[np.uint64]) -> CodeTable:
    short: CodeTable = np.maximum(code >> np.uint64(32), np.uint64(1)).astype(np.uint32)
    return short


def _compute_distances(
    nodes: NormalNodes, kept: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """How many tokens before each letter the same one stood last."""
    distance = np.zeros(len(kept), np.uint8)
    letters = np.flatnonzero(nodes.identifier[kept])
    order = letters[np.lexsort((letters, nodes.name[kept[letters]], nodes.tree[kept[letters]]))]
    if len(order):
        same = (nodes.tree[kept[order[1:]]] == nodes.tree[kept[order[:-1]]]) & (
            nodes.name[kept[order[1:]]] == nodes.name[kept[order[:-1]]]
        )
        back = np.where(same, np.minimum(place[order[1:]] - place[order[:-1]], NEW_LETTER), NEW_LETTER)
        distance[order] = np.concatenate(([NEW_LETTER], back))
    return distance
