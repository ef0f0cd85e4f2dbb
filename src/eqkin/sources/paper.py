r"""`Paper`, which every reader returns, `SourceItem`, a paper not read yet, and the LaTeX that readers write."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from eqkin.errors import BadInput, EqkinError


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
    return hash_parts(repr(replace(paper, key="", origin="", notes=[])))


def hash_parts(*parts: bytes | str) -> str:
    """Return a hex digest of several byte or text strings that depends on where each ends."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()


_DECLARED = re.compile(rb"\\usepackage\s*\[\s*([A-Za-z0-9-]{3,12})\s*\]\s*\{inputenc\}")
_INPUTENC = {
    b"latin1": "cp1252",
    b"latin2": "iso8859-2",
    b"latin3": "iso8859-3",
    b"latin4": "iso8859-4",
    b"latin5": "iso8859-9",
    b"latin9": "iso8859-15",
    b"cp1250": "cp1250",
    b"cp1251": "cp1251",
    b"cp1252": "cp1252",
    b"ansinew": "cp1252",
    b"applemac": "mac_roman",
    b"koi8-r": "koi8-r",
    b"koi8-u": "koi8-u",
    b"cp866": "cp866",
}
_SURROGATE = re.compile("[\x00\ud800-\udfff]")
_BARE_PERCENT = re.compile(r"(\\.)|%", re.DOTALL)
_DISPLAY = re.compile(r"\\begin\{((?:equation|align|alignat|flalign|gather|multline|eqnarray|displaymath)\*?)\}")
_HEADING_COMMANDS = ("section", "subsection", "subsubsection", "paragraph", "subparagraph")


_CONTROLS = bytes(code for code in range(1, 32) if code not in b"\t\n\v\f\r\x1b")
_BINARY_SAMPLE_BYTES = 100_000


def refuse_binary(raw: bytes, name: str) -> None:
    """Raise `BadInput` for data with too many control characters to be text (zeros may be UTF-16)."""
    sample = raw[:_BINARY_SAMPLE_BYTES]
    if len(sample) - len(sample.translate(None, _CONTROLS)) > 0.04 * len(sample) + 8:
        raise BadInput(f"{name}: binary data, not text")


def decode_text(raw: bytes) -> str:
    r"""Decode a source file in any encoding.

    UTF-8 (also with a byte order mark), UTF-16 with one, else the encoding that `\usepackage[...]{inputenc}` declares,
    else Windows-1252. NULs and lone surrogates are dropped, line ends become `\n`.
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = raw.decode("utf-16", "replace")
    else:
        raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = _decode_legacy(raw)
    return clean_text(text)


def _decode_legacy(raw: bytes) -> str:
    declared = _DECLARED.search(raw[:100_000])
    codec = _INPUTENC.get(declared.group(1).lower(), "cp1252") if declared else "cp1252"
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def clean_text(text: str) -> str:
    r"""Return `text` without NULs and lone surrogates, with `\n` as its only line end."""
    return _SURROGATE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def escape_percent(prose: str) -> str:
    r"""Escape `%` so that none starts a LaTeX comment; `\%` stays as it is."""
    return _BARE_PERCENT.sub(lambda m: m.group(1) or r"\%", prose)


def format_heading(level: int, title: str) -> str:
    r"""Return a heading of `level` 1, 2, ... as `\section{title}` and so on, on lines of its own."""
    title = escape_unbalanced_braces(" ".join(title.split()))
    return f"\n\n\\{_HEADING_COMMANDS[min(max(level, 1), len(_HEADING_COMMANDS)) - 1]}{{{title}}}\n\n"


def format_display_math(latex: str) -> str:
    r"""Return `latex` as one display equation: `\[...\]`, or as it is if it is one display environment already.

    Blank lines are removed, because math must not contain them; blank input gives an empty text.
    """
    body = "\n".join(line for line in latex.strip().split("\n") if line.strip())
    if not body:
        return ""
    own = _DISPLAY.match(body)
    if own and body.find(rf"\end{{{own.group(1)}}}") == len(body) - len(rf"\end{{{own.group(1)}}}"):
        return f"\n{body}\n"
    return f"\n\\[\n{body}\n\\]\n"


def escape_unbalanced_braces(text: str) -> str:
    r"""Escape every unbalanced brace as `\{` or `\}`, so that `text` can be an argument."""
    opened: list[int] = []
    stray: set[int] = set()
    for match in re.finditer(r"\\[\s\S]|[{}]", text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}":
            if opened:
                opened.pop()
            else:
                stray.add(match.start())
    stray.update(opened)
    if stray:
        text = "".join("\\" + c if i in stray else c for i, c in enumerate(text))
    trailing = len(text) - len(text.rstrip("\\"))
    return text + " " if trailing % 2 else text
