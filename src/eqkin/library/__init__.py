"""The papers, equations and trees of a collection on disk."""

from eqkin.library.files import LibraryFiles
from eqkin.library.merging import AddReport

__all__ = ["AddReport", "LibraryFiles"]
