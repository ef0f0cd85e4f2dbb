"""What eqkin can read; every reader yields `Item`s whose `load` returns a `Paper`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from eqkin.errors import BadInput
from eqkin.limits import LIMITS, Limits
from eqkin.sources.archive import MetadataLookup, Shard, expand_shards, is_bulk_tar, make_eprint_item
from eqkin.sources.arxiv import ArxivClient, make_arxiv_item
from eqkin.sources.arxiv_ids import parse_arxiv_id, parse_file_name
from eqkin.sources.bundled import iter_atlas_items
from eqkin.sources.docstrings import iter_package_items
from eqkin.sources.documents import DOCUMENT_SUFFIXES, make_document_item
from eqkin.sources.files import SkipCallback, detect_kind, display_path, read_head
from eqkin.sources.folder import RECORD_SUFFIXES, iter_folder_items, make_tex_item
from eqkin.sources.includes import TEX_SUFFIXES
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Paper, SourceItem
from eqkin.sources.records import iter_record_items

__all__ = ["ArxivClient", "SourceItem", "MetadataSnapshot", "Paper", "Shard", "open_source_shards", "open_source"]

READABLE_SOURCES = (
    "a folder; .tex, .md, .qmd, .Rmd, .ipynb, .rst, .html, .py; .jsonl (also .zst or .gz); an e-print "
    "(.tex, .gz, .tar, .tar.gz, .zip) or a bulk tar of them; arxiv:ID; python:PACKAGE; atlas: (bundled with eqkin)"
)


def open_source(
    spec: str,
    *,
    limits: Limits = LIMITS,
    metadata: MetadataSnapshot | None = None,
    arxiv: ArxivClient | None = None,
    on_skip: SkipCallback | None = None,
) -> Iterator[SourceItem]:
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
    return expand_shards(
        open_source_shards(spec, limits=limits, metadata=metadata, arxiv=arxiv, on_skip=on_skip), on_skip
    )


def open_source_shards(
    spec: str,
    *,
    limits: Limits = LIMITS,
    metadata: MetadataSnapshot | None = None,
    arxiv: ArxivClient | None = None,
    on_skip: SkipCallback | None = None,
) -> Iterator[SourceItem | Shard]:
    """The same with bulk tars unopened, each a `Shard` that can be read elsewhere."""
    if spec.lower().startswith("arxiv:") or re.match(r"https?://", spec, re.IGNORECASE):
        return iter([make_arxiv_item(spec, arxiv or ArxivClient(limits=limits))])
    if spec == "atlas:":
        return iter_atlas_items()
    if spec.startswith("python:"):
        return iter_package_items(spec.removeprefix("python:"), limits)
    path = _resolve_existing_path(spec)
    look_up = metadata.get if metadata else None
    if path.is_dir():
        return iter_folder_items(path, limits, look_up, on_skip)
    return _open_file(path, limits, look_up)


def _resolve_existing_path(spec: str) -> Path:
    try:
        path = Path(spec).expanduser().resolve()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{spec!r}: is no path ({error})") from error
    if not exists:
        hint = f"; for the arXiv paper write arxiv:{spec}" if parse_arxiv_id(spec) else ""
        raise BadInput(f"{display_path(spec)}: no such file or folder{hint}")
    return path


def _open_file(path: Path, limits: Limits, look_up: MetadataLookup | None) -> Iterator[SourceItem | Shard]:
    """Items of one file: archives by their first bytes, text by its suffix, else by what it looks like."""
    head = read_head(path, 4096)
    kind = detect_kind(head)
    low = path.name.lower()
    if low.endswith(RECORD_SUFFIXES) and kind in ("text", "gzip", "zstd"):
        return iter_record_items(path, limits)
    if kind in ("tar", "gzip", "zip"):
        if is_bulk_tar(path, limits):
            return iter([Shard(path, limits, look_up)])
        return iter([make_eprint_item(path, limits, look_up)])
    if kind != "text":
        what = {"pdf": "PDF only, without its source", "empty": "is empty", "binary": "unknown binary data"}
        raise BadInput(
            f"{display_path(path)}: {what.get(kind, f'a {kind} file')}; what can be read: {READABLE_SOURCES}"
        )
    if path.suffix.lower() not in DOCUMENT_SUFFIXES and _looks_like_records(head):
        return iter_record_items(path, limits)
    return iter([_open_text_file(path, low, head, limits, look_up)])


def _open_text_file(path: Path, low: str, head: bytes, limits: Limits, look_up: MetadataLookup | None) -> SourceItem:
    suffix = path.suffix.lower()
    if suffix in DOCUMENT_SUFFIXES:
        return make_document_item(path, DOCUMENT_SUFFIXES[suffix], limits)
    if low.endswith(TEX_SUFFIXES):
        return make_tex_item(path, path.parent, limits)
    if parse_file_name(path.name):
        return make_eprint_item(path, limits, look_up)
    kind = _guess_text_kind(head)
    if kind is None:
        raise BadInput(
            f"{display_path(path)}: neither its name nor its content tells what it is; what can be read: {READABLE_SOURCES}"
        )
    return make_tex_item(path, path.parent, limits) if kind == "tex" else make_document_item(path, kind, limits)


def _looks_like_records(head: bytes) -> bool:
    return re.match(rb'\s*\{\s*"(?:doc_id|id|latex|text)"\s*:', head) is not None


def _guess_text_kind(head: bytes) -> str | None:
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
