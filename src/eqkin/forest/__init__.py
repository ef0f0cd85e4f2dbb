"""Many trees as flat breadth-first arrays, with the vocabularies that turn them into features."""

from eqkin.forest.forest import Forest, ForestBuilder
from eqkin.forest.vocabulary import Vocabulary

__all__ = ["Forest", "ForestBuilder", "Vocabulary"]
