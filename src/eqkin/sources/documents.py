"""Single documents that are not TeX: which reader takes which file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from eqkin.limits import LIMITS, Limits
from eqkin.sources.docstrings import read_module
from eqkin.sources.files import digest_of_file, file_key, read_capped, shown
from eqkin.sources.html import read_html
from eqkin.sources.markdown import read_markdown
from eqkin.sources.notebook import read_notebook
from eqkin.sources.paper import Item, Paper
from eqkin.sources.rest import read_rest
from eqkin.sources.text import refuse_binary

Reader = Callable[[bytes, str, str], Paper]  # raw content, key, origin

READERS: dict[str, Reader] = {
    "md": read_markdown,
    "ipynb": read_notebook,
    "rst": read_rest,
    "html": read_html,
    "python": read_module,
}

SUFFIXES = {
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


def document_item(path: Path, kind: str, limits: Limits = LIMITS) -> Item:
    """A file read by the reader of `kind`, a key of `READERS`."""
    key = file_key(path)
    return Item(key, shown(path), partial(load_document, str(path), kind, limits), digest_of_file(path))


def load_document(path: str, kind: str, limits: Limits) -> Paper:
    """The paper in one file, titled like the file if it has no title; raises `BadInput` or `LimitReached`."""
    limit = min(limits.python_bytes if kind == "python" else limits.document_bytes, limits.file_bytes)
    raw = read_capped(path, limit)
    refuse_binary(raw, shown(path))
    paper = READERS[kind](raw, file_key(path), shown(path))
    paper.title = paper.title or Path(shown(path)).stem
    return paper
