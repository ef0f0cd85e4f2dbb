"""Vectors, structure and words of a library, ready to be searched. Derived data: all of it can be made again."""

from eqkin.index.networks import encoder_of
from eqkin.index.reader import VectorIndex
from eqkin.index.structure import StructureIndex
from eqkin.index.updating import UpdateReport, update
from eqkin.index.words import Words

__all__ = ["StructureIndex", "UpdateReport", "VectorIndex", "Words", "encoder_of", "update"]
