"""Trees of formulas: storage, MathML, normal form, and the features by which they are compared."""

from eqkin.trees.forest import Forest, ForestBuilder
from eqkin.trees.mathml import Node
from eqkin.trees.vocabulary import Vocabulary

__all__ = ["Forest", "ForestBuilder", "Node", "Vocabulary"]
