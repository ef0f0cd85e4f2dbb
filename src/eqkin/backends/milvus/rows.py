"""Papers of a library as rows of Milvus, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from eqkin.backends.milvus import wording
from eqkin.backends.milvus.expressions import NO_YEAR, clean_field_name, join_author_names, truncate
from eqkin.backends.milvus.keys import hash_equation, hash_name, hash_part
from eqkin.backends.milvus.schema import MAX_FIELDS, MAX_TEXT_BYTES, CollectionInfo
from eqkin.backends.milvus.texts import fitted, restored, split
from eqkin.backends.milvus.trees import forest_from
from eqkin.errors import CorruptData
from eqkin.index.structure_files import is_indexed
from eqkin.search.backend import EquationRef, Floats
from eqkin.search.results import EquationRecord, PaperPage, PaperRecord
from eqkin.trees.terms import extract_terms

Row = dict[str, Any]

REF_FIELDS = ("paper", "number", "latex", "year", "fields")
SHOWN_FIELDS = ("mathml", "label", "section", "before", "after")
_DUMMY_VECTOR = [1.0, 0.0]  # where Milvus wants a vector and there is none
_NO_CODE = (1 << 32) - 1  # Milvus takes numbers below


@dataclass
class PaperRows:
    """A paper as it is pushed."""

    key: str
    equations: list[Row] = field(default_factory=list)
    papers: list[Row] = field(default_factory=list)  # the last one says that the paper is complete
    oversized: list[str] = field(default_factory=list)  # ids of equations that do not fit into Milvus


def build_paper_rows(page: PaperPage, vectors: dict[int, Floats], content: str, origin: CollectionInfo) -> PaperRows:
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
        row = _build_equation_row(equation, vectors[equation.tree])
        if row is None:
            rows.oversized.append(equation.id)
        else:
            kept[equation.id] = row
    pushed = [equation for equation in found if equation.id in kept]
    rows.equations = [kept[equation.id] for equation in pushed]
    if origin.words:
        for row, words in zip(rows.equations, wording.build_texts(pushed, page.abstract), strict=True):
            row["words"] = words
    if origin.terms:
        for row, terms in zip(rows.equations, _extract_terms(pushed), strict=True):
            row["terms"] = terms
    missing = sum(e.tree >= 0 for _, members in page.sections for e in members) - len(found)
    rows.papers = _build_record_rows(page, kept.keys(), content, missing)
    return rows


def _build_equation_row(equation: EquationRecord, vector: Floats) -> Row | None:
    """An equation's row without terms and words; None if it does not fit."""
    number = int(equation.id.rpartition("#")[2])
    paper = equation.paper
    row: Row = {"key": hash_equation(paper.key, number), "vector": vector, "number": number, "paper": paper.key}
    row |= {"paper_key": hash_name(paper.key), "year": _encode_year(paper.year), "fields": _clean_fields(paper.fields)}
    row["authors"] = truncate(join_author_names(paper.authors), MAX_TEXT_BYTES)
    texts = {name: fitted(getattr(equation, name)) for name in ("latex", *SHOWN_FIELDS)}
    return None if None in texts.values() else row | texts


def _extract_terms(equations: Sequence[EquationRecord]) -> list[dict[int, float]]:
    """The indexed terms of each equation; Milvus wants at least one, so nothing is the term 0."""
    if not equations:
        return []
    terms = extract_terms(forest_from([equation.mathml for equation in equations]))
    wanted = is_indexed(terms) & (terms.code != _NO_CODE)
    found = []
    for start, end in zip(terms.offsets[:-1].tolist(), terms.offsets[1:].tolist(), strict=True):
        codes = terms.code[start:end][wanted[start:end]].tolist()
        found.append(dict.fromkeys(codes, 1.0) or {0: 1.0})
    return found


def _build_record_rows(page: PaperPage, pushed: Any, content: str, missing: int) -> list[Row]:
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
    equations |= {"year": _encode_year(paper.year), "fields": _clean_fields(paper.fields)}
    return build_document_rows(hash_name(paper.key), record, content, equations)


def build_document_rows(key: int, record: Any, content: str, other: Row | None = None) -> list[Row]:
    """What is kept under a key among the papers, in one row or several; that of the key itself is the last one."""
    blank: Row = {
        "vector": _DUMMY_VECTOR,
        "paper": "",
        "content": content,
        "equations": -1,
        "missing": 0,
        "year": NO_YEAR,
    }
    blank["fields"] = []
    texts = split(orjson.dumps(record).decode())
    first = blank | (other or {}) | {"key": key, "record": texts[0], "parts": len(texts)}
    further = [blank | {"key": hash_part(key, at), "record": text, "parts": 0} for at, text in enumerate(texts[1:], 1)]
    return [*further, first]


def parse_document(texts: Sequence[str]) -> Any:
    """The record whose parts these are; raises `CorruptData`."""
    try:
        return orjson.loads(restored("".join(texts)))
    except orjson.JSONDecodeError as error:
        raise CorruptData(f"the record of a paper is damaged ({error}); push the library again") from error


def parse_paper(record: Any) -> PaperRecord:
    """A paper of its record."""
    return PaperRecord(
        record["key"],
        record["title"],
        tuple(record["authors"]),
        record["year"],
        tuple(record["fields"]),
        record["origin"],
    )


def parse_ref(row: Row) -> EquationRef:
    """Where an equation stands."""
    year = row["year"] if row["year"] != NO_YEAR else None
    return EquationRef(row["key"], row["paper"], row["number"], restored(row["latex"]), year, tuple(row["fields"]))


def parse_equation(row: Row, paper: PaperRecord) -> EquationRecord:
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


def parse_unindexed(known: Sequence[Any], heading: str, paper: PaperRecord) -> EquationRecord:
    """An equation that is only in the record of its paper: it has no vector, or was too large."""
    number, label, latex, mathml, before, after = known
    return EquationRecord(f"{paper.key}#{number}", -1, latex, mathml, label, heading, before, after, paper)


def estimate_size(row: Row) -> int:
    """About how many bytes a row takes in a message."""
    texts = sum(len(value.encode()) for value in row.values() if isinstance(value, str))
    return texts + 12 * len(row.get("terms", ())) + 4 * len(row["vector"]) + 200


def _encode_year(year: int | None) -> int:
    return NO_YEAR if year is None else int(np.clip(year, -1_000_000, 1_000_000))


def _clean_fields(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(clean_field_name(name) for name in names))[:MAX_FIELDS]
