"""The index of a library: dense vectors, sparse terms and text. Derived data: all of it can be built again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.index.manifest import IndexManifest, IndexSettings, load_encoder
    from eqkin.index.reader import VectorIndex
    from eqkin.index.terms import TermIndex
    from eqkin.index.text import TextIndex
    from eqkin.index.update import UpdateReport, ensure_current, update_index
    from eqkin.index.verify import verify_index

__all__ = [
    "IndexManifest",
    "IndexSettings",
    "TermIndex",
    "TextIndex",
    "UpdateReport",
    "VectorIndex",
    "ensure_current",
    "load_encoder",
    "update_index",
    "verify_index",
]
__getattr__: Callable[[str], Any] = load_lazily(
    __name__,
    dict.fromkeys(("IndexManifest", "IndexSettings", "load_encoder"), "eqkin.index.manifest")
    | dict.fromkeys(("UpdateReport", "ensure_current", "update_index"), "eqkin.index.update")
    | {
        "TermIndex": "eqkin.index.terms",
        "TextIndex": "eqkin.index.text",
        "VectorIndex": "eqkin.index.reader",
        "verify_index": "eqkin.index.verify",
    },
)
