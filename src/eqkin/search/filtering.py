"""Filters as sets of trees: what a hit has to be, asked of the database once."""

from __future__ import annotations

import sqlite3
import unicodedata

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput
from eqkin.library import Library
from eqkin.search.results import Filters


def select_trees(library: Library, filters: Filters) -> npt.NDArray[np.int64] | None:
    """The trees that a search with these filters may give, in ascending order; None for all."""
    conditions, values = _build_conditions(library.connection, filters)
    if not conditions:
        return None
    query = (
        f"SELECT tree FROM equations WHERE paper IN (SELECT p.id FROM papers p WHERE {' AND '.join(conditions)}) "
        "AND tree IS NOT NULL ORDER BY tree"
    )
    with library.translate_errors():
        rows = library.connection.execute(query, values).fetchall()
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def select_papers(library: Library, filters: Filters) -> list[str] | None:
    """Keys of the papers that a search with these filters may give; None for all."""
    conditions, values = _build_conditions(library.connection, filters)
    if not conditions:
        return None
    with library.translate_errors():
        rows = library.connection.execute(f"SELECT p.key FROM papers p WHERE {' AND '.join(conditions)}", values)
        return [row[0] for row in rows]


def check_filters(filters: Filters) -> Filters:
    """The filters as a value that can be compared and kept, whatever sequences they were given as.

    Raises:
        BadInput: a year is no whole number, or a name is no text.
    """
    for name in ("first_year", "last_year"):
        year = getattr(filters, name)
        if year is not None and (isinstance(year, bool) or not isinstance(year, int) or abs(year) > 1_000_000):
            raise BadInput(f"{name} has to be a year, not {year!r}")
    texts: dict[str, tuple[str, ...]] = {}
    for name in ("fields", "authors", "papers", "without_papers"):
        given = getattr(filters, name)
        values = (given,) if isinstance(given, str) else tuple(given)
        if not all(isinstance(value, str) for value in values):
            raise BadInput(f"{name} have to be texts")
        texts[name] = tuple(value.encode("utf-8", "replace").decode() for value in values)
    return Filters(first_year=filters.first_year, last_year=filters.last_year, **texts)


def _build_conditions(connection: sqlite3.Connection, filters: Filters) -> tuple[list[str], list[str | int]]:
    conditions: list[str] = []
    values: list[str | int] = []

    def add(condition: str, *given: str | int) -> None:
        conditions.append(condition)
        values.extend(given)

    if filters.fields:
        chosen = "SELECT value FROM json_each(?)"
        add(f"EXISTS (SELECT 1 FROM json_each(p.fields) AS f WHERE f.value IN ({chosen}))", _to_json(filters.fields))
    if filters.first_year is not None:
        add("p.year >= ?", filters.first_year)
    if filters.last_year is not None:
        add("p.year <= ?", filters.last_year)
    if filters.authors:
        connection.create_function("has_author", 2, _has_author, deterministic=True)
        for author in filters.authors:
            add("has_author(p.authors, ?)", simplify_name(author))
    if filters.papers:
        add("p.key IN (SELECT value FROM json_each(?))", _to_json(filters.papers))
    if filters.without_papers:
        add("p.key NOT IN (SELECT value FROM json_each(?))", _to_json(filters.without_papers))
    return conditions, values


def _has_author(authors: str, part: str) -> bool:
    return any(part in simplify_name(name) for name in orjson.loads(authors))


def simplify_name(name: str) -> str:
    """A name without case and accents, so that Schrodinger finds Schrödinger."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return " ".join("".join(letter for letter in parts if not unicodedata.combining(letter)).split())


def _to_json(values: tuple[str, ...]) -> str:
    return orjson.dumps(values).decode()
