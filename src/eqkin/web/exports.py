"""Result lists for other programs: BibTeX and RIS (the papers), CSV and JSON (the equations)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

import orjson

from eqkin.search.results import Hit, PaperRecord, Results
from eqkin.sources.arxiv_ids import ArxivId, parse_id

_BIBTEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",  # BibTeX counts braces even behind a backslash
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {character: "\\" + character for character in "&%$#_"}
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def export(results: Results, form: str) -> tuple[bytes, str, str]:
    """A result list in one of the formats: its content, media type and file name."""
    media_type, suffix, write = _FORMS[form]
    return write(results), media_type, f"eqkin-results.{suffix}"


def papers(hits: Sequence[Hit]) -> list[PaperRecord]:
    """The papers of some hits, each once, best first."""
    return list({hit.equation.paper.key: hit.equation.paper for hit in hits}.values())


def _bibtex(results: Results) -> bytes:
    entries, used = [], set[str]()
    for paper in papers(results.hits):
        name = plain = re.sub(r"[^A-Za-z0-9:._-]+", "-", paper.key).strip("-")[:100] or "paper"
        number = 1
        while name.lower() in used:
            number += 1
            name = f"{plain}-{number}"
        used.add(name.lower())
        fields = [("title", _brace(paper.title)), ("author", " and ".join(_author(a) for a in paper.authors))]
        fields += [("year", str(paper.year or "")), ("keywords", _escape(", ".join(paper.fields)))]
        arxiv = _arxiv(paper)
        if arxiv:
            fields += [("eprint", _escape(arxiv.base)), ("archiveprefix", "arXiv")]
        else:
            fields.append(("note", _escape(paper.origin)))
        lines = "".join(f"  {field} = {{{value}}},\n" for field, value in fields if value)
        entries.append(f"@misc{{{name},\n{lines}}}\n")
    return "\n".join(entries).encode()


def _arxiv(paper: PaperRecord) -> ArxivId | None:
    return parse_id(paper.key) if paper.key.startswith("arxiv:") else None


def _escape(text: str) -> str:
    return "".join(_BIBTEX.get(character, character) for character in _line(text))


def _brace(text: str) -> str:
    """A title whose capitals are kept."""
    return "{" + _escape(text) + "}" if text else ""


def _author(name: str) -> str:
    """A name; one with the word "and" in it is kept whole."""
    escaped = _escape(name)
    return "{" + escaped + "}" if re.search(r"\band\b", name, re.IGNORECASE) else escaped


def _line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()


def _ris(results: Results) -> bytes:
    lines: list[str] = []
    for paper in papers(results.hits):
        pairs = [("TY", "GEN"), ("TI", paper.title), *(("AU", author) for author in paper.authors)]
        pairs += [("PY", str(paper.year or "")), *(("KW", field) for field in paper.fields)]
        arxiv = _arxiv(paper)
        pairs += [("UR", f"https://arxiv.org/abs/{arxiv.base}" if arxiv else "")]
        pairs += [("ID", paper.key), ("N1", "" if arxiv else paper.origin)]
        lines += [f"{name}  - {_line(value)}" for name, value in pairs if value] + ["ER  - ", ""]
    return "\r\n".join(lines).encode()


def _csv(results: Results) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow("rank score similarity id latex section label paper title authors year fields".split())
    for rank, hit in enumerate(results.hits, 1):
        e, p = hit.equation, hit.equation.paper
        texts = [e.id, e.latex, e.section, e.label, p.key, p.title, "; ".join(p.authors)]
        cells = [cell(text) for text in texts]
        row = [rank, f"{hit.score:.6f}", f"{hit.similarity:.6f}", *cells, p.year or "", cell("; ".join(p.fields))]
        writer.writerow(row)
    return out.getvalue().encode()


def cell(text: str) -> str:
    """A cell no spreadsheet takes for a formula."""
    text = text.replace("\0", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def _json(results: Results) -> bytes:
    return orjson.dumps(results, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)


_FORMS: dict[str, tuple[str, str, Callable[[Results], bytes]]] = {
    "bibtex": ("application/x-bibtex; charset=utf-8", "bib", _bibtex),
    "ris": ("application/x-research-info-systems; charset=utf-8", "ris", _ris),
    "csv": ("text/csv; charset=utf-8", "csv", _csv),
    "json": ("application/json", "json", _json),
}
