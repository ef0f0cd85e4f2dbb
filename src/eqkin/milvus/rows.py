"""Papers of a library as rows of Milvus, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from eqkin.errors import CorruptData
from eqkin.index.structure_files import indexed
from eqkin.milvus import wording
from eqkin.milvus.expressions import NO_YEAR, author_names, cut, field_name
from eqkin.milvus.keys import equation_key, key_of, part_key
from eqkin.milvus.schema import FIELDS, TEXT_BYTES, Origin
from eqkin.milvus.texts import fitted, restored, split
from eqkin.milvus.trees import forest_from
from eqkin.search.results import EquationRecord, PaperPage, PaperRecord
from eqkin.search.store import Floats, Place
from eqkin.structure.terms import terms_of

Row = dict[str, Any]

PLACE = ("paper", "number", "latex", "year", "fields")
SHOWN = ("mathml", "label", "section", "before", "after")
_NOTHING = [1.0, 0.0]  # where Milvus wants a vector and there is none
_NO_CODE = (1 << 32) - 1  # Milvus takes numbers below


@dataclass
class PaperRows:
    """A paper as it is pushed."""

    key: str
    equations: list[Row] = field(default_factory=list)
    papers: list[Row] = field(default_factory=list)  # the last one says that the paper is complete
    oversized: list[str] = field(default_factory=list)  # ids of equations that do not fit into Milvus


def rows_of(page: PaperPage, vectors: dict[int, Floats], content: str, origin: Origin) -> PaperRows:
    """The rows of a paper.

    Args:
        page: the paper with its equations.
        vectors: those of its equations, by the number of the tree; one without cannot be found, only seen on the page.
        content: what stands for all of this.
        origin: how the collection was made.
    """
    rows = PaperRows(page.paper.key)
    found = [e for _, members in page.sections for e in members if e.tree in vectors]
    kept: dict[str, Row] = {}
    for equation in found:
        row = _row(equation, vectors[equation.tree])
        if row is None:
            rows.oversized.append(equation.id)
        else:
            kept[equation.id] = row
    pushed = [equation for equation in found if equation.id in kept]
    rows.equations = [kept[equation.id] for equation in pushed]
    if origin.words:
        for row, words in zip(rows.equations, wording.around(pushed, page.abstract), strict=True):
            row["words"] = words
    if origin.terms:
        for row, terms in zip(rows.equations, _terms(pushed), strict=True):
            row["terms"] = terms
    missing = sum(e.tree >= 0 for _, members in page.sections for e in members) - len(found)
    rows.papers = _paper_rows(page, kept.keys(), content, missing)
    return rows


def _row(equation: EquationRecord, vector: Floats) -> Row | None:
    """An equation's row without terms and words; None if it does not fit."""
    number = int(equation.id.rpartition("#")[2])
    paper = equation.paper
    row: Row = {"key": equation_key(paper.key, number), "vector": vector, "number": number, "paper": paper.key}
    row |= {"paper_key": key_of(paper.key), "year": _year(paper.year), "fields": _fields(paper.fields)}
    row["authors"] = cut(author_names(paper.authors), TEXT_BYTES)
    texts = {name: fitted(getattr(equation, name)) for name in ("latex", *SHOWN)}
    return None if None in texts.values() else row | texts


def _terms(equations: Sequence[EquationRecord]) -> list[dict[int, float]]:
    """The indexed terms of each equation; Milvus wants at least one, so nothing is the term 0."""
    if not equations:
        return []
    terms = terms_of(forest_from([equation.mathml for equation in equations]))
    wanted = indexed(terms) & (terms.code != _NO_CODE)
    found = []
    for start, end in zip(terms.offsets[:-1].tolist(), terms.offsets[1:].tolist(), strict=True):
        codes = terms.code[start:end][wanted[start:end]].tolist()
        found.append(dict.fromkeys(codes, 1.0) or {0: 1.0})
    return found


def _paper_rows(page: PaperPage, pushed: Any, content: str, missing: int) -> list[Row]:
    paper, sections = page.paper, []
    for heading, members in page.sections:
        listed: list[list[Any]] = []
        for equation in members:
            number = int(equation.id.rpartition("#")[2])
            known: list[Any] = [number, equation.label]
            if equation.id not in pushed:  # then all of it is here
                known += [equation.latex, equation.mathml, equation.before, equation.after]
            listed.append(known)
        sections.append([heading, listed])
    record: Row = {"key": paper.key, "title": paper.title, "authors": paper.authors, "year": paper.year}
    record |= {"fields": paper.fields, "origin": paper.origin, "abstract": page.abstract, "sections": sections}
    equations = {"equations": len(pushed), "missing": missing, "paper": paper.key}
    equations |= {"year": _year(paper.year), "fields": _fields(paper.fields)}
    return document_rows(key_of(paper.key), record, content, equations)


def document_rows(key: int, record: Any, content: str, other: Row | None = None) -> list[Row]:
    """What is kept under a key among the papers, in one row or several; that of the key itself is the last one."""
    blank: Row = {"vector": _NOTHING, "paper": "", "content": content, "equations": -1, "missing": 0, "year": NO_YEAR}
    blank["fields"] = []
    texts = split(orjson.dumps(record).decode())
    first = blank | (other or {}) | {"key": key, "record": texts[0], "parts": len(texts)}
    further = [blank | {"key": part_key(key, at), "record": text, "parts": 0} for at, text in enumerate(texts[1:], 1)]
    return [*further, first]


def document(texts: Sequence[str]) -> Any:
    """The record whose parts these are; raises `CorruptData`."""
    try:
        return orjson.loads(restored("".join(texts)))
    except orjson.JSONDecodeError as error:
        raise CorruptData(f"the record of a paper is damaged ({error}); push the library again") from error


def paper_of(record: Any) -> PaperRecord:
    """A paper of its record."""
    return PaperRecord(
        record["key"],
        record["title"],
        tuple(record["authors"]),
        record["year"],
        tuple(record["fields"]),
        record["origin"],
    )


def place_of(row: Row) -> Place:
    """Where an equation stands."""
    year = row["year"] if row["year"] != NO_YEAR else None
    return Place(row["key"], row["paper"], row["number"], restored(row["latex"]), year, tuple(row["fields"]))


def equation_of(row: Row, paper: PaperRecord) -> EquationRecord:
    """An equation of its row."""
    return EquationRecord(
        id=f"{row['paper']}#{row['number']}",
        tree=row["key"],
        latex=restored(row["latex"]),
        mathml=restored(row["mathml"]),
        label=restored(row["label"]),
        section=restored(row["section"]),
        before=restored(row["before"]),
        after=restored(row["after"]),
        paper=paper,
    )


def unfound(known: Sequence[Any], heading: str, paper: PaperRecord) -> EquationRecord:
    """An equation that is only in the record of its paper: it has no vector, or was too large."""
    number, label, latex, mathml, before, after = known
    return EquationRecord(f"{paper.key}#{number}", -1, latex, mathml, label, heading, before, after, paper)


def size_of(row: Row) -> int:
    """About how many bytes a row takes in a message."""
    texts = sum(len(value.encode()) for value in row.values() if isinstance(value, str))
    return texts + 12 * len(row.get("terms", ())) + 4 * len(row["vector"]) + 200


def _year(year: int | None) -> int:
    return NO_YEAR if year is None else int(np.clip(year, -1_000_000, 1_000_000))


def _fields(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(field_name(name) for name in names))[:FIELDS]
