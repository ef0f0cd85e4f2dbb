"""Terms: hashed structural features of a tree, counted.

    0 label      tag and text of a node
    1 path       slot in the parent, label
    2 path2      slot of the parent in its parent, slot in the parent, label
    3 apath2     the same with anonymous identifiers
    4 sibling    label, label of the next sibling
    5 run2       two adjacent members of a row with everything below them
    6 run3       three of them
    7 renamed2   as 5, identifiers renamed by first occurrence
    8 renamed3   as 6, identifiers renamed by first occurrence

Terms are extracted from the normal form. Families 5 to 8 are sibling n-grams: an n-gram is a contiguous range of nodes
in depth-first order, described by the labels and child counts of its nodes. Its code is a polynomial hash of this
sequence, the sum of token * base^offset, computed from prefix sums. With renamed identifiers, the token of an
identifier is the distance to its previous occurrence in the n-gram, or "new"; the sum first takes all of them as new
and is then corrected. N-grams of more than 24 nodes are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.formulas.forest import Forest, Places, iter_blocks
from eqkin.formulas.hashing import Codes, combine_hashes, compute_powers, compute_prefix_sums, hash_strings
from eqkin.formulas.kinds import FAMILY_BITS, TERM_FAMILIES
from eqkin.formulas.normal import Normaliser, NormalNodes

INDEXED_FAMILIES = ("label", "sibling")
MAX_NGRAM_NODES = 24
_NODES_PER_BLOCK = 200_000  # nodes processed at a time
_SEEDS = hash_strings(TERM_FAMILIES)


@dataclass(frozen=True)
class Terms:
    """The terms of each tree; within a tree sorted by code, each code once."""

    offsets: npt.NDArray[np.int64]  # (trees + 1,) first term of each tree
    code: npt.NDArray[np.uint32]  # (terms,) hash, the same on every machine; families have hashes of their own
    family: npt.NDArray[np.uint8]  # (terms,) index into `TERM_FAMILIES`, then `OPERATOR_TERM_FAMILIES`
    count: npt.NDArray[np.uint8]  # (terms,) occurrences in the tree, at most 255

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def tree(self) -> Places:
        """Tree of each term: (terms,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def select_families(self, families: Sequence[int]) -> Terms:
        """Return the terms of some families."""
        is_wanted = np.zeros(1 << FAMILY_BITS, bool)  # faster than `np.isin` for the few terms of a query
        is_wanted[list(families)] = True
        chosen = is_wanted[self.family]
        before = np.concatenate(([0], np.cumsum(chosen)))
        return Terms(before[self.offsets], self.code[chosen], self.family[chosen], self.count[chosen])

    def merge(self, others: Terms) -> Terms:
        """Return these terms and others, of other families of the same trees."""
        parts = self, others
        tree, code, family, count = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("tree", "code", "family", "count")
        )
        order = np.argsort(tree.astype(np.uint64) << np.uint64(32) | code, kind="stable")
        return Terms(self.offsets + others.offsets, code[order], family[order], count[order])


def extract_terms(forest: Forest, block: int = _NODES_PER_BLOCK, families: Sequence[str] = TERM_FAMILIES) -> Terms:
    """Return the terms of each tree of a forest; a tree of blanks has none.

    Args:
        forest: Trees.
        block: Nodes processed at a time; it does not change the terms.
        families: Names of the families; those of n-grams take most of the time.
    """
    normaliser = Normaliser(forest)
    sizes = np.zeros(len(forest) + 1, np.int64)
    parts = [count_terms(np.zeros(0, np.uint64))[1:]]
    for trees, nodes in iter_blocks(forest.offsets, block):
        keys = []
        for name, tree, code in _iter_families(normaliser.normalise(trees, nodes), families):
            family = TERM_FAMILIES.index(name)
            keys.append(make_term_keys(tree, combine_hashes(_SEEDS[family : family + 1], code), family))
        counted = count_terms(np.concatenate(keys))
        sizes[trees.start + 1 : trees.stop + 1] = np.bincount(counted[0], minlength=trees.stop - trees.start)
        parts.append(counted[1:])
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Terms(np.cumsum(sizes), *columns)


def make_term_keys(tree: Places, code: Codes, family: int | Places) -> Codes:
    """Return integers that sort by tree, then by the first 32 bits of the hash."""
    key = tree.astype(np.uint64) << np.uint64(32)
    key |= code >> np.uint64(32)
    key <<= np.uint64(FAMILY_BITS)
    key |= np.asarray(family).astype(np.uint64)
    return key


def split_term_keys(keys: Codes) -> tuple[Places, npt.NDArray[np.uint32]]:
    """Return tree and code of keys."""
    terms = keys >> np.uint64(FAMILY_BITS)
    return (terms >> np.uint64(32)).astype(np.int64), terms.astype(np.uint32)


