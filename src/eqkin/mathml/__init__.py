"""LaTeX formulas to MathML trees: KaTeX in an embedded engine, with a second chance for what it refuses."""
