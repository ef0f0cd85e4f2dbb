"""The user's collection on disk."""

from eqkin.library.library import AddReport, Library

__all__ = ["AddReport", "Library"]
