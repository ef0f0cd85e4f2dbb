"""LaTeX as text: outlines of documents, macros, display environments, citations, typed formulas."""
