"""The interface of all that is compared: `fit(corpus)`, then `encode(formulas)` or `rank(queries, formulas)`."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from eqkin.evaluation.store import ResultCache
    from eqkin.training.data import Corpus

Floats: TypeAlias = npt.NDArray[np.float32]
Matrix: TypeAlias = "Floats | csr_matrix"

_MIN_CACHED_FORMULAS = 5_000  # formulas whose vectors are worth keeping


@dataclass(frozen=True, eq=False)
class FormulaSet:
    """Formulas as trees, and as LaTeX where that is known."""

    forest: Forest
    latex: Sequence[str] | None = None  # one for each tree

    def __len__(self) -> int:
        return len(self.forest)

    def select(self, places: npt.NDArray[np.int64]) -> FormulaSet:
        """Some of them, in that order."""
        latex = None if self.latex is None else [self.latex[place] for place in places.tolist()]
        return FormulaSet(self.forest.select(places), latex)


class System(ABC):
    """Something that says how related formulas are.

    Attributes:
        name: Short, for options and file names: letters, digits and hyphens.
        title: For tables.
        needs_latex: Whether it reads LaTeX rather than trees.
        learned_from: Digest of the corpus it was fitted on; with the settings it says what its scores depend on.
        tuned_on: Names of sets that it learned from, or by whose scores something of it was chosen: its scores there
            are too good.
        store: Where vectors are kept that are worth it.
    """

    name: str
    title: str
    needs_latex: bool = False
    learned_from: str = ""
    tuned_on: tuple[str, ...] = ()
    cache: ResultCache | None = None

    def fit(self, corpus: Corpus, folder: Path) -> None:  # noqa: B027 - many have nothing to learn
        """Learn what it needs from a corpus and keep it in `folder`; what is there already is loaded instead."""

    def list_warnings(self, sets: Sequence[str]) -> list[str]:
        """What is to be said of its scores on some sets, given by their names."""
        tuned = ", ".join(name for name in sets if name in self.tuned_on)
        return (
            [f"{self.title}: it learned from {tuned}, or was chosen by it; its scores there do not count."]
            if tuned
            else []
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What decides what it learns, as JSON; with the corpus it tells fitted systems apart. {}: learns nothing."""
        return {}

    @abstractmethod
    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Floats:
        """How related each formula is to each query, (queries, formulas); larger is more related."""


class EmbeddingSystem(System):
    """A system that gives each formula a vector; related is what has a large cosine.

    Attributes:
        slow: Whether vectors of many formulas are worth keeping.
    """

    slow: bool = False

    @abstractmethod
    def encode(self, formulas: FormulaSet) -> Matrix:
        """Vectors, one a row, dense or sparse; not necessarily of length 1."""

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Floats:
        """The cosine of each query's vector and each formula's."""
        return compute_products(
            normalize_rows(self.encode_cached(queries)), normalize_rows(self.encode_cached(formulas))
        )

    def encode_cached(self, formulas: FormulaSet) -> Matrix:
        """What `encode` gives; vectors of many formulas are looked up, or kept, where that is slow."""
        if self.cache is None or not self.slow or len(formulas) < _MIN_CACHED_FORMULAS:
            return self.encode(formulas)
        key = {
            "settings": self.settings,
            "learned_from": self.learned_from,
            "formulas": compute_forest_digest(formulas.forest),
        }
        return self.cache.get_or_encode(self.name, key, lambda: np.asarray(self.encode(formulas), np.float32))


def compute_forest_digest(forest: Forest) -> str:
    """Hex SHA-256 of some trees."""
    total = hashlib.sha256()
    for strings in (forest.tags, forest.attributes, forest.texts):
        total.update("\0".join(strings).encode("utf-8", "surrogatepass") + b"\1")
    for array in (forest.tag, forest.attribute, forest.text, forest.n_children, forest.offsets):
        total.update(np.ascontiguousarray(array, "<i8").tobytes())
    return total.hexdigest()


def normalize_rows(vectors: Matrix) -> Matrix:
    """Rows divided by their lengths; rows of zeros stay."""
    if isinstance(vectors, np.ndarray):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    from sklearn.preprocessing import normalize

    return normalize(vectors).astype(np.float32)


def compute_products(left: Matrix, right: Matrix) -> Floats:
    """All inner products of two sets of rows, (left, right)."""
    result = left @ right.T
    return np.asarray(result if isinstance(result, np.ndarray) else result.toarray(), np.float32)


def compute_row_products(left: Matrix, right: Matrix) -> Floats:
    """The inner product of each row with the other set's row at the same place."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", left, right), np.float32)
    from scipy.sparse import csr_matrix

    return np.asarray(csr_matrix(left).multiply(right).sum(axis=1), np.float32).ravel()
