"""Two small systems for tests: shared characters of the LaTeX, and sizes of the trees."""

import numpy as np

from eqkin.evaluation.formulas import Float32s, FormulaSet
from eqkin.evaluation.systems.base import EmbeddingSystem, System


class Characters(System):
    """The share of characters that two formulas have in common."""

    name = "characters"
    title = "Shared characters"
    needs_latex = True

    def __init__(self) -> None:
        self.ranked = 0  # times it was asked

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        self.ranked += 1
        ours, theirs = [set(latex) for latex in queries.latex], [set(latex) for latex in formulas.latex]
        return np.array([[len(a & b) / len(a | b) for b in theirs] for a in ours], np.float32)


class Sizes(EmbeddingSystem):
    """A formula is the number of its nodes, and of its leaves."""

    name = "sizes"
    title = "Sizes of trees"

    def __init__(self, setting: int = 0) -> None:
        self.setting, self.encoded = setting, 0

    @property
    def settings(self) -> dict[str, int]:
        return {"setting": self.setting} if self.setting else {}

    def encode(self, formulas: FormulaSet) -> Float32s:
        self.encoded += 1
        forest = formulas.forest
        leaves = np.add.reduceat(forest.n_children == 0, forest.offsets[:-1], dtype=np.int64)
        return np.stack([np.log1p(forest.sizes), np.log1p(leaves), np.ones(len(forest))], axis=1).astype(np.float32)
