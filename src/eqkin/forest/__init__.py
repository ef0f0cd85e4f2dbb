"""Many trees as flat breadth-first arrays, with the vocabularies that turn them into features."""

from .forest import Forest, ForestBuilder
from .vocabulary import Vocabulary

__all__ = ["Forest", "ForestBuilder", "Vocabulary"]
