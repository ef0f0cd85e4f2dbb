"""Questions to a library's database that are not about records to show: the package has no other SELECT.

Every function translates SQLite's errors and closes its cursor, so that it keeps no writer waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.formulas.forest import Forest
from eqkin.library.database import JOIN_WHOLE, LATEX, PROSE
from eqkin.library.files import LibraryFiles

_RANGE_SIZES = (65_536, 4_096, 256)  # trees counted at once; a range with gaps is divided
_MAX_ATTEMPTS = 3

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PaperTrees:
    """A paper and the numbers of its trees."""

    id: int
    key: str
    content: str  # digest of all that is stored of it
    trees: tuple[int, ...]


@dataclass(frozen=True)
class PaperText:
    """The text of a paper, as LaTeX."""

    content: str  # digest of all that is stored of it
    title: str
    abstract: str
    sections: tuple[tuple[int, str, str], ...]  # id, heading, prose
    marks: dict[int, dict[int, int]] = field(default_factory=dict)  # key of the display by section and mark
    labels: dict[str, int] = field(default_factory=dict)  # key of the display by label


@dataclass(frozen=True)
class CorpusTables:
    """The data of a library that training needs, by the ids of its database."""

    papers: list[tuple[int, str, str]]  # id, key, work
    equations: Integers  # (n, 5): paper, section, number, tree, mark
    citations: Integers  # (n, 2): citing and cited paper
    segments: list[tuple[int, Forest]]  # number of the first tree, trees


def has_equations(library: LibraryFiles) -> bool:
    """Return whether any equation was converted."""
    return bool(_select(library, "SELECT 1 FROM equations WHERE tree IS NOT NULL LIMIT 1"))


def find_file_keys(library: LibraryFiles, name: str) -> list[str]:
    """Return the keys of papers whose last part, behind all folders, is a name."""
    rows = _select(
        library,
        "SELECT key FROM papers WHERE key >= 'file:' AND key < 'file;' AND substr(key, -?) IN (?, ?)",
        (len(name) + 1, f"/{name}", f"\\{name}"),
    )
    return [key for (key,) in rows]


def count_equations(library: LibraryFiles) -> tuple[int, int]:
    """Return the number of converted displays and of papers that contain one."""
    ((equations, papers),) = _select(
        library,
        "SELECT count(*), count(DISTINCT paper) FROM equations WHERE tree IS NOT NULL AND whole IS NULL AND NOT inline",
    )
    return equations, papers


def list_contents(library: LibraryFiles, keys: Iterable[str] | None = None, *, failed: bool = True) -> dict[str, str]:
    """Return the digest of each paper's content by the paper's key.

    Args:
        library: the library.
        keys: of the papers; None for all.
        failed: whether papers count that could not be read.
    """
    query = "SELECT key, content FROM papers WHERE (? OR failure = '')"
    values: tuple[Any, ...] = (failed,)
    if keys is not None:
        query += " AND key IN (SELECT value FROM json_each(?))"
        values = (failed, orjson.dumps(list(keys)).decode())
    return dict(map(tuple, _select(library, f"{query} ORDER BY id", values)))


def read_fields(library: LibraryFiles) -> dict[str, str]:
    """Return the first field of every paper, by key; empty if it has none."""
    rows = _select(library, "SELECT key, fields FROM papers")
    return {key: next(iter(orjson.loads(fields)), "") for key, fields in rows}


def list_paper_trees(library: LibraryFiles, after: int, limit: int) -> list[PaperTrees]:
    """Return papers whose id is higher than `after`, in the order of ids."""
    rows = _select(
        library,
        "SELECT p.id, p.key, p.content, json_group_array(e.tree) FROM papers p LEFT JOIN equations e ON e.paper = p.id "
        "WHERE p.id IN (SELECT id FROM papers WHERE id > ? ORDER BY id LIMIT ?) GROUP BY p.id ORDER BY p.id",
        (after, limit),
    )
    return [
        PaperTrees(number, key, content, tuple(tree for tree in orjson.loads(trees) if tree is not None))
        for number, key, content, trees in rows
    ]


def list_equation_sources(library: LibraryFiles) -> list[tuple[str, int, int, str]]:
    """Return paper's key, number, section's id and LaTeX of every converted equation."""
    return _select(
        library,
        f"SELECT p.key, e.number, e.section, {LATEX} FROM equations e JOIN papers p ON p.id = e.paper {JOIN_WHOLE} "
        "WHERE e.status IN ('converted', 'degraded') AND e.tree IS NOT NULL",
    )


def list_citations(library: LibraryFiles) -> list[tuple[str, str]]:
    """Return paper's key and cited id of every citation, in order."""
    return _select(library, "SELECT p.key, c.cited FROM citations c JOIN papers p ON p.id = c.paper ORDER BY 1, 2")


