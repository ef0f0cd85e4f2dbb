"""The errors of eqkin: every error that a caller may want to catch is one of these.

A message says what happened, where, and what to do about it.
"""

from __future__ import annotations

import re

# these can take control of a terminal, or reverse text
_CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_CONTROL_CHARS_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class EqkinError(Exception):
    """Base of all errors that eqkin raises on purpose."""


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
    """Training diverged: the loss or a weight is NaN or infinite."""


class Unreachable(EqkinError):
    """A required server (Milvus, a Ray cluster) does not answer; trying again may help."""


def strip_control_chars(text: str, *, lines: bool = False) -> str:
    """Replace characters that would control the terminal by a mark; `lines`: except tabs and ends of lines.

    Messages contain names of files and other texts that someone else may have chosen.
    """
    return (_CONTROL_CHARS_IN_LINES if lines else _CONTROL_CHARS).sub("\ufffd", text)
