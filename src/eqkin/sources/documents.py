"""Single documents that are not TeX: which reader takes which file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from eqkin.limits import LIMITS, Limits
from eqkin.sources.docstrings import read_module
from eqkin.sources.files import display_path, hash_file, make_file_key, read_capped
from eqkin.sources.html import read_html
from eqkin.sources.markdown import read_markdown
from eqkin.sources.notebook import read_notebook
from eqkin.sources.paper import Paper, SourceItem
from eqkin.sources.rest import read_rest
from eqkin.sources.text import refuse_binary

DocumentReader = Callable[[bytes, str, str], Paper]  # raw content, key, origin

DOCUMENT_READERS: dict[str, DocumentReader] = {
    "md": read_markdown,
    "ipynb": read_notebook,
    "rst": read_rest,
    "html": read_html,
    "python": read_module,
}

DOCUMENT_SUFFIXES = {
    ".md": "md",
    ".markdown": "md",
    ".qmd": "md",
    ".rmd": "md",
    ".ipynb": "ipynb",
    ".rst": "rst",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".py": "python",
}


def make_document_item(path: Path, kind: str, limits: Limits = LIMITS) -> SourceItem:
    """A file read by the reader of `kind`, a key of `READERS`."""
    key = make_file_key(path)
    return SourceItem(key, display_path(path), partial(load_document, str(path), kind, limits), hash_file(path))


def load_document(path: str, kind: str, limits: Limits) -> Paper:
    """The paper in one file, titled like the file if it has no title; raises `BadInput` or `LimitReached`."""
    limit = min(limits.python_bytes if kind == "python" else limits.document_bytes, limits.file_bytes)
    raw = read_capped(path, limit)
    refuse_binary(raw, display_path(path))
    paper = DOCUMENT_READERS[kind](raw, make_file_key(path), display_path(path))
    paper.title = paper.title or Path(display_path(path)).stem
    return paper
