"""LaTeX as text: macros, sections, display environments, citations. Knows nothing of files, archives or networks."""

from eqkin.latex.outline import Document, Equation, Section, parse

__all__ = ["Document", "Equation", "Section", "parse"]
