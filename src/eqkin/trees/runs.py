"""Runs: two or three members of a row that stand side by side, with all below them.

A run is a contiguous range of nodes in depth-first order, and its nodes' labels and numbers of children say it fully.
Its code is that of the sequence: sum over its nodes of token * base^offset, from sums over all nodes before its start
and its end. With identifiers renamed by first occurrence, an identifier's token is how far back in the run the same one
stands, or that it is new: first as if all were new, then corrected for those that are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqkin.trees.hashing import Codes, combine_hashes, compute_powers, compute_prefix_sums, hash_strings
from eqkin.trees.simplified import NormalNodes, Places

MAX_NGRAM_NODES = 24  # nodes of a run


@dataclass(frozen=True)
class SiblingNgrams:
    """Runs of so many members."""

    first: Places  # (runs,) where each starts
    exact: Codes  # (runs,)
    renamed: Codes  # (runs,) with identifiers renamed by first occurrence


def find_sibling_ngrams(nodes: NormalNodes, following: Places) -> tuple[SiblingNgrams, SiblingNgrams]:
    """The runs of two members and those of three.

    Args:
        nodes: Trees.
        following: The next sibling of each node, -1 if there is none.
    """
    token = combine_hashes(nodes.label, nodes.n_children.astype(np.uint64))
    up, down = compute_powers(len(token))
    new = hash_strings(["new identifier"])
    exact = compute_prefix_sums(token * up)
    token[nodes.identifier] = new
    renamed = compute_prefix_sums(token * up)
    back = _find_distance_back(nodes)
    repeated = back < MAX_NGRAM_NODES
    again = np.flatnonzero(repeated)
    back = back[again]
    correction = (combine_hashes(new, back.astype(np.uint64)) - new) * up[again]
    before = np.concatenate(([0], np.cumsum(repeated)))  # repeated identifiers before each node

    def coded(first: Places, last: Places) -> SiblingNgrams:
        end = last + nodes.size[last]
        small = end - first <= MAX_NGRAM_NODES
        first, end = first[small], end[small]
        start, count = before[first], before[end] - before[first]
        ends = np.concatenate(([0], np.cumsum(count)))
        pair = np.repeat(start - ends[:-1], count) + np.arange(ends[-1])
        within = again[pair] - back[pair] >= np.repeat(first, count)
        sums = compute_prefix_sums(np.where(within, correction[pair], np.uint64(0)))
        changed = sums[ends[1:]] - sums[ends[:-1]]
        scale = down[first]
        return SiblingNgrams(
            first, (exact[end] - exact[first]) * scale, (renamed[end] - renamed[first] + changed) * scale
        )

    first = np.flatnonzero((following >= 0) & nodes.row[nodes.parent])
    second = following[first]
    longer = following[second] >= 0
    return coded(first, second), coded(first[longer], following[second[longer]])


def _find_distance_back(nodes: NormalNodes) -> Places:
    """How many nodes back, be it in another tree, the same identifier stands; `MOST` if nowhere, or further back."""
    back = np.full(len(nodes.tree), MAX_NGRAM_NODES)
    places = np.flatnonzero(nodes.identifier)
    if not len(places):
        return back
    names, place = np.divmod(np.sort(nodes.name[places] * len(back) + places), len(back))
    same = names[1:] == names[:-1]
    back[place[1:][same]] = np.minimum(np.diff(place)[same], MAX_NGRAM_NODES)
    return back
