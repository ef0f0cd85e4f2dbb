"""What tells equations apart in a list of hits: paper, display and LaTeX, as numbers that an index keeps in columns."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eqkin.library.database import INTACT_EQUATION
from eqkin.library.files import LibraryFiles, to_json

_SPACING = re.compile(
    r"\\(?:[,;:!>\s]|label\s*\{[^{}\0]*\}"
    r"|(?:nonumber|notag|displaystyle|quad|qquad|left|right|[Bb]igg?[lr]?)(?![A-Za-z]))"
)
_PUNCTUATION = ",.;:"

Integers = npt.NDArray[np.int64]


class EquationColumns(NamedTuple):
    """Equations, of which only equality matters."""

    # Of the equations.
    keys: Integers
    # The number of its paper, or a hash.
    paper: Integers
    # The number of the display that it is, or is a row of.
    display: Integers
    # A hash of its LaTeX without spacing; 0 if it has none.
    latex: Integers

    def select(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> EquationColumns:
        """Return some of the equations."""
        return EquationColumns(*(column[rows] for column in self))

    def append(self, others: EquationColumns) -> EquationColumns:
        """Return these equations and others."""
        return EquationColumns(*map(np.concatenate, zip(self, others, strict=True)))


NO_EQUATIONS = EquationColumns(*np.zeros((4, 0), np.int64))


def read_columns(library: LibraryFiles, keys: Integers) -> EquationColumns:
    """Return what is known of equations, in the order of their keys; those that are not in the library are left out."""
    rows = library.select(
        "SELECT e.id, e.paper, coalesce(e.whole, e.number), e.latex FROM equations e "
        f"WHERE e.id IN (SELECT value FROM json_each(?)) AND {INTACT_EQUATION}",
        to_json(keys.tolist()),
    )
    found, paper, display = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3).T
    columns = EquationColumns(found, paper, display, hash_latex([row[3] for row in rows]))
    place = {key: at for at, key in enumerate(found.tolist())}
    return columns.select(np.array([place[key] for key in keys.tolist() if key in place], np.int64))


def hash_latex(formulas: Sequence[str]) -> Integers:
    """Return hashes of 32 bits of LaTeX without spacing; 0 for nothing."""
    encoded = (latex.encode("utf-8", "surrogatepass") for latex in normalise_latex(formulas))
    return np.array([zlib.crc32(latex) or 1 if latex else 0 for latex in encoded], np.int64)


def normalise_latex(formulas: Sequence[str]) -> list[str]:
    """Remove spacing commands, labels, and the sentence's punctuation at the end of each formula."""
    # One substitution is faster than many.
    joined = "\0".join(latex.replace("\0", "") for latex in formulas)
    words = _SPACING.sub("", joined).replace("~", " ").split()
    return [latex.rstrip(_PUNCTUATION) for latex in "".join(words).split("\0")] if formulas else []
