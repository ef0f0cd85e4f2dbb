"""Which trees a library's equations have, found fast also where there are millions."""

from __future__ import annotations

import sqlite3

import numpy as np
import numpy.typing as npt

from eqkin.library import LibraryFiles
from eqkin.library.database import read_generation

Integers = npt.NDArray[np.int64]

_RANGE_SIZES = (65_536, 4_096, 256)  # trees whose number is asked for at once; what has gaps is looked at more closely
_MAX_ATTEMPTS = 3


def list_tree_ids(library: LibraryFiles) -> Integers:
    """The numbers of the library's trees, ascending, of one moment.

    Numbers mostly follow each other, so most of them need not be read one by one. Between the questions a writer may
    commit: nobody waits for this. If one did, all is asked again, the last time with writers shut out.
    """
    connection = library.connection
    with library.translate_errors():
        for _ in range(_MAX_ATTEMPTS):
            before = read_generation(connection)
            found = _read_tree_ids(connection)
            if read_generation(connection) == before:
                return found
        connection.execute("BEGIN")
        try:
            return _read_tree_ids(connection)
        finally:
            connection.execute("ROLLBACK")


def _read_tree_ids(connection: sqlite3.Connection) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *_read_range(connection, -(2**63), 2**63 - 1, _RANGE_SIZES)])


def _read_range(connection: sqlite3.Connection, low: int, last: int, steps: tuple[int, ...]) -> list[Integers]:
    """The trees from one number to another, in pieces."""
    if not steps:
        rows = connection.execute("SELECT tree FROM equations WHERE tree BETWEEN ? AND ? ORDER BY tree", (low, last))
        return [np.fromiter((row[0] for row in rows), np.int64)]
    pieces: list[Integers] = []
    while low <= last:  # there may be wide gaps
        (first,) = connection.execute(
            "SELECT min(tree) FROM equations WHERE tree BETWEEN ? AND ?", (low, last)
        ).fetchone()
        if first is None:
            break
        first = int(first)
        end = min(first + steps[0] - 1, last)
        (count,) = connection.execute(
            "SELECT count(*) FROM equations WHERE tree BETWEEN ? AND ?", (first, end)
        ).fetchone()
        if count == end - first + 1:
            pieces.append(np.arange(first, end + 1))
        else:
            pieces += _read_range(connection, first, end, steps[1:])
        low = end + 1
    return pieces
