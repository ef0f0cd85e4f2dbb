"""The papers, equations and trees of a collection on disk."""

from eqkin.library.files import LibraryFiles
from eqkin.library.ingest import AddReport

__all__ = ["AddReport", "LibraryFiles"]
