"""Conversion of LaTeX formulas to trees: KaTeX in an embedded engine, with repairs of what it refuses."""
