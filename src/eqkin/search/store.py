"""`Store` and `Desk`: all that searching asks of a collection of equations, wherever that lies.

There are two: `eqkin.search.shelves` reads a library on disk (SQLite, memory-mapped vectors, faiss), `eqkin.backends.milvus`
a Milvus server. Equations have whole numbers for keys; what the numbers are is the store's affair.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.library.records import EquationRecord, Filters, PaperPage, PaperRecord
from eqkin.library.records import EquationRef as EquationRef
from eqkin.library.records import Facets as Facets
from eqkin.trees import Forest

Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint32]
Keys: TypeAlias = npt.NDArray[np.int64]
NO_FILTERS = Filters()


class NoSuchEquation(BadInput):
    """An equation is asked for that is not there any more."""


class Snapshot(Protocol):
    """One moment of a collection, read by one thread at a time.

    All methods raise `Unreachable` if the store is on another machine that does not answer, and what opening it would.
    """

    @property
    def version(self) -> Hashable:
        """Another value whenever the collection may have changed."""

    @property
    def missing(self) -> int:
        """Equations that cannot be found yet."""

    def __len__(self) -> int:
        """Equations that can be found."""

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """The equations nearest to each vector.

        Args:
            vectors: (q, d), of length 1.
            k: hits a query.
            filters: what a hit has to be.

        Returns:
            Cosines (q, k), best first, and keys (q, k); 0 and -1 where there are fewer hits than `k`.
        """

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """The equations that have most of some terms: sums of the weights of those they have, best first, and keys.

        At most `k`, none without a term in common; nothing at all where the store does not know terms.
        """

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Equations around which stand the words, with how well these fit, in [0, 1]; raises `BadInput` if it cannot.

        At most a few thousand, those that fit best.
        """

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Where equations stand; those that are gone are left out."""

    def get_vectors(self, keys: Keys) -> Floats:
        """Their unit vectors, in the order of the keys; raises `NoSuchEquation`."""

    def get_trees(self, keys: Keys) -> Forest:
        """Their trees, in the order of the keys; raises `NoSuchEquation`."""

    def get_records(self, keys: Iterable[int]) -> dict[int, EquationRecord]:
        """All that is shown of them; those that are gone are left out. `tree` is the key."""

    def get_equation(self, name: str) -> EquationRecord:
        """The equation `paper-key#number`, or `paper-key#label`; raises `BadInput` if there is none.

        One that could not be read when it was added has the key -1.
        """

    def get_paper(self, key: str) -> PaperPage:
        """A paper and all of its equations; raises `BadInput` if there is none."""

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Papers by their keys; those that are not there are left out."""

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """Keys of the equations of papers that can be found, in the order in which they stand in a paper."""

    def sample_keys(self, limit: int) -> Keys:
        """At most about `limit` equations, evenly spread over the collection, ascending; the same every time."""

    def count_facets(self) -> Facets:
        """Equations of the whole collection by field (most frequent first) and by year (in order)."""


class SearchBackend(Protocol):
    """A collection that can be searched, shared by threads."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """A desk to read at, for one thread, until the context ends."""

    def close(self) -> None:
        """Let files and connections go."""
