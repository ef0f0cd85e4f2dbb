"""Search: read the query, retrieve, rerank, deduplicate, explain."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine as SearchEngine
    from eqkin.search.query import OversizedFormula as OversizedFormula
    from eqkin.search.query import Preview as Preview
    from eqkin.search.query import Problem as Problem
    from eqkin.search.query import UnreadableFormula as UnreadableFormula
    from eqkin.search.results import Filters as Filters
    from eqkin.search.results import SearchOptions as SearchOptions

_MODULES = {
    "Filters": "results", "OversizedFormula": "query", "Preview": "query", "Problem": "query",
    "SearchEngine": "engine", "SearchOptions": "results", "UnreadableFormula": "query",
}  # fmt: skip
__all__ = [
    "Filters", "OversizedFormula", "Preview", "Problem", "SearchEngine", "SearchOptions", "UnreadableFormula",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package is cheap (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
