"""Terms: hashed structural features of a tree, counted.

    label      tag and text of a node of the presentation tree
    sibling    its label, and the label of its next sibling

These two are taken from the normal form (`eqkin.formulas.normal`); `eqkin.formulas.operator_terms` adds the terms of
operator trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.formulas.forest import Forest, Places, iter_blocks
from eqkin.formulas.hashing import Codes, combine_hashes, hash_strings
from eqkin.formulas.kinds import FAMILY_BITS, TERM_FAMILIES
from eqkin.formulas.normal import Normaliser

_NODES_PER_BLOCK = 200_000
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


def extract_terms(forest: Forest, block: int = _NODES_PER_BLOCK) -> Terms:
    """Return the terms of each presentation tree; a tree of blanks has none.

    Args:
        forest: Trees.
        block: Nodes processed at a time; it does not change the terms.
    """
    normaliser = Normaliser(forest)
    sizes = np.zeros(len(forest) + 1, np.int64)
    parts = [count_terms(np.zeros(0, np.uint64))[1:]]
    for trees, nodes in iter_blocks(forest.offsets, block):
        normal = normaliser.normalise(trees, nodes)
        first, second = normal.list_neighbours()
        pairs = combine_hashes(normal.label[first], normal.label[second])
        labels = make_term_keys(normal.tree, combine_hashes(_SEEDS[:1], normal.label), 0)
        siblings = make_term_keys(normal.tree[first], combine_hashes(_SEEDS[1:], pairs), 1)
        counted = count_terms(np.concatenate((labels, siblings)))
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