def read_sections(library: LibraryFiles, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return heading and prose of sections by their ids."""
    wanted = orjson.dumps(list(map(int, ids))).decode()
    rows = _select(
        library, f"SELECT id, title, {PROSE} FROM sections s WHERE id IN (SELECT value FROM json_each(?))", (wanted,)
    )
    return {number: (title, prose) for number, title, prose in rows}


def read_equation_text(library: LibraryFiles, key: str, number: int) -> tuple[str, str, str, str] | None:
    """Return heading and prose of an equation's section, title and abstract of its paper; None if it is not there."""
    rows = _select(
        library,
        f"SELECT s.title, {PROSE}, p.title, p.abstract FROM equations e "
        "JOIN sections s ON s.id = e.section JOIN papers p ON p.id = e.paper WHERE p.key = ? AND e.number = ?",
        (key, number),
    )
    return tuple(rows[0]) if rows else None


def read_paper_text(library: LibraryFiles, key: str) -> PaperText | None:
    """Return the text of a paper; None if it is not there."""
    papers = _select(library, "SELECT id, content, title, abstract FROM papers WHERE key = ?", (key,))
    if not papers:
        return None
    ((number, content, title, abstract),) = papers
    sections = _select(library, f"SELECT id, title, {PROSE} FROM sections s WHERE paper = ? ORDER BY number", (number,))
    marks: dict[int, dict[int, int]] = {}
    labels: dict[str, int] = {}
    for section, mark, equation, label in _select(
        library,
        "SELECT section, mark, tree, label FROM equations "
        "WHERE paper = ? AND tree IS NOT NULL AND whole IS NULL AND NOT inline ORDER BY number",
        (number,),
    ):
        marks.setdefault(section, {})[mark] = equation
        labels.setdefault(label, equation)
    return PaperText(content, title, abstract, tuple(map(tuple, sections)), marks, labels)


def list_section_papers(library: LibraryFiles, sections: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return key and content of the papers that have some sections; sections that are gone are left out."""
    rows = _select(
        library,
        "SELECT s.id, p.key, p.content FROM sections s JOIN papers p ON p.id = s.paper "
        "WHERE s.id IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(sections)).decode(),),
    )
    return {section: (key, content) for section, key, content in rows}


@contextmanager
def read_corpus(library: LibraryFiles) -> Iterator[CorpusTables]:
    """Read the tables that training needs in a transaction that lasts until the block ends.

    Within the block, the other functions see the same state of the library.
    """
    with library.translate_errors():
        connection = library.connection
        connection.execute("BEGIN")
        try:
            papers = list(map(tuple, connection.execute("SELECT id, key, work FROM papers")))
            equations = connection.execute(
                "SELECT paper, section, number, tree, mark FROM equations "
                "WHERE status IN ('converted', 'degraded') AND tree IS NOT NULL AND whole IS NULL AND NOT inline"
            )
            table = np.fromiter(chain.from_iterable(equations), np.int64).reshape(-1, 5)
            citations = connection.execute(
                "SELECT c.paper, p.id FROM citations c JOIN papers p ON p.key = 'arxiv:' || c.cited"
            )
            links = np.fromiter(chain.from_iterable(citations), np.int64).reshape(-1, 2)
            # opened before the transaction ends: until then no writer deletes them
            yield CorpusTables(papers, table, links, library.open_segments())
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def list_tree_ids(library: LibraryFiles) -> Integers:
    """Return the numbers of the library's trees of one moment, in ascending order.

    Most numbers follow each other, so that ranges are counted instead of read. A writer may commit between two counts:
    no writer waits for this function. Then everything is counted again, the last time in a transaction.
    """
    with library.translate_errors():
        for _ in range(_MAX_ATTEMPTS):
            before = library.read_generation()
            found = _read_range(library, -(2**63), 2**63 - 1, _RANGE_SIZES)
            if library.read_generation() == before:
                return np.concatenate([np.zeros(0, np.int64), *found])
        library.connection.execute("BEGIN")
        try:
            found = _read_range(library, -(2**63), 2**63 - 1, _RANGE_SIZES)
            return np.concatenate([np.zeros(0, np.int64), *found])
        finally:
            library.connection.execute("ROLLBACK")


def _read_range(library: LibraryFiles, low: int, last: int, sizes: tuple[int, ...]) -> list[Integers]:
    """Return the trees from `low` to `last`, in pieces of at most `sizes[0]`."""
    execute = library.connection.execute
    if not sizes:
        rows = execute("SELECT tree FROM equations WHERE tree BETWEEN ? AND ? ORDER BY tree", (low, last))
        return [np.fromiter((row[0] for row in rows), np.int64)]
    pieces: list[Integers] = []
    while low <= last:  # there may be wide gaps
        (first,) = execute("SELECT min(tree) FROM equations WHERE tree BETWEEN ? AND ?", (low, last)).fetchone()
        if first is None:
            break
        first = int(first)
        end = min(first + sizes[0] - 1, last)
        (count,) = execute("SELECT count(*) FROM equations WHERE tree BETWEEN ? AND ?", (first, end)).fetchone()
        if count == end - first + 1:
            pieces.append(np.arange(first, end + 1))
        else:
            pieces += _read_range(library, first, end, sizes[1:])
        low = end + 1
    return pieces


def _select(library: LibraryFiles, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
    with library.translate_errors():
        return library.connection.execute(query, values).fetchall()
