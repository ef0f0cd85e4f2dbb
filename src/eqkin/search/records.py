"""Rows of a library as the records a search gives; only what is shown is read."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import orjson

from eqkin.errors import BadInput
from eqkin.latex.prose import EQUATION_MARK, around, plain_text
from eqkin.library import Library
from eqkin.mathml.tree import to_mathml
from eqkin.search.results import EquationRecord, PaperPage, PaperRecord
from eqkin.search.store import Facets, Place

_REACH = 3_000  # characters of LaTeX around an equation that are read as prose
_PAPER = "p.id AS paper_id, p.key, p.title AS paper_title, p.authors, p.year, p.fields, p.origin"
_EQUATION = f"""
SELECT e.tree, e.number, e.mark, e.latex, e.label, e.section, s.title AS heading, s.latex AS prose, {_PAPER}
FROM equations e JOIN papers p ON p.id = e.paper JOIN sections s ON s.id = e.section
"""
_PLACE = "SELECT e.tree, p.key, e.number, e.latex, p.year, p.fields FROM equations e JOIN papers p ON p.id = e.paper"


def papers_named(library: Library, keys: Iterable[str]) -> dict[str, PaperRecord]:
    """The records of papers by their keys."""
    rows = library.connection.execute(
        f"SELECT {_PAPER} FROM papers p WHERE p.key IN (SELECT value FROM json_each(?))", (_json(keys),)
    ).fetchall()
    return {row["key"]: _paper(row) for row in rows}


def trees_of_papers(library: Library, keys: Iterable[str]) -> list[int]:
    """The trees of papers, in the order in which their equations stand."""
    rows = library.connection.execute(
        "SELECT e.tree FROM papers p JOIN equations e ON e.paper = p.id "
        "WHERE p.key IN (SELECT value FROM json_each(?)) AND e.tree IS NOT NULL ORDER BY p.id, e.number",
        (_json(keys),),
    ).fetchall()
    return [row[0] for row in rows]


@lru_cache(maxsize=10_000)
def _names(listed: str) -> tuple[str, ...]:
    return tuple(orjson.loads(listed))


def facets(library: Library) -> Facets:
    """All equations by their papers' fields, most frequent first, and by year, in order."""
    rows = library.connection.execute(
        "SELECT p.fields, p.year, count(e.tree) FROM papers p JOIN equations e ON e.paper = p.id GROUP BY p.id"
    ).fetchall()
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for names, year, count in rows:
        fields.update(dict.fromkeys(_names(names), count))
        if year is not None:
            years[year] += count
    return dict(fields.most_common()), dict(sorted(years.items()))


def places_of_trees(library: Library, trees: Iterable[int]) -> dict[int, Place]:
    """Where trees stand; those no longer in the library are left out."""
    rows = library.connection.execute(
        f"{_PLACE} WHERE e.tree IN (SELECT value FROM json_each(?))", (_json(map(int, trees)),)
    ).fetchall()
    return {row[0]: Place(row[0], row[1], row[2], row[3], row[4], _names(row[5])) for row in rows}


def trees_in_sections(library: Library, sections: Iterable[int]) -> dict[int, int]:
    """The trees of sections, each with its section."""
    rows = library.connection.execute(
        "SELECT tree, section FROM equations WHERE section IN (SELECT value FROM json_each(?)) AND tree IS NOT NULL",
        (_json(map(int, sections)),),
    ).fetchall()
    return {row[0]: row[1] for row in rows}


def equations(library: Library, trees: Iterable[int]) -> dict[int, EquationRecord]:
    """The records of trees, with MathML and the prose around."""
    rows = library.connection.execute(
        f"{_EQUATION} WHERE e.tree IN (SELECT value FROM json_each(?))", (_json(map(int, trees)),)
    ).fetchall()
    return {row["tree"]: _equation(library, row, _paper(row)) for row in rows}


def equation_named(library: Library, name: str) -> EquationRecord:
    """The equation `paper-key#number`, or `paper-key#label`.

    Raises:
        BadInput: there is none.
    """
    key, _, last = name.rpartition("#")
    where, value = ("e.number = ?", int(last)) if last.isdecimal() and len(last) < 10 else ("e.label = ?", last)
    row = library.connection.execute(
        f"{_EQUATION} WHERE p.key = ? AND {where} ORDER BY e.number LIMIT 1", (key, value)
    ).fetchone()
    if row is None:
        raise BadInput(f"the library has no equation {name[:200]!r}; an id is PAPER#NUMBER, as a search prints it")
    return _equation(library, row, _paper(row))


def paper_page(library: Library, key: str) -> PaperPage:
    """A paper and all of its equations; one that did not convert has no MathML and tree -1.

    Raises:
        BadInput: the library has no such paper.
    """
    head = library.connection.execute(f"SELECT {_PAPER}, p.abstract FROM papers p WHERE p.key = ?", (key,)).fetchone()
    if head is None:
        raise BadInput(f"the library has no paper {key[:200]!r}")
    paper = _paper(head)
    rows = library.connection.execute(
        f"{_EQUATION} WHERE e.paper = ? ORDER BY s.number, e.number", (head["paper_id"],)
    ).fetchall()
    sections: dict[int, tuple[str, list[EquationRecord]]] = {}
    for row in rows:
        _, members = sections.setdefault(row["section"], (row["heading"], []))
        members.append(_equation(library, row, paper))
    listed = tuple((heading, tuple(members)) for heading, members in sections.values())
    return PaperPage(paper, head["abstract"], listed)


def _paper(row: sqlite3.Row) -> PaperRecord:
    return PaperRecord(
        row["key"],
        row["paper_title"],
        tuple(orjson.loads(row["authors"])),
        row["year"],
        _names(row["fields"]),
        row["origin"],
    )


def _equation(library: Library, row: sqlite3.Row, paper: PaperRecord) -> EquationRecord:
    tree = row["tree"]
    before, after = prose_around(row["prose"], row["mark"])
    return EquationRecord(
        id=f"{paper.key}#{row['number']}",
        tree=-1 if tree is None else tree,
        latex=row["latex"],
        mathml="" if tree is None else to_mathml(library.tree(tree)),
        label=row["label"],
        section=row["heading"],
        before=before,
        after=after,
        paper=paper,
    )


def prose_around(latex: str, mark: int) -> tuple[str, str]:
    """The prose before and after an equation; reads only what stands between its neighbours, not the whole section."""
    at = -1
    for _ in range(mark + 1):
        at = latex.find(EQUATION_MARK, at + 1)
        if at < 0:
            return "", ""
    start, end = latex.rfind(EQUATION_MARK, 0, at) + 1, latex.find(EQUATION_MARK, at + 1)
    end = end if end >= 0 else len(latex)
    if at - start > _REACH:  # cut between paragraphs, so that no inline formula loses its first half
        start = max(latex.find("\n\n", at - _REACH, at), at - _REACH)
    if end - at > _REACH:
        paragraph = latex.rfind("\n\n", at, at + _REACH)
        end = paragraph if paragraph > 0 else at + _REACH
    return around(plain_text(latex[start:end]), 0)


def _json(values: Iterable[int | str]) -> str:
    return orjson.dumps(list(values)).decode()
