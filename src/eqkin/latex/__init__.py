"""LaTeX as text: outlines of documents, macros, display environments, citations, typed formulas."""

from eqkin.latex.outline import Document, Equation, Section, parse

__all__ = ["Document", "Equation", "Section", "parse"]