def count_terms(
    keys: Codes,
) -> tuple[Places, npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return tree, code, family and count of the distinct terms with these keys (`make_term_keys`)."""
    keys.sort()
    terms = keys >> np.uint64(FAMILY_BITS)
    first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1]))[: len(terms)])
    count = np.minimum(np.diff(first, append=len(terms)), 255).astype(np.uint8)
    keys = keys[first]
    return *split_term_keys(keys), (keys & np.uint64((1 << FAMILY_BITS) - 1)).astype(np.uint8), count


def _iter_families(nodes: NormalNodes, families: Sequence[str]) -> Iterator[tuple[str, Places, Codes]]:
    """Yield name of the family, tree and 64-bit hash of all terms, family by family; at least those of `families`."""
    tree, label, slot, parent = nodes.tree, nodes.label, nodes.slot, nodes.parent
    yield "label", tree, label
    if {"path", "path2", "apath2"} & set(families):
        below = np.flatnonzero(parent >= 0)
        yield "path", tree[below], combine_hashes(slot[below], label[below])
        further = below[parent[parent[below]] >= 0]
        path = combine_hashes(slot[parent[further]], slot[further])
        yield "path2", tree[further], combine_hashes(path, label[further])
        anonymous = np.where(nodes.identifier[further], hash_strings(["any identifier"])[0], label[further])
        yield "apath2", tree[further], combine_hashes(path, anonymous)
    end = np.arange(len(parent)) + nodes.size
    sibling = np.where((np.append(parent, -1)[end] == parent) & (parent >= 0), end, -1)  # the next one; -1: none
    first = np.flatnonzero(sibling >= 0)
    yield "sibling", tree[first], combine_hashes(label[first], label[sibling[first]])
    if {"run2", "run3", "renamed2", "renamed3"} & set(families):
        two, three = find_sibling_ngrams(nodes, sibling)
        yield "run2", tree[two.first], two.exact
        yield "run3", tree[three.first], three.exact
        yield "renamed2", tree[two.first], two.renamed
        yield "renamed3", tree[three.first], three.renamed


@dataclass(frozen=True)
class SiblingNgrams:
    """Adjacent members of rows with everything below them."""

    first: Places  # (n-grams,) first node
    exact: Codes  # (n-grams,) hash
    renamed: Codes  # (n-grams,) hash with identifiers renamed by first occurrence


def find_sibling_ngrams(nodes: NormalNodes, sibling: Places) -> tuple[SiblingNgrams, SiblingNgrams]:
    """Return the n-grams of two members and those of three.

    Args:
        nodes: Normal form of some trees.
        sibling: The next sibling of each node, -1 if there is none.
    """
    token = combine_hashes(nodes.label, nodes.n_children.astype(np.uint64))
    up, down = compute_powers(len(token))
    new = hash_strings(["new identifier"])
    exact = compute_prefix_sums(token * up)
    token[nodes.identifier] = new
    renamed = compute_prefix_sums(token * up)
    distance = _find_distance_back(nodes)
    repeated = distance < MAX_NGRAM_NODES
    again = np.flatnonzero(repeated)
    distance = distance[again]
    correction = (combine_hashes(new, distance.astype(np.uint64)) - new) * up[again]
    before = np.concatenate(([0], np.cumsum(repeated)))  # repeated identifiers before each node

    def hash_ngrams(first: Places, last: Places) -> SiblingNgrams:
        end = last + nodes.size[last]
        small = end - first <= MAX_NGRAM_NODES
        first, end = first[small], end[small]
        start, count = before[first], before[end] - before[first]
        ends = np.concatenate(([0], np.cumsum(count)))
        pair = np.repeat(start - ends[:-1], count) + np.arange(ends[-1])
        within = again[pair] - distance[pair] >= np.repeat(first, count)
        sums = compute_prefix_sums(np.where(within, correction[pair], np.uint64(0)))
        changed = sums[ends[1:]] - sums[ends[:-1]]
        return SiblingNgrams(
            first, (exact[end] - exact[first]) * down[first], (renamed[end] - renamed[first] + changed) * down[first]
        )

    first = np.flatnonzero((sibling >= 0) & nodes.row[nodes.parent])
    second = sibling[first]
    longer = sibling[second] >= 0
    return hash_ngrams(first, second), hash_ngrams(first[longer], sibling[second[longer]])


def _find_distance_back(nodes: NormalNodes) -> Places:
    """Return how many nodes back, even in another tree, the same identifier occurs; at most `MAX_NGRAM_NODES`."""
    distance = np.full(len(nodes.tree), MAX_NGRAM_NODES)
    places = np.flatnonzero(nodes.identifier)
    if len(places):
        name = nodes.name[places]
        order = np.lexsort((places, name))
        place, same = places[order], name[order][1:] == name[order][:-1]
        distance[place[1:][same]] = np.minimum(np.diff(place)[same], MAX_NGRAM_NODES)
    return distance
