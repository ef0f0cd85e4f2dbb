"""Result lists for other programs: BibTeX and RIS (the papers), CSV and JSON (the equations)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import orjson

from eqkin.formulas.prose import to_unicode
from eqkin.latex.titles import ArxivId, parse_arxiv_id
from eqkin.library.queries import simplify_name
from eqkin.search.reader import ReadQuery
from eqkin.search.results import HIT_RELATIONS, FacetCount, Hit, PaperRecord, Results

_BIBTEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",  # BibTeX counts braces even behind a backslash
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {character: "\\" + character for character in "&%$#_"}
_CSV_COLUMNS = (
    "rank score similarity text_score year hidden id latex section label paper title authors fields"
    " duplicates query relation"
).split()
# Of a cell that a spreadsheet would evaluate.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_INLINE_MATH = re.compile(r"\\\((.*?)\\\)")
_SHORT_WORDS = frozenset(
    "a an and the of on in for to from with by at is are der die das ein eine le la les un une".split()
)
_CONTROL_CHARS = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True)
class Alternative:
    """Another way to read a query."""

    label: str
    reading: str  # "words" or "formula", for the parameter `as`


@dataclass(frozen=True)
class Reading:
    """How a query was read."""

    kind: str  # one of `eqkin.search.reader.KINDS`
    latex: str
    words: str
    name: str  # of the law it names
    mathml: str
    repairs: tuple[str, ...]  # of typing errors, in plain sentences
    unknown: tuple[str, ...]  # undefined commands
    alternatives: list[Alternative]

    @classmethod
    def from_query(cls, read: ReadQuery) -> Reading:
        """Describe a query that was read."""
        described = {name: getattr(read, name) for name in cls.__annotations__}
        described["alternatives"] = [Alternative(*alternative) for alternative in read.alternatives]
        return cls(**described)


@dataclass(frozen=True)
class Band:
    """Hits of one relation to the query."""

    relation: str  # one of `eqkin.search.results.HIT_RELATIONS`; "" for a search by text alone
    meaning: str
    ranks: list[int]  # of its hits in the list, counted from 1


@dataclass(frozen=True)
class SearchAnswer:
    """A part of the list of hits, and counts for all of it. See `eqkin.search.results.Results`."""

    query: Reading | None  # how it was read
    latex: str  # as understood
    mathml: str
    text: str
    marked: str
    hits: tuple[Hit, ...]
    bands: list[Band]
    offset: int  # hits before these
    more: bool  # whether there are hits after these
    nothing_close: bool  # all hits of the list are weak
    same: int | None  # equations of the query's form in the whole collection
    fields: tuple[FacetCount, ...]
    years: tuple[FacetCount, ...]
    languages: tuple[FacetCount, ...]
    papers: tuple[FacetCount, ...]
    seconds: dict[str, float]
    missing: int  # equations that cannot be found yet

    @classmethod
    def from_results(cls, results: Results) -> SearchAnswer:
        """Make the answer of a search."""
        rank = {id(hit): number for number, hit in enumerate(results.hits, results.offset + 1)}
        bands = [
            Band(relation, HIT_RELATIONS.get(relation, "found by its text"), [rank[id(hit)] for hit in hits])
            for relation, hits in results.bands
        ]
        rest = {name: getattr(results, name) for name in cls.__annotations__ if name not in ("bands", "query")}
        return cls(Reading.from_query(results.query) if results.query else None, bands=bands, **rest)


def export_results(results: Results, form: str) -> tuple[bytes, str, str]:
    """Export results in a format; return the content, its media type and a file name."""
    media_type, suffix, write = _FORMATS[form]
    return write(results), media_type, f"eqkin-results.{suffix}"


def list_papers(hits: Sequence[Hit]) -> list[PaperRecord]:
    """List the papers of hits, each once, best first."""
    return list({hit.equation.paper.key: hit.equation.paper for hit in hits}.values())


def to_bibtex(papers: Sequence[PaperRecord]) -> str:
    """Write papers as BibTeX; a key is the first author's surname, the year, and a word of the title."""
    entries: list[str] = []
    used: set[str] = set()
    for paper in papers:
        # BibTeX ignores case in keys, and refuses a key that occurs twice.
        name = plain = _make_citation_key(paper)
        number = 1
        while name.lower() in used:
            number += 1
            name = f"{plain}-{number}"
        used.add(name.lower())
        fields = [
            # Braces keep the capitals of a title.
            ("title", "{" + _escape_title(paper.title) + "}" if paper.title else ""),
            ("author", " and ".join(_format_author(a) for a in paper.authors)),
        ]
        fields += [("year", str(paper.year or "")), ("keywords", _escape_bibtex(", ".join(paper.fields)))]
        arxiv = _parse_arxiv_id(paper)
        fields += [("eprint", _escape_bibtex(arxiv.base)), ("archiveprefix", "arXiv")] if arxiv else []
        url = find_url(paper)
        fields += [("doi", _escape_bibtex(paper.doi)), ("url", _escape_bibtex(url))]
        fields += [] if url else [("note", _escape_bibtex(paper.origin))]
        lines = "".join(f"  {field} = {{{value}}},\n" for field, value in fields if value)
        entries.append(f"@misc{{{name},\n{lines}}}\n")
    return "\n".join(entries)


