"""Questions to a library's database that are not about records to show: the package has no other SELECT.

Every function translates SQLite's errors and closes its cursor, so that it keeps no writer waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import orjson

from eqkin.errors import CorruptData
from eqkin.library.database import (
    EQUATIONS_OF_PAPER,
    HAS_TREE,
    INTACT_EQUATION,
    INTACT_PAPER,
    INTACT_SECTION,
    SECTIONS_OF_PAPER,
)
from eqkin.library.files import Integers, LibraryFiles, to_json


@dataclass(frozen=True)
class PaperText:
    """The text of a paper, as LaTeX."""

    # Digest of all that is stored of it.
    content: str
    title: str
    abstract: str
    # Id, heading, prose.
    sections: tuple[tuple[int, str, str], ...]
    # Key of the display by section and mark.
    marks: dict[int, dict[int, int]] = field(default_factory=dict)
    # Key of the display by label.
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CorpusTables:
    """The data of a library that training needs, by the ids of its database."""

    # Id, key, work.
    papers: list[tuple[int, str, str]]
    # (n, 5): paper, section, number, key, mark.
    equations: Integers
    # (n, 2): citing and cited paper.
    citations: Integers


def has_equations(library: LibraryFiles) -> bool:
    """Return whether any equation was converted."""
    return bool(library.select("SELECT 1 FROM trees LIMIT 1"))


def find_file_keys(library: LibraryFiles, name: str) -> list[str]:
    """Return the keys of papers whose last part, behind all folders, is a name."""
    rows = library.select(
        "SELECT key FROM papers WHERE key >= 'file:' AND key < 'file;' AND substr(key, -?) IN (?, ?)",
        len(name) + 1,
        f"/{name}",
        f"\\{name}",
    )
    return [key for (key,) in rows]


def count_equations(library: LibraryFiles) -> tuple[int, int]:
    """Return the number of converted displays and of papers that contain one."""
    library.check_rows("papers")
    ((equations, papers),) = library.select("SELECT total(n_displays), total(n_displays > 0) FROM papers")
    return int(equations), int(papers)


def list_contents(library: LibraryFiles, keys: Iterable[str] | None = None, *, failed: bool = True) -> dict[str, str]:
    """Return the digest of each paper's content by the paper's key.

    Args:
        library: The library.
        keys: Of the papers; None for all.
        failed: Whether papers count that could not be read.
    """
    query = "SELECT key, content FROM papers p WHERE (? OR failure = '')"
    if keys is None:
        library.check_rows("papers")
        rows = library.select(f"{query} ORDER BY id", failed)
    else:
        query += f" AND key IN (SELECT value FROM json_each(?)) AND {INTACT_PAPER} ORDER BY id"
        rows = library.select(query, failed, to_json(keys))
    return {key: content for key, content in rows}


def list_citations(library: LibraryFiles) -> list[tuple[str, str]]:
    """Return paper's key and cited id of every citation, in order."""
    rows = library.select(f"SELECT key, cites FROM papers p WHERE {INTACT_PAPER} ORDER BY key")
    return [(key, cited) for key, cites in rows for cited in sorted(orjson.loads(cites))]


def read_sections(library: LibraryFiles, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return heading and prose of sections by their ids."""
    rows = library.select(
        "SELECT id, title, decompress_text(prose) FROM sections s "
        f"WHERE id IN (SELECT value FROM json_each(?)) AND {INTACT_SECTION}",
        to_json(map(int, ids)),
    )
    return {number: (title, prose) for number, title, prose in rows}


class PaperRows(NamedTuple):
    """The rows of a paper, with all columns."""

    # With `paper_title` and `unpacked_macros`.
    paper: sqlite3.Row
    # With the prose as `text`.
    sections: list[sqlite3.Row]
    # With `has_tree`.
    equations: list[sqlite3.Row]


def read_paper_rows(library: LibraryFiles, condition: str, value: int | str) -> PaperRows | None:
    """Read a paper; None if there is none.

    Args:
        library: The library.
        condition: Which paper, such as `p.key IS ?`.
        value: The value in the condition.

    Raises:
        CorruptData: A row is damaged or lost.
    """
    with library.hold_state():
        papers = library.select(
            "SELECT p.*, p.title AS paper_title, decompress(p.macros) AS unpacked_macros FROM papers p "
            f"WHERE {condition} AND {INTACT_PAPER}",
            value,
        )
        if not papers:
            return None
        paper = papers[0]
        sections = library.select(
            f"SELECT s.*, decompress_text(s.prose) AS text FROM papers p JOIN sections s ON {SECTIONS_OF_PAPER} "
            f"WHERE p.id IS ? AND {INTACT_SECTION} ORDER BY s.id",
            paper["id"],
        )
        equations = library.select(
            f"SELECT e.*, {HAS_TREE} AS has_tree FROM papers p JOIN equations e ON {EQUATIONS_OF_PAPER} "
            f"WHERE p.id IS ? AND {INTACT_EQUATION} ORDER BY e.id",
            paper["id"],
        )
    if (len(sections), len(equations)) != (paper["n_sections"], paper["n_equations"]):
        raise CorruptData(f"{library.folder}: a part of {paper['key']} is lost; run `eqkin verify`")
    return PaperRows(paper, sections, equations)


def read_paper_text(library: LibraryFiles, key: str) -> PaperText | None:
    """Return the text of a paper; None if it is not there."""
    rows = read_paper_rows(library, "p.key IS ?", key)
    if rows is None:
        return None
    marks: dict[int, dict[int, int]] = {}
    labels: dict[str, int] = {}
    for equation in rows.equations:
        if equation["has_tree"] and equation["whole"] is None and not equation["inline"]:
            marks.setdefault(equation["section"], {})[equation["mark"]] = equation["id"]
            labels.setdefault(equation["label"], equation["id"])
    sections = tuple((row["id"], row["title"], row["text"]) for row in rows.sections)
    paper = rows.paper
    return PaperText(paper["content"], paper["title"], paper["abstract"], sections, marks, labels)


def find_sections(library: LibraryFiles, ids: Iterable[int]) -> set[int]:
    """Return those of some ids that sections have."""
    query = f"SELECT id FROM sections s WHERE id IN (SELECT value FROM json_each(?)) AND {INTACT_SECTION}"
    return {number for (number,) in library.select(query, to_json(ids))}


@contextmanager
def read_corpus(library: LibraryFiles) -> Iterator[CorpusTables]:
    """Read the tables that training needs in a transaction that lasts until the block ends.

    Within the block, the other functions see the same state of the library.
    """
    library.check_rows("papers")
    with library.hold_state():
        execute = library.connection.execute
        papers = list(map(tuple, execute("SELECT id, key, work FROM papers")))
        equations = execute(
            "SELECT e.paper, e.section, e.number, e.id, e.mark FROM equations e "
            f"WHERE {INTACT_EQUATION} AND {HAS_TREE} AND e.whole IS NULL AND NOT e.inline"
        )
        table = np.fromiter(chain.from_iterable(equations), np.int64).reshape(-1, 5)
        citations = execute(
            "SELECT p.id, cited.id FROM papers p, json_each(p.cites) c "
            "JOIN papers cited ON cited.key = 'arxiv:' || c.value"
        )
        links = np.fromiter(chain.from_iterable(citations), np.int64).reshape(-1, 2)
        yield CorpusTables(papers, table, links)
