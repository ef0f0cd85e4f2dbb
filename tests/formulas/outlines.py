"""Outlines of operator trees as trees."""

import numpy as np

from eqkin.formulas.kernels import find_outlines, find_parents
from eqkin.formulas.operators import OperatorForest, simplify_label


def build_outlines(forest: OperatorForest) -> OperatorForest:
    """Return the outline of each tree; outlines have no forms."""
    columns = forest.label, forest.depth, forest.offsets
    node, label_of, parent = find_outlines(forest.label, find_parents(*columns, len(forest.labels)), forest.properties)
    names = [simplify_label(forest.labels[at]) for at in forest.label[label_of].tolist()]
    index = {name: at for at, name in enumerate(dict.fromkeys(names))}
    label = np.array([index[name] for name in names], np.int64)
    depth, above = np.zeros(len(node), np.int64), np.arange(len(node))
    while not np.array_equal(further := parent[above], above):
        depth += further != above
        above = further
    none = forest.forms[:0], np.zeros_like(forest.form_offsets)
    offsets = np.searchsorted(node, forest.offsets)
    return OperatorForest(list(index), label, depth, offsets, forest.unparsed, *none)
