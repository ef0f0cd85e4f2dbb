"""Records of papers and equations as a search shows them.

Only what is shown is read. Equations are identified by their keys.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas.mathml import NodeColumns, to_mathml
from eqkin.latex.macros import MacroTables, expand_macros, open_macros
from eqkin.latex.prose import EQUATION_MARK, INLINE_FORMULA, extract_context, to_plain_text
from eqkin.library.database import (
    EQUATIONS_OF_PAPER,
    HAS_TREE,
    INTACT_EQUATION,
    INTACT_PAPER,
    INTACT_SECTION,
    TREES_OF_PAPER,
)
from eqkin.library.files import LibraryFiles, to_json
from eqkin.library.queries import Filters, build_conditions, read_paper_rows

# Characters of LaTeX around an equation that are read as prose.
_CONTEXT_CHARS = 3_000
_PAPER_COLUMNS = (
    "p.key, p.title AS paper_title, p.authors, p.year, p.fields, p.origin, p.lang, p.doi, p.url, p.cite_key"
)
_SELECT_REFS = (
    "SELECT e.id, p.key, e.number, e.latex, p.year, p.fields, p.lang, coalesce(e.whole, -1) "
    "FROM equations e JOIN papers p ON p.id = e.paper "
    f"WHERE e.id IN (SELECT value FROM json_each(?)) AND {INTACT_EQUATION} AND {INTACT_PAPER}"
)
_SELECT_EQUATIONS = f"""
SELECT e.id, {HAS_TREE} AS has_tree, e.number, e.mark, e.latex, e.label, e.printed, e.whole, e.inline,
    s.title AS heading, decompress_text(s.prose) AS text, decompress(p.macros) AS unpacked_macros, {_PAPER_COLUMNS}
FROM equations e JOIN papers p ON p.id = e.paper JOIN sections s ON s.id = e.section
WHERE {INTACT_EQUATION} AND {INTACT_PAPER} AND {INTACT_SECTION}
"""

# Equations by field, by year.
Facets: TypeAlias = tuple[dict[str, int], dict[int, int]]


@dataclass(frozen=True)
class PaperRecord:
    """A paper as a search shows it."""

    key: str
    title: str
    authors: tuple[str, ...]
    year: int | None
    fields: tuple[str, ...]
    # Where it was read from.
    origin: str
    # A code such as "en".
    lang: str = ""
    doi: str = ""
    # Where it can be read: at arXiv, by its DOI, or where its source says.
    url: str = ""
    # Of its entry in the user's bibliography.
    cite_key: str = ""


@dataclass(frozen=True)
class EquationRecord:
    """An equation as a search shows it."""

    # Paper's key and number: "arxiv:1706.03762#3".
    id: str
    # Its number in the library; -1 if it is not there or did not convert.
    tree: int
    latex: str
    # Empty if it did not convert.
    mathml: str
    label: str
    section: str
    # The text just before it.
    before: str
    after: str
    paper: PaperRecord
    # Its number as printed: "3.6".
    printed: str = ""
    # Of a row: the id of its display.
    whole: str | None = None
    inline: bool = False


@dataclass(frozen=True)
class PaperPage:
    """A paper with its equations by section."""

    paper: PaperRecord
    abstract: str
    # Heading, equations.
    sections: tuple[tuple[str, tuple[EquationRecord, ...]], ...]


class EquationRef(NamedTuple):
    """An equation's key, paper and facets: enough to rank, deduplicate, group and count it."""

    key: int
    # The paper's key.
    paper: str
    # Within the paper.
    number: int
    latex: str
    year: int | None
    fields: tuple[str, ...]
    lang: str = ""
    # Of a row: the number of its display, -1 for none.
    whole: int = -1

    @property
    def family(self) -> int:
        """The number of the display that this equation is, or is a row of."""
        return self.number if self.whole < 0 else self.whole

    @property
    def name(self) -> str:
        """The equation's id, as users see it."""
        return f"{self.paper}#{self.number}"


@dataclass(frozen=True)
class PaperCount:
    """A paper's facets, and how many of some equations it has."""

    key: str
    fields: tuple[str, ...]
    year: int | None
    lang: str
    equations: int


