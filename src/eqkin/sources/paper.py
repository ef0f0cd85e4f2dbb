"""`Paper`, which every reader returns, and `SourceItem`, a paper that has not been read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from eqkin.errors import EqkinError


@dataclass
class Paper:
    r"""One document of any format, as LaTeX-like text.

    Readers of other formats write headings as `\section{...}` (`\subsection`, ...), display math as
    `\[...\]` or an environment, inline math as `$...$`, and MathML as
    `\begin{eqkinmathml}<math>...</math>\end{eqkinmathml}`; the rest is prose.
    """

    key: str  # stable identity within a library: "arxiv:1706.03762", "file:notes/a.tex", "python:scipy.stats"
    text: str  # may contain comments; \input and the like are resolved
    origin: str = ""  # what a person would call it: path, archive member, URL
    kind: str = "tex"  # reader that made it: tex, md, ipynb, rst, python, html, jsonl
    title: str = ""  # LaTeX; empty: taken from \title in the text, or named by its file
    authors: list[str] = field(default_factory=list)
    year: int | None = None
    fields: list[str] = field(default_factory=list)  # subject areas, main one first: "hep-th", "statistics"
    lang: str = ""
    license: str = ""
    group: str = ""  # shared by documents of one work or repository (for splits by work)
    abstract: str = ""
    doi: str = ""
    url: str = ""  # where it can be read, if not at arXiv or by its DOI
    cite_key: str = ""  # of its entry in the user's bibliography
    styles: list[str] = field(default_factory=list)  # texts of local .sty/.cls files or macro definitions
    bibliography: list[str] = field(default_factory=list)  # texts of .bbl/.bib files
    cites: list[str] = field(default_factory=list)  # arXiv ids that are known in addition to those in the texts
    missing_source: str = ""  # why there is no text, for a paper that is known only by its metadata
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


def make_failed_item(key: str, origin: str, error: EqkinError) -> SourceItem:
    """Return an item for something that could not be read: its `load` raises `error` again."""
    return SourceItem(key, origin, partial(_raise_error, type(error), str(error)))


def _raise_error(kind: type[EqkinError], message: str) -> Paper:
    raise kind(message)


def hash_paper(paper: Paper) -> str:
    """Return a hex digest of a loaded paper: of its texts and metadata, not of its location."""
    about = [paper.title, paper.year, paper.lang, paper.license, paper.group, paper.abstract]
    about += [paper.doi, paper.url, paper.cite_key]
    lists = (paper.authors, paper.fields, paper.styles, paper.bibliography, paper.cites)
    return hash_parts(paper.text, *map(str, about), *(hash_parts(*values) for values in lists))


def hash_parts(*parts: bytes | str) -> str:
    """Return a hex digest of several byte or text strings that depends on where each ends."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()
