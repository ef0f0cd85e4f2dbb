"""The papers, equations and trees of a collection on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.library.files import LibraryFiles
    from eqkin.library.ingest import AddReport

__all__ = ["AddReport", "LibraryFiles"]
__getattr__: Callable[[str], Any] = load_lazily(
    __name__, {"AddReport": "eqkin.library.ingest", "LibraryFiles": "eqkin.library.files"}
)
