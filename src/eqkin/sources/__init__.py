"""What eqkin can read; every reader yields `Item`s whose `load` returns a `Paper`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from eqkin.errors import BadInput
from eqkin.limits import LIMITS, Limits
from eqkin.sources.archive import LookUp, Shard, eprint_item, expanded, is_bulk
from eqkin.sources.arxiv import ArxivClient, arxiv_item
from eqkin.sources.arxiv_ids import id_of_file, parse_id
from eqkin.sources.bundled import atlas_items
from eqkin.sources.docstrings import package_items
from eqkin.sources.documents import SUFFIXES, document_item
from eqkin.sources.files import OnSkip, head_of, kind_of, shown
from eqkin.sources.folder import RECORD_SUFFIXES, folder_items, tex_item
from eqkin.sources.includes import TEX_SUFFIXES
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Item, Paper
from eqkin.sources.records import record_items

__all__ = ["ArxivClient", "Item", "MetadataSnapshot", "Paper", "Shard", "open_shards", "open_source"]

READABLE = (
    "a folder; .tex, .md, .qmd, .Rmd, .ipynb, .rst, .html, .py; .jsonl (also .zst or .gz); an e-print "
    "(.tex, .gz, .tar, .tar.gz, .zip) or a bulk tar of them; arxiv:ID; python:PACKAGE; atlas: (bundled with eqkin)"
)


def open_source(
    spec: str,
    *,
    limits: Limits = LIMITS,
    metadata: MetadataSnapshot | None = None,
    arxiv: ArxivClient | None = None,
    on_skip: OnSkip | None = None,
) -> Iterator[Item]:
    """The papers behind one argument of a user.

    Args:
        spec: `arxiv:ID` or an address of arxiv.org, `python:PACKAGE`, or a path of a file or folder.
        limits: caps on what one paper may cost.
        metadata: where titles, authors and categories of e-prints in files are looked up.
        arxiv: how to download; with the usual settings by default.
        on_skip: called with what was left out (PDF members, links) and why.

    Returns:
        Items in a fixed order. Iterating raises `BadInput` where a bulk tar or a record file is damaged, after all
        items before the damage; within a folder that is an item that fails instead.

    Raises:
        BadInput: there is no such thing, or it is of a kind that cannot be read.
    """
    return expanded(open_shards(spec, limits=limits, metadata=metadata, arxiv=arxiv, on_skip=on_skip), on_skip)


def open_shards(
    spec: str,
    *,
    limits: Limits = LIMITS,
    metadata: MetadataSnapshot | None = None,
    arxiv: ArxivClient | None = None,
    on_skip: OnSkip | None = None,
) -> Iterator[Item | Shard]:
    """The same with bulk tars unopened, each a `Shard` that can be read elsewhere."""
    if spec.lower().startswith("arxiv:") or re.match(r"https?://", spec, re.IGNORECASE):
        return iter([arxiv_item(spec, arxiv or ArxivClient(limits=limits))])
    if spec == "atlas:":
        return atlas_items()
    if spec.startswith("python:"):
        return package_items(spec.removeprefix("python:"), limits)
    path = _existing(spec)
    look_up = metadata.get if metadata else None
    if path.is_dir():
        return folder_items(path, limits, look_up, on_skip)
    return _file_items(path, limits, look_up)


def _existing(spec: str) -> Path:
    try:
        path = Path(spec).expanduser().resolve()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{spec!r}: is no path ({error})") from error
    if not exists:
        hint = f"; for the arXiv paper write arxiv:{spec}" if parse_id(spec) else ""
        raise BadInput(f"{shown(spec)}: no such file or folder{hint}")
    return path


def _file_items(path: Path, limits: Limits, look_up: LookUp | None) -> Iterator[Item | Shard]:
    """Items of one file: archives by their first bytes, text by its suffix, else by what it looks like."""
    head = head_of(path, 4096)
    kind = kind_of(head)
    low = path.name.lower()
    if low.endswith(RECORD_SUFFIXES) and kind in ("text", "gzip", "zstd"):
        return record_items(path, limits)
    if kind in ("tar", "gzip", "zip"):
        if is_bulk(path, limits):
            return iter([Shard(path, limits, look_up)])
        return iter([eprint_item(path, limits, look_up)])
    if kind != "text":
        what = {"pdf": "PDF only, without its source", "empty": "is empty", "binary": "unknown binary data"}
        raise BadInput(f"{shown(path)}: {what.get(kind, f'a {kind} file')}; what can be read: {READABLE}")
    if path.suffix.lower() not in SUFFIXES and _holds_records(head):
        return record_items(path, limits)
    return iter([_text_item(path, low, head, limits, look_up)])


def _text_item(path: Path, low: str, head: bytes, limits: Limits, look_up: LookUp | None) -> Item:
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return document_item(path, SUFFIXES[suffix], limits)
    if low.endswith(TEX_SUFFIXES):
        return tex_item(path, path.parent, limits)
    if id_of_file(path.name):
        return eprint_item(path, limits, look_up)
    kind = _text_kind(head)
    if kind is None:
        raise BadInput(
            f"{shown(path)}: neither its name nor its content tells what it is; what can be read: {READABLE}"
        )
    return tex_item(path, path.parent, limits) if kind == "tex" else document_item(path, kind, limits)


def _holds_records(head: bytes) -> bool:
    return re.match(rb'\s*\{\s*"(?:doc_id|id|latex|text)"\s*:', head) is not None


def _text_kind(head: bytes) -> str | None:
    """What a text of unknown name looks like."""
    if re.match(rb"\s*\{", head) and b'"cells"' in head:
        return "ipynb"
    if re.search(rb"<(?:!doctype html|html|math)\b", head, re.IGNORECASE):
        return "html"
    if re.search(rb"\\(?:document(?:class|style)|(?:sub)?section|begin\s*\{|input\b|def\b|newcommand)", head):
        return "tex"
    if b".. math::" in head or b":math:`" in head:
        return "rst"
    return "md" if re.search(rb"\$|^#+ |^---\s*$", head, re.MULTILINE) else None
