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

    exit_code = 1  # of the command line


class BadInput(EqkinError):
    """The input cannot be read as what it claims to be: a formula, a document, an archive, an option."""

    exit_code = 3


class LimitReached(EqkinError):
    """The input is larger, deeper or slower than `eqkin.limits` allows."""

    exit_code = 4


class CorruptData(EqkinError):
    """Data written by eqkin is damaged, foreign, or of an unknown format version."""

    exit_code = 5


class LibraryBusy(EqkinError):
    """Another process holds the library's writer lock."""

    exit_code = 6


class StorageFailed(EqkinError):
    """The disk refused a write or a read: full, read-only, or failing; what was stored before is intact."""

    exit_code = 7


class TrainingFailed(EqkinError):
    """Training diverged: the loss or a weight is NaN or infinite."""

    exit_code = 8


class Unreachable(EqkinError):
    """A required server (Milvus, a Ray cluster) does not answer; trying again may help."""

    exit_code = 9


def strip_control_chars(text: str, *, lines: bool = False) -> str:
    """Replace characters that would control the terminal by a mark; `lines`: except tabs and ends of lines.

    Messages contain names of files and other texts that someone else may have chosen.
    """
    return (_CONTROL_CHARS_IN_LINES if lines else _CONTROL_CHARS).sub("\ufffd", text)
