"""Presentation trees as texts: the labels of their nodes as words, in depth-first order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.compiler import njit
from eqkin.formulas import Forest

_VARIANT_PREFIX, _UPRIGHT_VARIANT = "mathvariant=", "normal"


def find_variants(attributes: list[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct variants of letters, first the usual one, and the index of each attribute entry's variant."""
    distinct = {"": 0}
    of_entry = np.zeros(len(attributes), np.int64)
    for at, lines in enumerate(attributes):
        found = [line[len(_VARIANT_PREFIX) :] for line in lines.split("\n") if line.startswith(_VARIANT_PREFIX)]
        if found and found[0] not in ("", _UPRIGHT_VARIANT):
            of_entry[at] = distinct.setdefault(found[0], len(distinct))
    return list(distinct), of_entry


def label_nodes(forest: Forest) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the distinct labels of all nodes as they are, and the index of each node's label.

    The label of a leaf is its tag, its text and the variant of the letter; that of an inner node is its tag. Other
    attributes only concern layout.
    """
    written, variant = find_variants(forest.attributes)
    code = (forest.tag.astype(np.int64) * len(forest.texts) + forest.text) * len(written) + variant[forest.attribute]
    codes, label = np.unique(code, return_inverse=True)
    names: dict[str, int] = {}
    # Blanks may make one label of two.
    merged = np.empty(len(codes), np.int32)
    for at, value in enumerate(codes.tolist()):
        rest, how = divmod(value, len(written))
        tag, text = divmod(rest, len(forest.texts))
        parts = [forest.texts[text], written[how]] if forest.texts[text] else []
        name = "␣".join(":".join(filter(None, [forest.tags[tag] or "∅", *parts])).split())
        merged[at] = names.setdefault(name, len(names))
    return list(names), merged[label]


def order_depth_first(forest: Forest) -> npt.NDArray[np.int64]:
    """Return the indices of the nodes tree after tree, each tree in depth-first order."""
    places: npt.NDArray[np.int64] = _place_nodes(forest.compute_parent())
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return order


@njit()
def _place_nodes(parent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the place of each node in depth-first order; nodes are breadth first, a root is its own parent."""
    size = np.ones(len(parent), np.int64)
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] != node:
            size[parent[node]] += size[node]
    place = np.zeros(len(parent), np.int64)
    following = np.zeros(len(parent), np.int64)
    for node in range(len(parent)):
        # The nodes of a tree stay together, so a root keeps its place.
        place[node] = node
        if parent[node] != node:
            place[node] = following[parent[node]]
            following[parent[node]] += size[node]
        following[node] = place[node] + 1
    return place
