"""Many trees as flat breadth-first arrays, with the vocabularies that turn them into features."""

from eqkin.trees.forest import Forest, ForestBuilder
from eqkin.trees.vocabulary import Vocabulary

__all__ = ["Forest", "ForestBuilder", "Vocabulary"]
