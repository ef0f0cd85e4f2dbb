"""The error family of eqkin: every error a caller may want to catch is one of these.

A message says what happened, where, and what to do about it.
"""

from __future__ import annotations


class EqkinError(Exception):
    """Base of all errors eqkin raises on purpose."""


class BadInput(EqkinError):
    """The input cannot be read as what it claims to be: a formula, a document, an archive, an option."""


class LimitReached(EqkinError):
    """The input is larger, deeper or slower than `eqkin.limits` allows."""


class CorruptData(EqkinError):
    """Data written by eqkin is damaged, foreign, or of an unknown format version."""


class LibraryBusy(EqkinError):
    """Another process holds the library's writer lock."""


class StorageFailed(EqkinError):
    """The disk refused a write or a read: full, read-only, or failing; what was stored before is intact."""


class TrainingFailed(EqkinError):
    """A run cannot go on: its loss or its weights are no numbers any more."""


class Unreachable(EqkinError):
    """A server that is needed (Milvus, a Ray cluster) does not answer; it may in a moment."""
