"""Two small systems for tests: shared characters of the LaTeX, and sizes of the trees."""

import numpy as np

from eqkin.evaluation import EmbeddingSystem, System


class Characters(System):
    """The share of characters that two formulas have in common."""

    name = "characters"
    title = "Shared characters"
    needs_latex = True

    def rank(self, queries, formulas):
        ours, theirs = [set(latex) for latex in queries.latex], [set(latex) for latex in formulas.latex]
        return np.array([[len(a & b) / len(a | b) for b in theirs] for a in ours], np.float32)


class Sizes(EmbeddingSystem):
    """A formula is the number of its nodes, and of its leaves."""

    name = "sizes"
    title = "Sizes of trees"

    def encode(self, formulas):
        forest = formulas.forest
        leaves = np.add.reduceat(forest.n_children == 0, forest.offsets[:-1], dtype=np.int64)
        return np.stack([np.log1p(forest.sizes), np.log1p(leaves), np.ones(len(forest))], axis=1).astype(np.float32)
