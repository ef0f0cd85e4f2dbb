"""Options and results of a search: plain records, the same for Python, the command line and the web."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from eqkin.errors import BadInput, LimitReached
from eqkin.formulas.mathml import parse_mathml
from eqkin.library.queries import Filters as Filters
from eqkin.library.queries import check_filters
from eqkin.library.records import EquationRecord as EquationRecord
from eqkin.library.records import PaperPage as PaperPage
from eqkin.library.records import PaperRecord as PaperRecord
from eqkin.limits import LIMITS
from eqkin.search.reader import ReadQuery
from eqkin.search.wildcards import find_wildcards

# How a hit is related to the query, in the order of the bands of a list.
HIT_RELATIONS = {
    "named": "it has the name that was asked for",
    "same": "the same formula, up to spacing and style; or all of it has the form of a query with wildcards",
    "renamed": "the same after a consistent renaming of variables",
    "rewritten": "the same statement with the same names: another notation, or terms in another order or place",
    "contains": "the query is a part of the hit, with its names or consistently renamed",
    "part of": "the hit is a part of the query, with its names or consistently renamed",
    "similar": "none of these",
    "weak": "none of these, and the score is low",
}
BAND_TITLES = {
    "named": "Has this name",
    "same": "The same formula",
    "renamed": "The same in other letters",
    "rewritten": "The same, written otherwise",
    "contains": "Contains it",
    "part of": "Part of it",
    "similar": "Similar",
    "weak": "Weak",
    "": "",
}
WEAK_SCORE = 0.25  # of the first ten hits below it, one in fifty is labelled as related (development sets)
READINGS = ("auto", "words", "formula")
_SHOWN_HITS = 10  # by `repr`


class SearchKeywords(TypedDict, total=False):
    """What can be given to `search` by name; None is the same as nothing."""

    # Most hits, and hits to skip before them.
    k: int | None
    offset: int | None
    # Words that should be near the equations.
    text: str | None
    filters: Filters | None
    # Conditions one by one, instead of `filters`; several values are alternatives, except for authors.
    field: str | Sequence[str] | None
    language: str | Sequence[str] | None
    # Part of an author's name.
    author: str | Sequence[str] | None
    # Key of a paper.
    paper: str | Sequence[str] | None
    # A year, or the first and the last one.
    year: int | tuple[int | None, int | None] | None
    # Whether to show at most two hits of one paper, as long as there are others.
    group: bool | None
    # Whether to show formulas that differ only in spacing once.
    fold: bool | None
    # Whether to say which parts of a hit match which parts of the query.
    explain: bool | None
    # Whether to count fields, years, languages and papers.
    facets: bool | None
    # How the query is read: "auto", "words" or "formula".
    reading: str | None


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search; checked when they are made.

    Raises:
        BadInput: `k` is not a positive whole number, or a filter is wrong.
        LimitReached: `k` or the text is too large.
    """

    k: int = 10  # most hits
    offset: int = 0  # hits to skip: a list of any length is a part of the same one
    text: str = ""  # words that should be near the equations
    filters: Filters = Filters()
    group: bool = True  # show at most two hits of one paper, as long as there are others
    fold: bool = True  # show formulas that differ only in spacing once
    explain: bool = False  # say which parts of a hit match which parts of the query
    exclude: int = -1  # key of an equation that is left out
    facets: bool = False  # count fields, years, languages and papers
    reading: str = "auto"  # how the query is read: "auto", "words" or "formula"

    def change(self, **given: Unpack[SearchKeywords]) -> SearchOptions:
        """Return options with some changed; None leaves one as it is. Raises `TypeError` for an unknown one."""
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        conditions: dict[str, Any] = {}
        for name in ("field", "language", "author", "paper"):
            if name in changes:
                conditions[f"{name}s"] = changes.pop(name)
        if "year" in changes:
            year = changes.pop("year")
            conditions["first_year"], conditions["last_year"] = year if isinstance(year, tuple | list) else (year, year)
        filters = replace(changes.pop("filters", self.filters), **conditions)
        return replace(self, filters=filters, **changes)

    def __post_init__(self) -> None:
        text = " ".join(self.text.encode("utf-8", "replace").decode().replace("\0", " ").split())
        if len(text) > LIMITS.query_text_chars:
            raise LimitReached(f"the text is longer than {LIMITS.query_text_chars:,} characters")
        if self.reading not in READINGS:
            raise BadInput(f"a query is read as {', '.join(READINGS)}, not {str(self.reading)[:40]!r}")
        filters = Filters() if self.filters in (None, Filters()) else check_filters(self.filters)
        k = check_k(self.k)
        offset = self.offset
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
            raise BadInput(f"the offset must be a whole number from 0 on, not {str(offset)[:40]}")
        if offset + k > LIMITS.results:
            raise LimitReached(f"a list has at most {LIMITS.results:,} results, so it cannot go on to {offset + k:,}")
        checked = {"k": k, "offset": int(offset), "text": text, "filters": filters}
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def check_k(k: int) -> int:
    """Return a number of results; raises `BadInput` or `LimitReached`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise BadInput(f"the number of results must be a positive whole number, not {str(k)[:40]}")
    if k > LIMITS.results:
        raise LimitReached(f"at most {LIMITS.results:,} results are possible")
    return int(k)


@dataclass(slots=True, unsafe_hash=True)  # a hit has many, and creating a frozen one takes three times as long
class Pairing:
    """A part of the query and the matching part of a hit: nodes of their trees, in breadth-first order."""

    query_node: int
    hit_node: int
    similarity: float  # in [0, 1]: 1 the same, 0.75 a letter with another name, 0.5 a wildcard and what it matches


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An equation found, and why."""

    equation: EquationRecord
    score: float  # what the list is sorted by, in [0, 1], after the same statement with the same names
    similarity: float  # cosine of the vectors, in [-1, 1]
    text_score: float  # how well the text matches, in [0, 1]; 0 without text
    duplicates: tuple[str, ...] = ()  # ids of near-identical formulas folded into this one
    hidden: int = 0  # better hits of the same paper that are not shown
    pairings: tuple[Pairing, ...] = ()  # with `explain`
    marked: str = ""  # with `explain`: the MathML, nodes numbered (`data-node`), matched ones of class `kin kin-1` .. 3
    renaming: tuple[tuple[str, str], ...] = ()  # with `explain`: letters of the query and their other names in the hit
    bindings: tuple[tuple[str, str], ...] = ()  # with `explain`: the query's wildcards, MathML of what they match
    relation: str = ""  # to the query, one of `HIT_RELATIONS`; "" for a search by text alone
    changes: tuple[str, ...] = ()  # with `explain`: "commuted", "sides swapped", "notation"
    name: str | None = None  # of the equation, or of the law it states

    @property
    def same(self) -> tuple[str, ...]:
        """Another name of `duplicates`."""
        return self.duplicates


