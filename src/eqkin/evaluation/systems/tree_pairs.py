"""Log tf-idf over pairs of nodes that stand beside each other in a tree: parent and child, sibling and next sibling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eqkin.evaluation.systems.base import Formulas
from eqkin.evaluation.systems.terms import Bag, LogTfIdf, counted
from eqkin.structure.hashing import combined, hashes
from eqkin.structure.labels import labels

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class TreePairs(LogTfIdf):
    """Formulas are related if the same symbols stand above and beside each other; nothing is learned.

    A root makes a pair with nothing, so that a formula of one symbol has a vector too.
    """

    name = "tree-pairs"
    title = "Tree pairs, log tf-idf"

    def counts(self, formulas: Formulas) -> csr_matrix:
        """How often each pair is in each formula."""
        forest = formulas.forest
        names, label = labels(forest)
        code, parent = hashes(names)[label], forest.parent()
        nothing, above, beside = hashes(["nothing", "above", "beside"])

        def pairs(trees: slice, nodes: slice) -> list[Bag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            own, up = code[nodes], parent[nodes]
            root = up == np.arange(nodes.start, nodes.stop)
            children = combined(np.where(root, nothing, code[up]) ^ above, own)
            next_to = np.flatnonzero((up[:-1] == up[1:]) & ~root[:-1])
            siblings = combined(own[next_to] ^ beside, own[next_to + 1])
            return [(row, children), (row[next_to], siblings)]

        return counted(forest.offsets, pairs, self.bits)
