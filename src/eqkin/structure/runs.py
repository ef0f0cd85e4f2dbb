"""Runs: two or three members of a row that stand side by side, with all below them.

A run is a contiguous range of nodes in depth-first order, and its nodes' labels and numbers of children say it fully.
Its code is that of the sequence: sum over its nodes of token * base^offset, from sums over all nodes before its start
and its end. With identifiers renamed by first occurrence, an identifier's token is how far back in the run the same one
stands, or that it is new: first as if all were new, then corrected for those that are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqkin.structure.hashing import Codes, combined, hashes, powers, sums_before
from eqkin.structure.simplified import Places, Simplified

MOST = 24  # nodes of a run


@dataclass(frozen=True)
class Runs:
    """Runs of so many members."""

    first: Places  # (runs,) where each starts
    exact: Codes  # (runs,)
    renamed: Codes  # (runs,) with identifiers renamed by first occurrence


def runs(nodes: Simplified, following: Places) -> tuple[Runs, Runs]:
    """The runs of two members and those of three.

    Args:
        nodes: Trees.
        following: The next sibling of each node, -1 if there is none.
    """
    token = combined(nodes.label, nodes.n_children.astype(np.uint64))
    up, down = powers(len(token))
    new = hashes(["new identifier"])
    exact = sums_before(token * up)
    token[nodes.identifier] = new
    renamed = sums_before(token * up)
    back = _back(nodes)
    repeated = back < MOST
    again = np.flatnonzero(repeated)
    back = back[again]
    correction = (combined(new, back.astype(np.uint64)) - new) * up[again]
    before = np.concatenate(([0], np.cumsum(repeated)))  # repeated identifiers before each node

    def coded(first: Places, last: Places) -> Runs:
        end = last + nodes.size[last]
        small = end - first <= MOST
        first, end = first[small], end[small]
        start, count = before[first], before[end] - before[first]
        ends = np.concatenate(([0], np.cumsum(count)))
        pair = np.repeat(start - ends[:-1], count) + np.arange(ends[-1])
        within = again[pair] - back[pair] >= np.repeat(first, count)
        sums = sums_before(np.where(within, correction[pair], np.uint64(0)))
        changed = sums[ends[1:]] - sums[ends[:-1]]
        scale = down[first]
        return Runs(first, (exact[end] - exact[first]) * scale, (renamed[end] - renamed[first] + changed) * scale)

    first = np.flatnonzero((following >= 0) & nodes.row[nodes.parent])
    second = following[first]
    longer = following[second] >= 0
    return coded(first, second), coded(first[longer], following[second[longer]])


def _back(nodes: Simplified) -> Places:
    """How many nodes back, be it in another tree, the same identifier stands; `MOST` if nowhere, or further back."""
    back = np.full(len(nodes.tree), MOST)
    places = np.flatnonzero(nodes.identifier)
    if not len(places):
        return back
    names, place = np.divmod(np.sort(nodes.name[places] * len(back) + places), len(back))
    same = names[1:] == names[:-1]
    back[place[1:][same]] = np.minimum(np.diff(place)[same], MOST)
    return back
