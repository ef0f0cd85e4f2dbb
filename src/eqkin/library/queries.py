"""Questions to a library's database that are not about records to show: filters, contents, texts, counts.

Every function translates SQLite's errors and closes its cursor, so that it keeps no writer waiting.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.library.database import (
    EQUATIONS_OF_PAPER,
    HAS_TREE,
    INTACT_EQUATION,
    INTACT_PAPER,
    INTACT_SECTION,
    INTACT_TREES,
    SECTIONS_OF_PAPER,
    TREES_OF_PAPER,
)
from eqkin.library.files import Integers, LibraryFiles, join_keys, to_json

# More are counted, but not listed.
_MAX_UNKNOWN_COMMANDS = 50


@dataclass(frozen=True)
class Filters:
    """Conditions that a hit must meet; empty means any hit."""

    # The paper has one of these subject areas.
    fields: tuple[str, ...] = ()
    # Years of publication.
    first_year: int | None = None
    last_year: int | None = None
    # Each a part of some author's name, whatever its case and accents; all are needed.
    authors: tuple[str, ...] = ()
    # Keys of the only papers to search.
    papers: tuple[str, ...] = ()
    # Keys of papers to leave out.
    without_papers: tuple[str, ...] = ()
    # The paper is in one of these languages, as codes: "en", "de".
    languages: tuple[str, ...] = ()


def check_filters(filters: Filters) -> Filters:
    """Return the filters with tuples for sequences, so that they can be compared and cached.

    Raises:
        BadInput: a year is not a whole number, or a name is not a string.
    """
    for name in ("first_year", "last_year"):
        year = getattr(filters, name)
        if year is not None and (isinstance(year, bool) or not isinstance(year, int) or abs(year) > 1_000_000):
            raise BadInput(f"{name} must be a year, got {year!r}")
    texts: dict[str, tuple[str, ...]] = {}
    for name in ("fields", "authors", "papers", "without_papers", "languages"):
        given = getattr(filters, name)
        values = (given,) if isinstance(given, str) else tuple(given)
        if not all(isinstance(value, str) for value in values):
            raise BadInput(f"{name} must be strings")
        texts[name] = tuple(value.encode("utf-8", "replace").decode() for value in values)
    return Filters(first_year=filters.first_year, last_year=filters.last_year, **texts)


def select_trees(library: LibraryFiles, filters: Filters) -> Integers | None:
    """Return the keys of the equations with a tree that pass the filters, in ascending order; None for all."""
    conditions, values = build_conditions(library.connection, filters)
    if not conditions:
        return None
    library.check_rows("papers")
    query = (
        f"SELECT t.first, t.keys FROM papers p JOIN trees t ON {TREES_OF_PAPER} "
        f"WHERE {' AND '.join(conditions)} AND {INTACT_TREES} ORDER BY t.first"
    )
    return join_keys(library.select(query, *values))


def select_papers(library: LibraryFiles, filters: Filters) -> list[str] | None:
    """Return the keys of the papers that pass the filters; None for all."""
    conditions, values = build_conditions(library.connection, filters)
    if not conditions:
        return None
    library.check_rows("papers")
    return [key for (key,) in library.select(f"SELECT p.key FROM papers p WHERE {' AND '.join(conditions)}", *values)]


def build_conditions(connection: sqlite3.Connection, filters: Filters) -> tuple[list[str], list[str | int]]:
    """Return the SQL conditions of filters on the paper `p`, and their values.

    The caller checks the rows of papers before: a damaged one could fail a condition, and be left out.
    """
    conditions: list[str] = []
    values: list[str | int] = []

    def add(condition: str, *given: str | int) -> None:
        conditions.append(condition)
        values.extend(given)

    if filters.fields:
        chosen = "SELECT value FROM json_each(?)"
        add(f"EXISTS (SELECT 1 FROM json_each(p.fields) AS f WHERE f.value IN ({chosen}))", to_json(filters.fields))
    if filters.first_year is not None:
        add("p.year >= ?", filters.first_year)
    if filters.last_year is not None:
        add("p.year <= ?", filters.last_year)
    if filters.authors:
        connection.create_function("has_author", 2, _has_author, deterministic=True)
        for author in filters.authors:
            add("has_author(p.authors, ?)", simplify_name(author))
    lists = {"p.key IN": filters.papers, "p.lang IN": filters.languages, "p.key NOT IN": filters.without_papers}
    for condition, names in lists.items():
        if names:
            add(f"{condition} (SELECT value FROM json_each(?))", to_json(names))
    return conditions, values


def _has_author(authors: str, part: str) -> bool:
    return any(part in simplify_name(name) for name in orjson.loads(authors))


def simplify_name(name: str) -> str:
    """Return a name without case and accents, so that Schrodinger finds Schrödinger."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return " ".join("".join(letter for letter in parts if not unicodedata.combining(letter)).split())


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


