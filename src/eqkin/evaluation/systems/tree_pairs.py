"""Log tf-idf over pairs of nodes that stand beside each other in a tree: parent and child, sibling and next sibling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eqkin.evaluation.systems.base import FormulaSet
from eqkin.evaluation.systems.terms import LogTfIdf, TermBag, count_matrix
from eqkin.trees.hashing import combine_hashes, hash_strings
from eqkin.trees.normal import label_nodes

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class TreePairs(LogTfIdf):
    """Formulas are related if the same symbols stand above and beside each other; nothing is learned.

    A root makes a pair with nothing, so that a formula of one symbol has a vector too.
    """

    name = "tree-pairs"
    title = "Tree pairs, log tf-idf"

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """How often each pair is in each formula."""
        forest = formulas.forest
        names, label = label_nodes(forest)
        code, parent = hash_strings(names)[label], forest.compute_parent()
        nothing, above, beside = hash_strings(["nothing", "above", "beside"])

        def pairs(trees: slice, nodes: slice) -> list[TermBag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            own, up = code[nodes], parent[nodes]
            root = up == np.arange(nodes.start, nodes.stop)
            children = combine_hashes(np.where(root, nothing, code[up]) ^ above, own)
            next_to = np.flatnonzero((up[:-1] == up[1:]) & ~root[:-1])
            siblings = combine_hashes(own[next_to] ^ beside, own[next_to + 1])
            return [(row, children), (row[next_to], siblings)]

        return count_matrix(forest.offsets, pairs, self.bits)