def get_papers(library: LibraryFiles, keys: Iterable[str]) -> dict[str, PaperRecord]:
    """Return records of papers by key."""
    rows = library.select(
        f"SELECT {_PAPER_COLUMNS} FROM papers p WHERE p.key IN (SELECT value FROM json_each(?)) AND {INTACT_PAPER}",
        to_json(keys),
    )
    return {row["key"]: _build_paper(row) for row in rows}


@lru_cache(maxsize=10_000)
def _parse_names(listed: str) -> tuple[str, ...]:
    return tuple(orjson.loads(listed))


def count_facets(library: LibraryFiles) -> Facets:
    """Count equations by field of their paper, most frequent first, and by year, in order."""
    library.check_rows("papers")
    rows = library.select(
        f"SELECT p.fields, p.year, sum(length(t.keys)) / 4 FROM papers p JOIN trees t ON {TREES_OF_PAPER} GROUP BY p.id"
    )
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for names, year, count in rows:
        fields.update(dict.fromkeys(_parse_names(names), count))
        if year is not None:
            years[year] += count
    return dict(fields.most_common()), dict(sorted(years.items()))


def get_refs(library: LibraryFiles, keys: Iterable[int]) -> dict[int, EquationRef]:
    """Return references to equations; one that is not in the library is left out."""
    wanted = list(map(int, keys))
    rows = library.select(_SELECT_REFS, to_json(wanted))
    _require_removed(library, wanted, [row[0] for row in rows])
    return {
        key: EquationRef(key, paper, number, latex, year, _parse_names(fields), lang, whole)
        for key, paper, number, latex, year, fields, lang, whole in rows
    }


def _require_removed(library: LibraryFiles, keys: Sequence[int], found: Sequence[int]) -> None:
    """Raise `CorruptData` if the row of an equation was not found although its tree is there."""
    missing = np.array(sorted({*keys} - {*found}), np.int64)
    if len(missing) and len(lost := library.find_tree_keys(missing)):
        raise CorruptData(f"{library.folder}: the equation {lost[0]} is lost; run `eqkin verify`")


def get_paper_facets(library: LibraryFiles, papers: Iterable[int]) -> dict[int, PaperCount]:
    """Return what facets count of papers, by their numbers, as if each had one equation; unknown ones are left out."""
    rows = library.select(
        "SELECT id, key, fields, year, lang FROM papers p "
        f"WHERE id IN (SELECT value FROM json_each(?)) AND {INTACT_PAPER}",
        to_json(papers),
    )
    return {row[0]: PaperCount(row[1], _parse_names(row[2]), row[3], row[4], 1) for row in rows}


def count_by_paper(library: LibraryFiles, keys: Iterable[int], filters: Filters) -> list[PaperCount]:
    """Count equations by the paper that contains them, of the papers that pass the filters."""
    conditions, values = build_conditions(library.connection, filters)
    where = "".join(f" AND {condition}" for condition in conditions)
    library.check_rows("papers")
    rows = library.select(
        "SELECT p.key, p.fields, p.year, p.lang, count(*) FROM equations e JOIN papers p ON p.id = e.paper "
        f"WHERE e.id IN (SELECT value FROM json_each(?)) AND {INTACT_EQUATION}{where} GROUP BY p.id",
        to_json(map(int, keys)),
        *values,
    )
    return [PaperCount(row[0], _parse_names(row[1]), row[2], row[3], row[4]) for row in rows]


def get_trees_in_sections(library: LibraryFiles, sections: Iterable[int]) -> dict[int, int]:
    """Return the keys of the equations of sections that have a tree, each with its section."""
    rows = library.select(
        "SELECT s.id, s.equations, p.first_equation FROM sections s JOIN papers p ON p.id = s.paper "
        f"WHERE s.id IN (SELECT value FROM json_each(?)) AND {INTACT_SECTION} AND {INTACT_PAPER}",
        to_json(map(int, sections)),
    )
    return {first + number: section for section, numbers, first in rows for number in orjson.loads(numbers)}


