"""Search: candidates, fusion, grouping, and why a hit was found."""

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

_HOME = {
    "Engine": "engine", "Filters": "results", "OversizedFormula": "query", "Preview": "query", "Problem": "query",
    "UnreadableFormula": "query",
}  # fmt: skip
__all__ = ["SearchEngine", "Filters", "OversizedFormula", "Preview", "Problem", "UnreadableFormula"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the records alone are cheap to import (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
