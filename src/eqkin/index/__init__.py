"""Vectors, structure and words of a library, ready to be searched. Derived data: all of it can be made again."""

from eqkin.index.networks import load_encoder
from eqkin.index.reader import VectorIndex
from eqkin.index.structure import TermIndex
from eqkin.index.updating import UpdateReport, ensure_current, update_index
from eqkin.index.words import TextIndex

__all__ = ["TermIndex", "UpdateReport", "VectorIndex", "TextIndex", "ensure_current", "load_encoder", "update_index"]
