"""The user's collection on disk."""

from eqkin.library.library import Library
from eqkin.library.merging import AddReport

__all__ = ["AddReport", "Library"]
