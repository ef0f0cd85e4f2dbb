"""The index of a library: dense vectors, sparse terms and text. Derived data: all of it can be built again."""

from eqkin.index.manifest import IndexManifest, IndexSettings, load_encoder
from eqkin.index.reader import VectorIndex
from eqkin.index.terms import TermIndex
from eqkin.index.text import TextIndex
from eqkin.index.update import UpdateReport, ensure_current, update_index
from eqkin.index.verify import verify_index

__all__ = [
    "IndexManifest",
    "IndexSettings",
    "TermIndex",
    "TextIndex",
    "UpdateReport",
    "VectorIndex",
    "ensure_current",
    "load_encoder",
    "update_index",
    "verify_index",
]
