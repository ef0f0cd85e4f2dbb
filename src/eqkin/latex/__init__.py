"""LaTeX as text: outlines of documents, macros, display environments, citations, typed formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.latex.outline import Document, Equation, Section, parse

__all__ = ["Document", "Equation", "Section", "parse"]
__getattr__: Callable[[str], Any] = load_lazily(__name__, dict.fromkeys(__all__, "eqkin.latex.outline"))