def get_equations(
    library: LibraryFiles, keys: Iterable[int], nodes: Mapping[int, NodeColumns] | None = None
) -> dict[int, EquationRecord]:
    """Return the records of equations, with MathML and context.

    Args:
        library: Where they are.
        keys: Their keys.
        nodes: Trees by key that are known already and need not be read.
    """
    wanted = list(map(int, keys))
    rows = library.select(f"{_SELECT_EQUATIONS} AND e.id IN (SELECT value FROM json_each(?))", to_json(wanted))
    _require_removed(library, wanted, [row["id"] for row in rows])
    known = _read_nodes(library, rows, nodes)
    return {row["id"]: _build_equation(row, row, SectionProse(row["text"], row["heading"]), known) for row in rows}


def _read_nodes(
    library: LibraryFiles, rows: Sequence[sqlite3.Row], known: Mapping[int, NodeColumns] | None = None
) -> dict[int, NodeColumns]:
    """Return the trees of equations; those that are not known are read at once."""
    nodes = dict(known or {})
    missing = [row["id"] for row in rows if row["has_tree"] and row["id"] not in nodes]
    nodes.update(zip(missing, library.get_nodes(missing) if missing else (), strict=True))
    return nodes


def get_equation(library: LibraryFiles, name: str) -> EquationRecord:
    """Return the equation `paper-key#number` or `paper-key#label`; raises `BadInput` if there is none."""
    key, _, last = name.rpartition("#")
    condition, value = ("e.number IS ?", int(last)) if last.isdecimal() and len(last) < 10 else ("e.label IS ?", last)
    query = f"{_SELECT_EQUATIONS} AND p.key IS ? AND {EQUATIONS_OF_PAPER} AND {condition}"
    rows = library.select(f"{query} ORDER BY e.whole IS NULL, e.id LIMIT 1", key, value)
    if not rows:
        raise BadInput(f"the library has no equation {name[:200]!r}; an id is PAPER#NUMBER, as a search prints it")
    row = rows[0]
    return _build_equation(row, row, SectionProse(row["text"], row["heading"]), _read_nodes(library, rows))


def get_paper_page(library: LibraryFiles, key: str, *, only_displays: bool = True) -> PaperPage:
    """Return a paper and its displays; one that did not convert has no MathML and the tree -1.

    Without `only_displays`, rows and inline formulas follow the displays of their section.

    Raises:
        BadInput: The library has no such paper.
    """
    with library.hold_state():
        rows = read_paper_rows(library, "p.key IS ?", key)
        if rows is None:
            raise BadInput(f"the library has no paper {key[:200]!r}")
        shown = [row for row in rows.equations if not only_displays or (row["whole"] is None and not row["inline"])]
        nodes = _read_nodes(library, shown)
    sections = {row["id"]: SectionProse(row["text"], row["title"]) for row in rows.sections}
    listed: dict[int, list[EquationRecord]] = {number: [] for number in sections}
    for row in shown:
        listed[row["section"]].append(_build_equation(row, rows.paper, sections[row["section"]], nodes))
    page = tuple((sections[number].heading, tuple(records)) for number, records in listed.items() if records)
    return PaperPage(_build_paper(rows.paper), rows.paper["abstract"], page)


def _build_paper(row: sqlite3.Row) -> PaperRecord:
    return PaperRecord(
        row["key"],
        row["paper_title"],
        tuple(orjson.loads(row["authors"])),
        row["year"],
        _parse_names(row["fields"]),
        row["origin"],
        row["lang"],
        row["doi"],
        make_url(row["key"], row["doi"], row["url"]),
        row["cite_key"],
    )


def make_url(key: str, doi: str, url: str) -> str:
    """Return where a paper can be read, "" if only its file is known."""
    if key.startswith("arxiv:"):
        return f"https://arxiv.org/abs/{key.removeprefix('arxiv:')}"
    return f"https://doi.org/{doi}" if doi else url


def _build_equation(
    row: sqlite3.Row, head: sqlite3.Row, section: SectionProse, nodes: Mapping[int, NodeColumns]
) -> EquationRecord:
    """Build a record from the rows of an equation and of its paper, which may be the same."""
    macros = open_macros(head["unpacked_macros"])
    before, after = section.read_context(row["mark"], inline=bool(row["inline"]), macros=macros)
    paper, key = _build_paper(head), row["id"]
    return EquationRecord(
        id=f"{paper.key}#{row['number']}",
        tree=key if row["has_tree"] else -1,
        latex=row["latex"],
        mathml=to_mathml(nodes[key]) if key in nodes else "",
        label=row["label"],
        section=section.heading,
        before=before,
        after=after,
        paper=paper,
        printed=row["printed"],
        whole=None if row["whole"] is None else f"{paper.key}#{row['whole']}",
        inline=bool(row["inline"]),
    )


