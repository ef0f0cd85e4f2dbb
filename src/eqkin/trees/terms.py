"""Terms: what a tree is made of, counted.

    0 label      tag and text of a node
    1 path       which child of what, label
    2 path2      which child of what, which child of what, label
    3 apath2     the same, identifiers anonymous
    4 sibling    label, label of the next sibling
    5 run2       two members of a row side by side, with all below them
    6 run3       three of them
    7 renamed2   as 5, identifiers renamed by first occurrence
    8 renamed3   as 6, identifiers renamed by first occurrence

of simplified trees (`simplified.py`). Runs of more than 24 nodes are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.hashing import Codes, combine_hashes, hash_strings
from eqkin.trees.order import iter_blocks
from eqkin.trees.runs import find_sibling_ngrams
from eqkin.trees.simplified import Normaliser, NormalNodes, Places

TERM_FAMILIES = ("label", "path", "path2", "apath2", "sibling", "run2", "run3", "renamed2", "renamed3")

_NODES_PER_BLOCK = 200_000  # nodes worked on at a time
_FAMILY_BITS = 4


@dataclass(frozen=True)
class Terms:
    """The terms of each tree; within a tree sorted by code, each code once."""

    offsets: npt.NDArray[np.int64]  # (trees + 1,) first term of each tree
    code: npt.NDArray[np.uint32]  # (terms,) the same always and everywhere; families have codes of their own
    family: npt.NDArray[np.uint8]  # (terms,) index into `FAMILIES`
    count: npt.NDArray[np.uint8]  # (terms,) how often it is in the tree; 255 stands for more, too

    def __len__(self) -> int:
        return len(self.offsets) - 1


def extract_terms(forest: Forest, block: int = _NODES_PER_BLOCK, simplify: Normaliser | None = None) -> Terms:
    """The terms of each tree of a forest; a tree of blanks has none.

    Args:
        forest: Trees.
        block: Nodes worked on at a time; makes no difference to the terms.
        simplify: That of the forest, if there is one already.
    """
    simplify, seeds = simplify or Normaliser(forest), hash_strings(TERM_FAMILIES)
    sizes = np.zeros(len(forest) + 1, np.int64)
    parts = [_count_terms(np.zeros(0, np.uint64))[1:]]
    for trees, nodes in iter_blocks(forest.offsets, block):
        keys = [
            _make_keys(tree, combine_hashes(seeds[at : at + 1], code), at)
            for at, (tree, code) in enumerate(_iter_families(simplify(trees, nodes)))
        ]
        tree, code, family, count = _count_terms(np.concatenate(keys))
        sizes[trees.start + 1 : trees.stop + 1] = np.bincount(tree, minlength=trees.stop - trees.start)
        parts.append((code, family, count))
    codes, families, counts = zip(*parts, strict=True)
    return Terms(np.cumsum(sizes), np.concatenate(codes), np.concatenate(families), np.concatenate(counts))


def _iter_families(nodes: NormalNodes) -> Iterator[tuple[Places, Codes]]:
    """Tree and 64-bit code of every term, family by family."""
    tree, label, slot, parent = nodes.tree, nodes.label, nodes.slot, nodes.parent
    yield tree, label
    below = np.flatnonzero(parent >= 0)
    yield tree[below], combine_hashes(slot[below], label[below])
    further = below[parent[parent[below]] >= 0]
    way = combine_hashes(slot[parent[further]], slot[further])
    yield tree[further], combine_hashes(way, label[further])
    anonymous = np.where(nodes.identifier[further], hash_strings(["any identifier"])[0], label[further])
    yield tree[further], combine_hashes(way, anonymous)
    following = _find_next_siblings(nodes)
    first = np.flatnonzero(following >= 0)
    yield tree[first], combine_hashes(label[first], label[following[first]])
    two, three = find_sibling_ngrams(nodes, following)
    yield tree[two.first], two.exact
    yield tree[three.first], three.exact
    yield tree[two.first], two.renamed
    yield tree[three.first], three.renamed


def _find_next_siblings(nodes: NormalNodes) -> Places:
    """The next sibling of each node; -1 if there is none."""
    end = np.arange(len(nodes.parent)) + nodes.size
    parent = np.append(nodes.parent, -1)
    return np.where((parent[end] == nodes.parent) & (nodes.parent >= 0), end, -1)


def _make_keys(tree: Places, code: Codes, family: int) -> Codes:
    """Numbers that sort by tree, then by the first 32 bits of the code."""
    key = tree.astype(np.uint64) << np.uint64(32)
    key |= code >> np.uint64(32)
    key <<= np.uint64(_FAMILY_BITS)
    key |= np.uint64(family)
    return key


def _count_terms(
    keys: Codes,
) -> tuple[Places, npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Tree, code, family and count of the distinct terms."""
    keys.sort(kind="stable")  # twice as fast as the default: each family is in order by tree
    terms = keys >> np.uint64(_FAMILY_BITS)
    first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1]))[: len(terms)])
    count = np.minimum(np.diff(first, append=len(terms)), 255).astype(np.uint8)
    terms, family = terms[first], (keys[first] & np.uint64((1 << _FAMILY_BITS) - 1)).astype(np.uint8)
    return (terms >> np.uint64(32)).astype(np.int64), terms.astype(np.uint32), family, count
