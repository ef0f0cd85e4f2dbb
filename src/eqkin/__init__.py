"""eqkin: a search engine for equations."""

from __future__ import annotations

from importlib import import_module
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

if TYPE_CHECKING:
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

_LAZY = {  # public name -> module that defines it
    "Encoder": "eqkin.encoder.encoder",
    "Filters": "eqkin.search.results",
    "Hit": "eqkin.search.results",
    "Library": "eqkin.api",
    "Results": "eqkin.search.results",
    "SearchOptions": "eqkin.search.results",
    "__version__": "eqkin.version",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import eqkin` stays cheap (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    """List the module's names, including those that are not loaded yet."""
    return sorted({*globals(), *__all__})
