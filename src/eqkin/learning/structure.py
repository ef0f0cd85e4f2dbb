"""What the recipe "eqkin" learns structure from: the terms of a formula's presentation tree, hashed and counted.

A tree has nine families of terms:

    label      tag and text of a node
    path       slot in the parent, label
    path2      slot of the parent in its parent, slot in the parent, label
    apath2     the same with anonymous identifiers
    sibling    label, label of the next sibling
    run2       two adjacent members of a row with everything below them
    run3       three of them
    renamed2   as run2, identifiers renamed by first occurrence
    renamed3   as run3, identifiers renamed by first occurrence

They are taken from the normal form (`eqkin.learning.normal`). Search compares formulas by fewer of them. A network
that imitates the cosines of all nine learns which formulas are alike without any labels.

A run is a contiguous range of at most 24 nodes in depth-first order. Its hash is the sum of token * base^offset over
its nodes, a difference of two prefix sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.formulas.forest import Places, iter_blocks
from eqkin.formulas.hashing import Codes, combine_hashes, hash_strings
from eqkin.learning.normal import Normaliser, NormalNodes

COLUMN_BITS = 14
COLUMNS = 1 << COLUMN_BITS
MAX_RUN_NODES = 24
_NODES_PER_BLOCK = 200_000
# Odd, so that its powers have inverses modulo 2^64.
_BASE = 0xD1342543DE82EF95


class TermCounts(NamedTuple):
    """How often each tree has terms in each of 2^14 columns, tree after tree, columns in ascending order."""

    offsets: Places
    columns: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.float32]


def count_terms(forest: Forest, block: int = _NODES_PER_BLOCK) -> TermCounts:
    """Count the terms of each tree; `block` nodes are processed at a time."""
    normaliser = Normaliser(forest)
    sizes, columns, counts = [np.zeros(1, np.int64)], [np.zeros(0, np.uint16)], [np.zeros(0, np.float32)]
    for trees, nodes in iter_blocks(forest.offsets, block):
        keys = []
        for family, tree, term in _iter_families(normaliser.normalise(trees, nodes)):
            # The first bits of a term's hash are its column, so the terms of all families share the columns.
            hashed = combine_hashes(hash_strings([family]), term)
            keys.append(tree << COLUMN_BITS | (hashed >> np.uint64(64 - COLUMN_BITS)).astype(np.int64))
        key, count = np.unique(np.concatenate(keys), return_counts=True)
        sizes.append(np.bincount(key >> COLUMN_BITS, minlength=trees.stop - trees.start))
        columns.append((key & (COLUMNS - 1)).astype(np.uint16))
        counts.append(count.astype(np.float32))
    return TermCounts(np.cumsum(np.concatenate(sizes)), np.concatenate(columns), np.concatenate(counts))


def _iter_families(nodes: NormalNodes) -> Iterator[tuple[str, Places, Codes]]:
    """Yield the name of each family, and tree and hash of its terms."""
    tree, label, slot, parent = nodes.tree, nodes.label, nodes.slot, nodes.parent
    yield "label", tree, label

    below = np.flatnonzero(parent >= 0)
    yield "path", tree[below], combine_hashes(slot[below], label[below])
    further = below[parent[parent[below]] >= 0]
    path = combine_hashes(slot[parent[further]], slot[further])
    yield "path2", tree[further], combine_hashes(path, label[further])
    anonymous = np.where(nodes.identifier[further], hash_strings(["any identifier"])[0], label[further])
    yield "apath2", tree[further], combine_hashes(path, anonymous)

    # In depth-first order the next sibling, if there is one, follows the subtree.
    end = np.arange(len(parent)) + nodes.size
    sibling = np.where((np.append(parent, -1)[end] == parent) & (parent >= 0), end, -1)
    first = np.flatnonzero(sibling >= 0)
    yield "sibling", tree[first], combine_hashes(label[first], label[sibling[first]])

    runs = _RunHasher(nodes)
    first = np.flatnonzero((sibling >= 0) & nodes.row[parent])
    second = sibling[first]
    for members in ("2", "3"):
        start, exact, renamed = runs.hash(first, second + nodes.size[second])
        yield f"run{members}", tree[start], exact
        yield f"renamed{members}", tree[start], renamed
        has_third = sibling[second] >= 0
        first, second = first[has_third], sibling[second[has_third]]


class _RunHasher:
    """Hashes runs of nodes with their identifiers as they are, and renamed by first occurrence.

    When renamed, the token of an identifier is the distance to its previous occurrence in the run, or "new". Prefix
    sums first take all of them as new; then each run is corrected for the pairs of occurrences that it contains.
    """

    def __init__(self, nodes: NormalNodes) -> None:
        token = combine_hashes(nodes.label, nodes.n_children.astype(np.uint64))
        up = _compute_powers(_BASE, len(token))
        self._down = _compute_powers(pow(_BASE, -1, 1 << 64), len(token))
        new = hash_strings(["new identifier"])
        self._exact = _compute_prefix_sums(token * up)
        token[nodes.identifier] = new
        self._renamed = _compute_prefix_sums(token * up)

        distance = _find_distance_back(nodes)
        is_repeated = distance < MAX_RUN_NODES
        self._repeated = np.flatnonzero(is_repeated)
        self._distance = distance[self._repeated]
        again = combine_hashes(new, self._distance.astype(np.uint64))
        self._correction = (again - new) * up[self._repeated]
        self._repeated_before = np.concatenate(([0], np.cumsum(is_repeated)))

    def hash(self, first: Places, end: Places) -> tuple[Places, Codes, Codes]:
        """Return the first node of each run that is not too long, and both of its hashes."""
        is_short = end - first <= MAX_RUN_NODES
        first, end = first[is_short], end[is_short]

        # List the repeated identifiers of all runs, one run after the other.
        start = self._repeated_before[first]
        count = self._repeated_before[end] - start
        ends = np.concatenate(([0], np.cumsum(count)))
        pair = np.repeat(start - ends[:-1], count) + np.arange(ends[-1])
        is_within = self._repeated[pair] - self._distance[pair] >= np.repeat(first, count)
        sums = _compute_prefix_sums(np.where(is_within, self._correction[pair], np.uint64(0)))
        corrected = sums[ends[1:]] - sums[ends[:-1]]

        down = self._down[first]
        exact = (self._exact[end] - self._exact[first]) * down
        renamed = (self._renamed[end] - self._renamed[first] + corrected) * down
        return first, exact, renamed


def _find_distance_back(nodes: NormalNodes) -> Places:
    """Return how many nodes back, even in another tree, the same identifier occurs; at most `MAX_RUN_NODES`."""
    distance = np.full(len(nodes.tree), MAX_RUN_NODES)
    places = np.flatnonzero(nodes.identifier)
    order = np.lexsort((places, nodes.name[places]))
    place, name = places[order], nodes.name[places][order]
    is_same = name[1:] == name[:-1]
    distance[place[1:][is_same]] = np.minimum(np.diff(place)[is_same], MAX_RUN_NODES)
    return distance


def _compute_powers(base: int, count: int) -> Codes:
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def _compute_prefix_sums(values: Codes) -> Codes:
    """Return the sums modulo 2^64 of all values before each, and of all of them at the end."""
    return np.concatenate((np.zeros(1, np.uint64), np.cumsum(values)))
