"""Random trees, and a slow reference for the arrays of a forest."""

import numpy as np
from hypothesis import strategies as st

from eqkin.formulas import Forest

STRINGS = st.sampled_from(["", "x", "α", "12", "a=b", "a=1\nb=2", "𝔸", "exp"])
TREES = st.recursive(
    st.tuples(STRINGS, STRINGS, STRINGS, st.just([])),
    lambda children: st.tuples(STRINGS, STRINGS, STRINGS, st.lists(children, max_size=5)),
    max_leaves=25,
)
FORESTS = st.lists(TREES, max_size=6)


def breadth_first(tree):
    """List a tree's nodes breadth first as (tag, attributes, text, parent, position, first child, children)."""
    queue = [(tree, 0, 0)]
    rows = []
    for at, (node, parent, position) in enumerate(queue):
        first = len(queue)
        queue.extend((child, at, i) for i, child in enumerate(node[3]))
        rows.append((*node[:3], parent, position, first, len(node[3])))
    return rows


def build(trees):
    """Build a forest of these trees, one batch per tree."""
    forests = []
    for tree in trees:
        rows = breadth_first(tree)
        lists = [list(dict.fromkeys(row[c] for row in rows)) for c in range(3)]
        columns = [np.array([lists[c].index(row[c]) for row in rows]) for c in range(3)]
        forests.append(Forest(*lists, *columns, np.array([row[6] for row in rows]), np.array([0, len(rows)])))
    return Forest.concatenate(forests)


def compute_position(forest):
    """Return the position of each node among its siblings, from 0."""
    parent = forest.compute_parent()
    position = np.arange(len(parent)) - forest.compute_first_child()[parent]
    position[forest.offsets[:-1]] = 0
    return position


def rows_of(forest):
    """List all nodes of a forest like `breadth_first`, tree by tree."""
    parent, position, first = forest.compute_parent(), compute_position(forest), forest.compute_first_child()
    out = []
    for tree in range(len(forest)):
        start, end = int(forest.offsets[tree]), int(forest.offsets[tree + 1])
        out.append(
            [
                (
                    forest.tags[forest.tag[i]],
                    forest.attributes[forest.attribute[i]],
                    forest.texts[forest.text[i]],
                    int(parent[i]) - start,
                    int(position[i]),
                    int(first[i]) - start,
                    int(forest.n_children[i]),
                )
                for i in range(start, end)
            ]
        )
    return out
