"""The interface of everything that is compared: `fit(corpus)`, then `encode(formulas)` or `rank(queries, formulas)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqkin.evaluation.formulas import Float32s, FormulaSet, Matrix, compute_products, normalize_rows

if TYPE_CHECKING:
    from eqkin.learning.data import Corpus


class System(ABC):
    """Something that says how related formulas are.

    Attributes:
        name: Short name for options and files: letters, digits and hyphens.
        title: Name for tables.
        needs_latex: Whether it reads LaTeX rather than trees.
        learned_from: Digest of the corpus it was fitted on; with the settings it says what its scores depend on.
        is_reproducible: Whether name, settings and corpus determine its scores, so that they can be kept.
        tuned_on: Names of sets that it was trained or chosen on: its scores there are too good.
    """

    name: str
    title: str
    needs_latex: bool = False
    learned_from: str = ""
    is_reproducible: bool = True
    tuned_on: tuple[str, ...] = ()

    def fit(self, corpus: Corpus, folder: Path) -> None:  # noqa: B027 - many have nothing to learn
        """Learn from a corpus and save to `folder`; an earlier fit in the folder is loaded instead."""

    def list_warnings(self, sets: Sequence[str]) -> list[str]:
        """List warnings about its scores on some sets, given by their names."""
        tuned = ", ".join(name for name in sets if name in self.tuned_on)
        return [f"{self.title}: trained or tuned on {tuned}; its scores there are too good."] if tuned else []

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the fit besides the corpus, as JSON; empty if there is nothing to fit."""
        return {}

    @abstractmethod
    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score each formula for each query, (queries, formulas); larger is more related."""


class EmbeddingSystem(System):
    """A system that gives each formula a vector and compares vectors by cosine."""

    @abstractmethod
    def encode(self, formulas: FormulaSet) -> Matrix:
        """Compute a vector for each formula, dense or sparse, of any length."""

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute the cosine of each query's vector and each formula's."""
        return compute_products(normalize_rows(self.encode(queries)), normalize_rows(self.encode(formulas)))
