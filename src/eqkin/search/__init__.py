"""Search: read the query, retrieve, rerank, deduplicate, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.search.engine import SearchEngine
    from eqkin.search.query import OversizedFormula, Problem, UnreadableFormula
    from eqkin.search.results import Filters, SearchOptions

__all__ = [
    "Filters", "OversizedFormula", "Problem", "SearchEngine", "SearchOptions", "UnreadableFormula",
]  # fmt: skip
__getattr__: Callable[[str], Any] = load_lazily(
    __name__,
    dict.fromkeys(("OversizedFormula", "Problem", "UnreadableFormula"), "eqkin.search.query")
    | dict.fromkeys(("Filters", "SearchOptions"), "eqkin.search.results")
    | {"SearchEngine": "eqkin.search.engine"},
)
