"""Bags of terms: sparse counts in hashed columns, weighted by log tf-idf; the base of systems that learn nothing.

    weight(term, formula) = (1 + ln tf) (1 + ln((1 + n) / (1 + df)))      then divided by the row's length

with tf how often the term is in the formula, n the formulas of the collection, df those of them that have the term.
The collection is what is ranked, as in a search engine. A term is a 64-bit code; its first bits are its column, so no
dictionary is needed and vectors made at different times fit together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet, compute_products
from eqkin.trees.forest import iter_blocks
from eqkin.trees.hashing import Codes

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

TermBag = tuple[npt.NDArray[np.int64], Codes]  # formula of each term, counted from the first of them, and the term


class LogTfIdf(EmbeddingSystem):
    """A system whose vectors are weighted counts of terms.

    Attributes:
        bits: There are 2^bits columns.
    """

    bits: int = 20

    @abstractmethod
    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """How often each term is in each formula, (formulas, 2^bits)."""

    def encode(self, formulas: FormulaSet, collection: FormulaSet | None = None) -> csr_matrix:
        """Rows of length 1; the weights are those of the collection, by default of the formulas themselves."""
        counted = self.count_terms(formulas)
        return _fit_weights(counted if collection is None else self.count_terms(collection))(counted)

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Floats:
        """Cosines; the weights are those of the formulas."""
        counted = self.count_terms(formulas)
        weigh = _fit_weights(counted)
        return compute_products(weigh(self.count_terms(queries)), weigh(counted))


def import_optional(module: str) -> ModuleType:
    """A library that comes with the experiments; raises `BadInput` if it is not there."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = "train" if module == "torch" else "eval"
        raise BadInput(f"{module} is not installed ({error}); `pip install 'eqkin[{extra}]'`") from error


def count_matrix(
    offsets: npt.NDArray[np.int64], bags: Callable[[slice, slice], Iterable[TermBag]], bits: int
) -> csr_matrix:
    """Counts of terms, one row for each formula.

    Args:
        offsets: First node, or token, of each formula, and the end.
        bags: Gives terms of consecutive formulas: called with which formulas and which nodes they are.
        bits: Decides the number of columns.
    """
    sparse = import_optional("scipy.sparse")
    parts = []
    for formulas, nodes in iter_blocks(offsets):
        rows, codes = zip(*bags(formulas, nodes), strict=True)
        row, column = np.concatenate(rows), np.concatenate(codes) >> np.uint64(64 - bits)
        shape = (formulas.stop - formulas.start, 1 << bits)
        ones = np.ones(len(row), np.float32)
        part = sparse.csr_matrix((ones, (row.astype(np.int32), column.astype(np.int32))), shape)
        part.sum_duplicates()
        parts.append(part)
    if not parts:
        return sparse.csr_matrix((len(offsets) - 1, 1 << bits), dtype=np.float32)
    return sparse.vstack(parts, "csr")


def _fit_weights(collection: csr_matrix) -> Callable[[csr_matrix], Any]:
    """What turns counts into weights by the frequencies in a collection."""
    if not collection.shape[0]:
        return lambda counts: counts
    text = import_optional("sklearn.feature_extraction.text")
    weights = text.TfidfTransformer(sublinear_tf=True).fit(collection)
    return lambda counts: weights.transform(counts) if counts.shape[0] else counts
