"""Presentation trees as texts: the labels of their nodes as words, in depth-first order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.learning.normal import find_variants
from eqkin.learning.normal_kernels import place_nodes


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
    rank = place_nodes(forest.n_children.astype(np.int64), forest.offsets)[2]
    places = rank + np.repeat(forest.offsets[:-1], forest.sizes)
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return np.asarray(order, np.int64)