def compute_statistics(library: LibraryFiles) -> dict[str, Any]:
    """Count papers, displays by outcome, rows, inline formulas, failures, fields, kinds, languages and bytes."""
    execute = library.connection.execute

    def count(query: str) -> int:
        return int(execute(query).fetchone()[0])

    def count_groups(query: str) -> dict[str, int]:
        return dict(sorted(map(tuple, execute(query)), key=lambda pair: (-pair[1], pair[0])))

    library.check_rows("papers")
    library.check_rows("equations")
    with library.translate_errors():
        displays = "whole IS NULL AND NOT inline"
        status = count_groups(f"SELECT status, count(*) FROM equations WHERE {displays} GROUP BY 1")
        fields: Counter[str] = Counter()
        for (value,) in execute("SELECT fields FROM papers WHERE failure = ''"):
            names = orjson.loads(value)
            fields[parse_subject_area(names[0]) if names else "(none)"] += 1
        commands: Counter[str] = Counter()
        for (names,) in execute("SELECT unknown FROM equations WHERE unknown != ''"):
            commands.update(names.split(" "))
        return {
            "library": str(library.folder),
            "papers": count("SELECT count(*) FROM papers WHERE failure = ''"),
            "papers_with_equations": count("SELECT count(DISTINCT paper) FROM trees"),
            "papers_failed": count_groups("SELECT failure, count(*) FROM papers WHERE failure != '' GROUP BY 1"),
            "sections": count("SELECT count(*) FROM sections"),
            "citations": count("SELECT total(json_array_length(cites)) FROM papers"),
            "equations": {
                "found": sum(n for name, n in status.items() if name != "diagram"),
                "converted": status.get("converted", 0) + status.get("degraded", 0),
                "degraded": status.get("degraded", 0),
                "repaired": count(f"SELECT count(*) FROM equations e WHERE {displays} AND repaired AND {HAS_TREE}"),
                "diagrams": status.get("diagram", 0),
                "rows": count(f"SELECT count(*) FROM equations e WHERE whole IS NOT NULL AND {HAS_TREE}"),
                "inline": count(f"SELECT count(*) FROM equations e WHERE inline AND {HAS_TREE}"),
                "failed": count_groups(
                    f"SELECT reason, count(*) FROM equations WHERE {displays} AND status = 'failed' GROUP BY 1"
                ),
            },
            "unknown_commands": dict(commands.most_common(_MAX_UNKNOWN_COMMANDS)),
            "fields": dict(fields.most_common()),
            "kinds": count_groups("SELECT kind, count(*) FROM papers WHERE failure = '' GROUP BY 1"),
            "languages": count_groups("SELECT lang, count(*) FROM papers WHERE failure = '' AND lang != '' GROUP BY 1"),
            "bytes": sum(path.stat().st_size for path in library.folder.rglob("*") if path.is_file()),
            "converter": asdict(library.converter),
        }


def parse_subject_area(field: str) -> str:
    """Return the subject area of an arXiv category (`math.AG` -> `math`); other fields are returned unchanged."""
    return field.split(".", 1)[0]