def find_url(paper: PaperRecord) -> str:
    """Return where a paper can be read on the web; "" if that is not known."""
    arxiv = _parse_arxiv_id(paper)
    known = paper.url or (f"https://arxiv.org/abs/{arxiv.base}" if arxiv else "")
    return known or (f"https://doi.org/{paper.doi}" if paper.doi else "")


def _make_citation_key(paper: PaperRecord) -> str:
    """Make a key as in shannon1948mathematical; the user's own key if there is one."""
    own = re.sub(r"[^A-Za-z0-9:._/+-]+", "-", paper.cite_key)
    first = simplify_name(paper.authors[0]).partition(",")[0] if paper.authors else ""
    words = re.findall(r"[a-z0-9]+", simplify_name(_INLINE_MATH.sub(" ", paper.title)))
    words = [word for word in words if word not in _SHORT_WORDS] or words
    parts = [*re.findall(r"[a-z]+", first)[-1:], str(paper.year or ""), *words[: 1 if first else 2]]
    return own or "".join(parts)[:60] or "paper"


def _escape_title(title: str) -> str:
    r"""Escape a title; formulas in `\(...\)` become `$...$`."""
    parts = _INLINE_MATH.split(title)
    return "".join(
        f"${part}$" if at % 2 and _is_balanced(part) else _escape_bibtex_part(part) for at, part in enumerate(parts)
    ).strip()


def _is_balanced(latex: str) -> bool:
    depths = list(accumulate(((letter == "{") - (letter == "}") for letter in latex), initial=0))
    return "$" not in latex and latex.isprintable() and min(depths) == depths[-1] == 0


def _parse_arxiv_id(paper: PaperRecord) -> ArxivId | None:
    return parse_arxiv_id(paper.key) if paper.key.startswith("arxiv:") else None


def _escape_bibtex_part(text: str) -> str:
    return "".join(_BIBTEX_ESCAPES.get(character, character) for character in _CONTROL_CHARS.sub(" ", text))


def _escape_bibtex(text: str) -> str:
    return _escape_bibtex_part(text.strip()).strip()


def _format_author(name: str) -> str:
    """Escape a name; braces keep one with the word "and" whole."""
    escaped = _escape_bibtex(name)
    return "{" + escaped + "}" if re.search(r"\band\b", name, re.IGNORECASE) else escaped


def _to_single_line(text: str) -> str:
    return _CONTROL_CHARS.sub(" ", text).strip()


def _to_ris(results: Results) -> bytes:
    lines: list[str] = []
    for paper in list_papers(results.hits):
        pairs = [("TY", "GEN"), ("TI", paper.title), *(("AU", author) for author in paper.authors)]
        pairs += [("PY", str(paper.year or "")), *(("KW", field) for field in paper.fields)]
        url = find_url(paper)
        pairs += [
            ("UR", url),
            ("DO", paper.doi),
            ("ID", paper.key),
            ("N1", "" if url else paper.origin),
        ]
        lines += [f"{name}  - {_to_single_line(value)}" for name, value in pairs if value] + ["ER  - ", ""]
    return "\r\n".join(lines).encode()


def to_csv(results: Results, *, header: bool = True) -> str:
    """Write results as CSV; a cell that a spreadsheet would evaluate as a formula is escaped."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(_CSV_COLUMNS)
    for rank, hit in enumerate(results.hits, results.offset + 1):
        equation = hit.equation
        paper = equation.paper
        scores = [f"{score:.6f}" for score in (hit.score, hit.similarity, hit.text_score)]
        texts = [equation.id, equation.latex, equation.section, equation.label, paper.key, paper.title]
        texts += ["; ".join(names) for names in (paper.authors, paper.fields, hit.duplicates)]
        texts += [describe_query(results), hit.relation]
        texts = [text.replace("\0", "") for text in texts]
        texts = [f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text for text in texts]
        writer.writerow([rank, *scores, paper.year or "", hit.hidden, *texts])
    return out.getvalue()


def describe_query(results: Results) -> str:
    """Return the query of results in one line."""
    return " ".join(filter(None, (results.latex or to_unicode(results.mathml), results.text)))


def _to_json(results: Results) -> bytes:
    return orjson.dumps(SearchAnswer.from_results(results), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)


_FORMATS: dict[str, tuple[str, str, Callable[[Results], bytes]]] = {
    "bibtex": (
        "application/x-bibtex; charset=utf-8",
        "bib",
        lambda results: to_bibtex(list_papers(results.hits)).encode(),
    ),
    "ris": ("application/x-research-info-systems; charset=utf-8", "ris", _to_ris),
    "csv": ("text/csv; charset=utf-8", "csv", lambda results: to_csv(results).encode()),
    "json": ("application/json", "json", _to_json),
}
EXPORT_TYPES = [media_type.partition(";")[0] for media_type, _, _ in _FORMATS.values()]
