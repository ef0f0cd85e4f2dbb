"""Trees of formulas: storage, MathML, normal form, and the features by which they are compared."""

from eqkin.formulas.forest import Forest
from eqkin.formulas.mathml import Node

__all__ = ["Forest", "Node"]