@dataclass(frozen=True)
class FacetCount:
    """A field, year, language or paper, and how many equations it has with all *other* filters applied."""

    value: str | int  # a field's name, a year, a language's code, a paper's key
    same: int | None  # in the whole collection, those of the query's form (same, renamed, rewritten); None: not counted
    pool: int  # among the best candidates of the query
    best: Hit | None = None  # of frequent fields: the best of these candidates, if it is not weak
    title: str = ""  # of papers only


@dataclass(frozen=True, repr=False, kw_only=True)
class Results(Sequence["Hit"]):
    """The answer to one query: a part of its list of hits, and counts for all of it. Also a sequence of its hits."""

    latex: str  # the query as understood; "" for a query of MathML or of text alone
    mathml: str
    text: str
    hits: tuple[Hit, ...]
    offset: int = 0  # hits before these
    more: bool = False  # whether there are hits after these
    nothing_close: bool = False  # all hits of the list are weak
    # With `facets`: equations of the query's form that pass the filters, in the whole collection.
    same: int | None = None
    fields: tuple[FacetCount, ...] = ()  # with `facets`, as the next three; most frequent first
    years: tuple[FacetCount, ...] = ()  # in order
    languages: tuple[FacetCount, ...] = ()
    papers: tuple[FacetCount, ...] = ()  # the most frequent ones
    # By stage: conversion, embedding, candidates, ranking, records, explaining, and with `facets` also facets.
    seconds: dict[str, float] = field(default_factory=dict)
    marked: str = ""  # with `explain`: the query's MathML, nodes numbered (`data-node`)
    missing: int = 0  # equations of the library without a vector, which cannot be found; `eqkin index` makes them
    query: ReadQuery | None = None  # how the query was read

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]

    def __repr__(self) -> str:
        lines = [f"Results({self.latex or self.text!r}, {len(self)} hits)"]
        for rank, hit in enumerate(self.hits[:_SHOWN_HITS], self.offset + 1):
            title = hit.name or hit.equation.paper.title
            latex = " ".join(hit.equation.latex.split())
            lines.append(f"{rank:3}  {hit.score:.3f}  {hit.relation or 'text':9}  {title[:40]:40}  {latex[:60]}")
        return "\n".join([*lines, "..."] if len(self) > _SHOWN_HITS else lines)

    def _repr_html_(self) -> str:
        """Return a table for notebooks: formulas as MathML, with marked parts if they were explained."""
        rows = []
        for rank, hit in enumerate(self.hits, self.offset + 1):
            paper = hit.equation.paper
            about = " · ".join(filter(None, (hit.name, paper.title, ", ".join(paper.authors), str(paper.year or ""))))
            formula = hit.marked or hit.equation.mathml or f"<code>{html.escape(hit.equation.latex)}</code>"
            cells = (str(rank), formula, html.escape(hit.relation), f"{hit.score:.2f}", html.escape(about))
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        heads = "".join(f"<th>{name}</th>" for name in ("", "formula", "relation", "score", "paper"))
        style = "<style>.kin-1, .kin-2, .kin-3 { background: #fd68 }</style>"
        return f"{style}<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def _repr_latex_(self) -> str:
        """Return the formulas, for programs that typeset LaTeX."""
        rows = [rf"\text{{{n}.}} & {hit.equation.latex.strip()}" for n, hit in enumerate(self, self.offset + 1)]
        return "$$\\begin{array}{rl}\n" + " \\\\\n".join(rows) + "\n\\end{array}$$"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one flat record per hit: rank, id, latex, relation, score, name, and what is known of the paper."""
        return [
            {
                "rank": rank,
                "id": hit.equation.id,
                "latex": hit.equation.latex,
                "relation": hit.relation,
                "score": hit.score,
                "name": hit.name,
                "paper": hit.equation.paper.key,
                "title": hit.equation.paper.title,
                "authors": list(hit.equation.paper.authors),
                "year": hit.equation.paper.year,
                "fields": list(hit.equation.paper.fields),
                "section": hit.equation.section,
            }
            for rank, hit in enumerate(self.hits, self.offset + 1)
        ]

    def to_dataframe(self) -> Any:
        """Return `to_dicts` as a data frame of pandas, or of polars; raises `BadInput` if neither is installed."""
        return make_dataframe(self.to_dicts())

    @property
    def bands(self) -> list[tuple[str, list[Hit]]]:
        """The hits by relation, in the order of `HIT_RELATIONS`; the relation is "" for a search by text alone."""
        bands = {relation: list[Hit]() for relation in ("named", "", *HIT_RELATIONS)}
        for hit in self.hits:
            bands[hit.relation].append(hit)
        return [(relation, hits) for relation, hits in bands.items() if hits]

    @property
    def lacks_form(self) -> bool:
        """True if the query has wildcards and no hit has its form, or a part of that form."""
        if any(hit.relation in ("", "same", "contains") for hit in self.hits):
            return False
        return bool(self.hits) and bool(find_wildcards(parse_mathml(self.mathml)))


@dataclass(frozen=True)
class PaperHit:
    """A paper related by its mathematics, and the pairs of equations that show it."""

    paper: PaperRecord
    score: float  # in [0, 1]
    pairs: tuple[tuple[EquationRecord, EquationRecord, float], ...]  # ours, theirs, cosine; best first


def make_dataframe(records: list[dict[str, Any]]) -> Any:
    """Return records as a data frame of pandas, or of polars; raises `BadInput` if neither is installed."""
    for name in ("pandas", "polars"):
        try:
            return import_module(name).DataFrame(records)
        except ImportError:
            continue
    raise BadInput("a data frame needs pandas or polars: install one of them with pip")
