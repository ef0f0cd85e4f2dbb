"""Filters: which papers a search looks at."""

from __future__ import annotations

import sqlite3
import unicodedata
from dataclasses import dataclass

import orjson

from eqkin.errors import BadInput
from eqkin.library.database import INTACT_TREES, TREES_OF_PAPER
from eqkin.library.files import Integers, LibraryFiles, join_keys, to_json


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