class SectionProse:
    """The prose of a section, with a mark in the place of each display."""

    def __init__(self, latex: str, heading: str = "") -> None:
        self.heading: str = heading
        self._latex = latex
        # The places of the first marks, as far as they were looked for.
        self._marks: list[int] = []

    def read_context(self, mark: int, macros: MacroTables | None = None, *, inline: bool = False) -> tuple[str, str]:
        """Return the text before and after an equation; reads only up to its neighbours, not the whole section.

        Args:
            mark: The number of its mark; of an inline formula its offset.
            macros: The macros of the paper; they are expanded in the text.
            inline: Whether it is an inline formula.
        """
        latex = self._latex
        if inline:
            found = INLINE_FORMULA.match(latex, mark)
            at, end_at = mark, found.end() if found else -1
        else:
            at = self._find_mark(mark)
            end_at = at + 1
        if at < 0 or end_at < 0:
            return "", ""
        start, end = latex.rfind(EQUATION_MARK, 0, at) + 1, latex.find(EQUATION_MARK, end_at)
        end = end if end >= 0 else len(latex)
        # Cut between paragraphs, so that no inline formula loses its first half.
        if at - start > _CONTEXT_CHARS:
            start = max(latex.find("\n\n", at - _CONTEXT_CHARS, at), at - _CONTEXT_CHARS)
        if end - end_at > _CONTEXT_CHARS:
            paragraph = latex.rfind("\n\n", end_at, end_at + _CONTEXT_CHARS)
            end = paragraph if paragraph > 0 else end_at + _CONTEXT_CHARS
        text = latex[start:at] + EQUATION_MARK + latex[end_at:end]
        return extract_context(to_plain_text(expand_macros(text, macros.find) if macros else text), 0)

    def _find_mark(self, number: int) -> int:
        """Return the place of a mark, -1 if there are fewer."""
        while len(self._marks) <= number:
            at = self._latex.find(EQUATION_MARK, self._marks[-1] + 1 if self._marks else 0)
            if at < 0:
                return -1
            self._marks.append(at)
        return self._marks[number]


def export_equations(
    library: LibraryFiles, *, failed: bool = False, mathml: bool = True, numbers: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield each equation as a dictionary, with paper, section and context.

    Args:
        library: The library.
        failed: Also those that failed.
        mathml: With MathML.
        numbers: With their keys, as `tree`.
    """
    library.check_rows("papers")
    with library.translate_errors():
        papers = [row[0] for row in library.connection.execute("SELECT id FROM papers ORDER BY id").fetchall()]
        # One paper at a time, so that no reader's cursor stays open and keeps a writer waiting.
        for paper in papers:
            with library.hold_state():
                rows = read_paper_rows(library, "p.id IS ?", paper)
                nodes = _read_nodes(library, rows.equations) if rows and mathml else {}
            # A writer may have removed the paper meanwhile.
            if rows is None:
                continue
            sections = {row["id"]: SectionProse(row["text"], row["title"]) for row in rows.sections}
            for row in rows.equations:
                if failed or row["has_tree"]:
                    record = _build_equation(row, rows.paper, sections[row["section"]], nodes)
                    described = _describe_equation(row, record)
                    yield described | {"tree": row["id"] if row["has_tree"] else None} if numbers else described


def _describe_equation(row: sqlite3.Row, record: EquationRecord) -> dict[str, Any]:
    described = {
        "id": record.id,
        "paper": record.paper.key,
        "title": record.paper.title,
        "authors": record.paper.authors,
        "year": record.paper.year,
        "fields": record.paper.fields,
        "section": record.section,
        "label": record.label,
        "printed": record.printed,
        "whole": record.whole,
        "inline": record.inline,
        "environment": row["environment"],
        "latex": record.latex,
        "status": row["status"],
        "repaired": bool(row["repaired"]),
        "before": record.before,
        "after": record.after,
    }
    if not row["has_tree"]:
        described |= {"reason": row["reason"], "message": row["message"]}
    elif record.mathml:
        described["mathml"] = record.mathml
    return described
