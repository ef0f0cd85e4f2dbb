"""eqkin: a search engine for equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.errors import (
    BadInput,
    CorruptData,
    EqkinError,
    LibraryBusy,
    LimitReached,
    StorageFailed,
    TrainingFailed,
    Unreachable,
)
from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.api import Library
    from eqkin.encoder.encoder import Encoder
    from eqkin.search.results import Filters, Hit, Results, SearchOptions
    from eqkin.version import __version__

__all__ = [
    "BadInput",
    "CorruptData",
    "Encoder",
    "EqkinError",
    "Filters",
    "Hit",
    "Library",
    "LibraryBusy",
    "LimitReached",
    "Results",
    "SearchOptions",
    "StorageFailed",
    "TrainingFailed",
    "Unreachable",
    "__version__",
]

__getattr__: Callable[[str], Any] = load_lazily(
    __name__,
    {
        "Encoder": "eqkin.encoder.encoder",
        "Filters": "eqkin.search.results",
        "Hit": "eqkin.search.results",
        "Library": "eqkin.api",
        "Results": "eqkin.search.results",
        "SearchOptions": "eqkin.search.results",
        "__version__": "eqkin.version",
    },
)


def __dir__() -> list[str]:
    """List the module's names, including those that are not loaded yet."""
    return sorted({*globals(), *__all__})
