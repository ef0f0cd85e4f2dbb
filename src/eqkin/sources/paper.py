"""`Paper`, the one record every reader yields, and `Item`, a paper that has not been read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Paper:
    r"""One document, whatever it was, as LaTeX-like text.

    Readers of other formats write headings as `\section{...}` (`\subsection`, ...), display math as
    `\[...\]` or an environment, inline math as `$...$`, and MathML found ready-made as
    `\begin{eqkinmathml}<math>...</math>\end{eqkinmathml}`; the rest is prose.
    """

    key: str  # stable identity within a library: "arxiv:1706.03762", "file:notes/a.tex", "python:scipy.stats"
    text: str  # comments may still be in it; \input and the like are resolved
    origin: str = ""  # what a person would call it: path, archive member, URL
    kind: str = "tex"  # reader that made it: tex, md, ipynb, rst, python, html, jsonl
    title: str = ""  # empty: taken from \title in the text
    authors: list[str] = field(default_factory=list)
    year: int | None = None
    fields: list[str] = field(default_factory=list)  # subject areas, main one first: "hep-th", "statistics"
    lang: str = ""
    license: str = ""
    group: str = ""  # documents of one work or repository share it (for splits by work)
    abstract: str = ""
    styles: list[str] = field(default_factory=list)  # texts of local .sty/.cls files or macro definitions
    bibliography: list[str] = field(default_factory=list)  # texts of .bbl/.bib files
    cites: list[str] = field(default_factory=list)  # arXiv ids already known, beside those found in the texts
    notes: list[str] = field(default_factory=list)  # what was refused or left out while reading


@dataclass(frozen=True)
class SourceItem:
    """A paper to be read: cheap to make and to send to another process.

    `load` is a picklable callable (a module-level function or `functools.partial` of one) that returns the paper and
    raises an `EqkinError` if it cannot be read.
    """

    key: str
    origin: str
    load: Callable[[], Paper]
    # Digest of the raw content and of the metadata put into the paper, for skipping unchanged sources; empty where
    # that is known only after loading (`hash_paper`).
    digest: str = ""
    size: int = 0  # bytes of content that it carries; 0 if `load` reads a file


def hash_paper(paper: Paper) -> str:
    """Hex digest of a loaded paper: of its texts and of all that is known about it, not of where it lies."""
    about = (paper.title, paper.year, paper.lang, paper.license, paper.group, paper.abstract)
    lists = (paper.authors, paper.fields, paper.styles, paper.bibliography, paper.cites)
    return hash_parts(paper.text, *map(str, about), *(hash_parts(*values) for values in lists))


def hash_parts(*parts: bytes | str) -> str:
    """Hex digest of several byte or text strings, unambiguous about where one ends."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()
