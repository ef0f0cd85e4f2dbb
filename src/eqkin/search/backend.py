"""`SearchBackend` and `Snapshot`: all that a search asks of a collection of equations, wherever it is stored.

There are two implementations: `eqkin.search.local` reads a library on disk (SQLite, memory-mapped vectors),
`eqkin.cluster.milvus_snapshot` a Milvus server. Equations have whole numbers as keys; each backend chooses its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.hashing import hash_strings
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import extract_norms
from eqkin.index.index import EquationFeatures
from eqkin.library.queries import Filters
from eqkin.library.records import EquationRecord, PaperPage, PaperRecord
from eqkin.library.records import EquationRef as EquationRef
from eqkin.library.records import Facets as Facets
from eqkin.library.records import PaperCount as PaperCount
from eqkin.library.references import EquationColumns, hash_latex

Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint32]
Keys: TypeAlias = npt.NDArray[np.int64]
NO_FILTERS = Filters()


class NoSuchEquation(BadInput):
    """An equation is not in the collection any more."""


class Snapshot(Protocol):
    """A consistent, read-only view of a collection. Not thread-safe.

    A backend that does not know names, words or forms inherits the methods that return nothing.

    All methods raise `Unreachable` if the backend is a server that does not answer, and what opening it raises.
    """

    @property
    def version(self) -> Hashable:
        """Identifies the content: another value whenever the collection may have changed."""

    @property
    def missing(self) -> int:
        """Equations that cannot be found yet."""

    def __len__(self) -> int:
        """Equations that can be found."""

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations nearest to each vector.

        Args:
            vectors: (q, d), of length 1.
            k: Hits per query.
            filters: Conditions on hits.

        Returns:
            Cosines (q, k), best first, and keys (q, k); 0 and -1 where there are fewer hits than `k`.
        """

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the `k` equations with the largest weight of common terms; return these weights, best first, and keys.

        Weights are normalised by the size of the equation (`eqkin.index.features.normalise_length`).
        Equations without a common term are not found; nothing is, if the collection has no terms.
        """

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Find equations whose surrounding text matches, with scores in [0, 1]: the best few thousand at most.

        Raises:
            BadInput: the backend has no text search.
        """

    def count_same_form(
        self, operators: OperatorForest, filters: Filters = NO_FILTERS, exclude: int = -1
    ) -> list[PaperCount] | None:
        """Count all equations of the same form as the first operator tree, by paper; None if that is not possible.

        The form is that of the whole formula: with its names, consistently renamed, or with terms moved.

        Args:
            operators: The query's operator tree.
            filters: Conditions on equations.
            exclude: Key of an equation that does not count.
        """
        return None

    def find_named(self, name: str, filters: Filters = NO_FILTERS) -> set[int]:
        """Find equations with a name, at most some dozens; nothing, if the collection has no names."""
        return set()

    def get_names(self, keys: Iterable[int]) -> dict[int, str]:
        """Return the names of those equations that have one, by key."""
        return {}

    def match_name(self, text: str) -> str:
        """Return the equation name that `text` matches, or an empty string."""
        return ""

    def complete_name(self, text: str, k: int) -> list[tuple[str, int]]:
        """Return the most frequent names with a word that begins with `text`, and how many equations have each."""
        return []

    def knows_word(self, word: str) -> bool:
        """Return whether the collection's text has a word."""
        return False

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Return references to equations; those that are gone are left out."""

    def get_features(self, keys: Keys, *, operators: bool = True) -> EquationFeatures:
        """Return all that a search compares of equations, in the order of the keys; those that are gone are left out.

        Args:
            keys: Of equations that can be found, ascending.
            operators: Whether operator trees and norms are wanted.
        """
        refs = list(self.get_refs(keys.tolist()).values())
        papers = hash_strings(ref.paper for ref in refs).view(np.int64)
        numbers = np.array([(ref.key, ref.family) for ref in refs], np.int64).reshape(-1, 2).T
        latex = hash_latex([ref.latex for ref in refs])
        found = numbers[0]
        trees = self.get_operators(found if operators else found[:0])
        return EquationFeatures(
            columns=EquationColumns(keys=found, paper=papers, display=numbers[1], latex=latex),
            vectors=self.get_vectors(found),
            operators=trees,
            norms=extract_norms(trees),
        )

    def get_paper_facets(self, columns: EquationColumns) -> dict[int, PaperCount]:
        """Return the paper of each equation, by the equation's key; those that are gone are left out."""
        refs = self.get_refs(columns.keys.tolist()).values()
        return {ref.key: PaperCount(ref.paper, ref.fields, ref.year, ref.lang, 1) for ref in refs}

    def get_vectors(self, keys: Keys) -> Floats:
        """Return unit vectors, in the order of the keys; raises `NoSuchEquation`."""

    def get_trees(self, keys: Keys) -> Forest:
        """Return trees, in the order of the keys; raises `NoSuchEquation`."""

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of trees, in the order of the keys; raises `NoSuchEquation`."""

    def get_operators(self, keys: Keys) -> OperatorForest:
        """Return operator trees, in the order of the keys; raises `NoSuchEquation`."""

    def get_records(
        self, keys: Iterable[int], trees: Mapping[int, NodeColumns] | None = None
    ) -> dict[int, EquationRecord]:
        """Return all that is shown of equations; those that are gone are left out. Their `tree` is the key.

        Args:
            keys: Of the equations.
            trees: Trees by key that are known already and need not be read again.
        """

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation `paper-key#number` or `paper-key#label`; raises `BadInput` if there is none.

        An equation that could not be read when it was added has the key -1.
        """

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper and all of its equations; raises `BadInput` if there is none."""

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Return papers by their keys; those that do not exist are left out."""

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """List the equations of papers that can be found, paper by paper, in their order."""

    def count_facets(self) -> Facets:
        """Count the equations of the whole collection by field (most frequent first) and by year (in order)."""


class SearchBackend(Protocol):
    """A collection that can be searched, shared by threads."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a view for one thread, until the context ends."""

    def close(self) -> None:
        """Close files and connections."""
