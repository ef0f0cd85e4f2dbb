"""Result lists for other programs: BibTeX and RIS (the papers), CSV and JSON (the equations)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

import orjson

from eqkin.search.results import Hit, PaperRecord, Results, escape_csv_cell
from eqkin.sources.arxiv_ids import ArxivId, parse_arxiv_id

_BIBTEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",  # BibTeX counts braces even behind a backslash
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {character: "\\" + character for character in "&%$#_"}
_CONTROL_CHARS = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def export_results(results: Results, form: str) -> tuple[bytes, str, str]:
    """Export results in a format; return the content, its media type and a file name."""
    media_type, suffix, write = _FORMATS[form]
    return write(results), media_type, f"eqkin-results.{suffix}"


def list_papers(hits: Sequence[Hit]) -> list[PaperRecord]:
    """List the papers of hits, each once, best first."""
    return list({hit.equation.paper.key: hit.equation.paper for hit in hits}.values())


def to_bibtex(papers: Sequence[PaperRecord]) -> str:
    """Write papers as BibTeX."""
    entries, used = [], set[str]()
    for paper in papers:
        name = plain = re.sub(r"[^A-Za-z0-9:._-]+", "-", paper.key).strip("-")[:100] or "paper"
        number = 1
        while name.lower() in used:
            number += 1
            name = f"{plain}-{number}"
        used.add(name.lower())
        fields = [
            ("title", "{" + _escape_bibtex(paper.title) + "}" if paper.title else ""),  # braces keep its capitals
            ("author", " and ".join(_format_author(a) for a in paper.authors)),
        ]
        fields += [("year", str(paper.year or "")), ("keywords", _escape_bibtex(", ".join(paper.fields)))]
        arxiv = _parse_arxiv_id(paper)
        if arxiv:
            fields += [("eprint", _escape_bibtex(arxiv.base)), ("archiveprefix", "arXiv")]
        else:
            fields.append(("note", _escape_bibtex(paper.origin)))
        lines = "".join(f"  {field} = {{{value}}},\n" for field, value in fields if value)
        entries.append(f"@misc{{{name},\n{lines}}}\n")
    return "\n".join(entries)


def _parse_arxiv_id(paper: PaperRecord) -> ArxivId | None:
    return parse_arxiv_id(paper.key) if paper.key.startswith("arxiv:") else None


def _escape_bibtex(text: str) -> str:
    return "".join(_BIBTEX_ESCAPES.get(character, character) for character in _to_single_line(text))


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
        arxiv = _parse_arxiv_id(paper)
        pairs += [("UR", f"https://arxiv.org/abs/{arxiv.base}" if arxiv else "")]
        pairs += [("ID", paper.key), ("N1", "" if arxiv else paper.origin)]
        lines += [f"{name}  - {_to_single_line(value)}" for name, value in pairs if value] + ["ER  - ", ""]
    return "\r\n".join(lines).encode()


def _to_csv(results: Results) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow("rank score similarity id latex section label paper title authors year fields".split())
    for rank, hit in enumerate(results.hits, 1):
        e, p = hit.equation, hit.equation.paper
        texts = [e.id, e.latex, e.section, e.label, p.key, p.title, "; ".join(p.authors)]
        cells = [escape_csv_cell(text) for text in texts]
        scores = [f"{hit.score:.6f}", f"{hit.similarity:.6f}"]
        writer.writerow([rank, *scores, *cells, p.year or "", escape_csv_cell("; ".join(p.fields))])
    return out.getvalue().encode()


def _to_json(results: Results) -> bytes:
    return orjson.dumps(results, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)


_FORMATS: dict[str, tuple[str, str, Callable[[Results], bytes]]] = {
    "bibtex": (
        "application/x-bibtex; charset=utf-8",
        "bib",
        lambda results: to_bibtex(list_papers(results.hits)).encode(),
    ),
    "ris": ("application/x-research-info-systems; charset=utf-8", "ris", _to_ris),
    "csv": ("text/csv; charset=utf-8", "csv", _to_csv),
    "json": ("application/json", "json", _to_json),
}
EXPORT_TYPES = [media_type.partition(";")[0] for media_type, _, _ in _FORMATS.values()]
