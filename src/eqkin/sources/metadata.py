"""Metadata of arXiv papers, and look-ups in arXiv's public metadata snapshot."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.files import write_atomically
from eqkin.latex.titles import parse_arxiv_id
from eqkin.limits import LIMITS
from eqkin.sources.files import display_path, get_cache_folder, iter_lines, make_cache_folder, open_regular
from eqkin.sources.paper import Paper, clean_text, hash_parts

# Version of the look-up table.
_TABLE_FORMAT = 2


@dataclass(frozen=True)
class ArxivMetadata:
    """Metadata of one arXiv paper."""

    arxiv_id: str
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int | None = None
    fields: tuple[str, ...] = field(default=())  # categories, main one first
    abstract: str = ""
    license: str = ""


def add_metadata_to_digest(digest: str, meta: ArxivMetadata | None) -> str:
    """Return the digest of a source together with the metadata that its paper gets."""
    return hash_parts(digest, orjson.dumps(meta)) if meta and digest else digest


def apply_metadata(paper: Paper, meta: ArxivMetadata) -> Paper:
    """Set the fields of `paper` that `meta` has, and return `paper`."""
    paper.title = meta.title or paper.title
    paper.authors = list(meta.authors) or paper.authors
    paper.year = meta.year or paper.year
    paper.fields = list(meta.fields) or paper.fields
    paper.abstract = meta.abstract or paper.abstract
    paper.license = meta.license or paper.license
    return paper


class MetadataSnapshot:
    """Look-up by identifier in the public metadata snapshot: JSON lines, plain, gzipped or zstd-compressed.

    The first use reads the file once and leaves a table of the records by identifier in the cache.

    Args:
        path: the snapshot.
        folder: for the table; the cache folder by default.

    Raises:
        BadInput: the snapshot cannot be read.
        StorageFailed: the look-up table cannot be written.
    """

    def __init__(self, path: Path | str, *, folder: Path | None = None) -> None:
        self._path = Path(path).resolve()
        with open_regular(self._path):
            info = self._path.stat()
        name = hash_parts(str(_TABLE_FORMAT), display_path(self._path), str(info.st_size), str(info.st_mtime_ns))
        self._table = make_cache_folder(folder or get_cache_folder()) / f"metadata-{name}.sqlite"
        if not self._table.exists():
            self._build_table()

    def get(self, arxiv_id: str) -> ArxivMetadata | None:
        """Return the metadata of one paper, None if it has none; raise `CorruptData` if the table is damaged."""
        parsed = parse_arxiv_id(arxiv_id)
        if parsed is None:
            return None
        try:
            with closing(sqlite3.connect(f"{self._table.as_uri()}?mode=ro", uri=True)) as table:
                row = table.execute("SELECT record FROM papers WHERE id = ?", (parsed.base,)).fetchone()
            return parse_snapshot_record(orjson.loads(zlib.decompress(row[0]))) if row else None
        except (sqlite3.Error, zlib.error, orjson.JSONDecodeError) as error:
            raise CorruptData(f"{self._table}: the look-up table is damaged ({error}); delete it") from error

    def _build_table(self) -> None:
        with write_atomically(self._table) as target:
            try:
                with closing(sqlite3.connect(target)) as table:
                    # An incomplete table never gets its name.
                    table.execute("PRAGMA journal_mode = OFF")
                    table.execute("CREATE TABLE papers (id TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID")
                    table.executemany("INSERT OR REPLACE INTO papers VALUES (?, ?)", self._iter_rows())
                    table.commit()
                    count = table.execute("SELECT count(*) FROM papers").fetchone()[0]
            except sqlite3.Error as error:
                raise StorageFailed(f"{self._table.parent}: the look-up table cannot be written ({error})") from error
            if not count:
                raise BadInput(f"{display_path(self._path)}: holds no arXiv metadata (JSON lines with an id each)")

    def _iter_rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield the identifier and the packed line of each record that has one."""
        for _, line in iter_lines(self._path, LIMITS.line_bytes):
            try:
                record = orjson.loads(line or b"")
            except orjson.JSONDecodeError:
                continue
            parsed = parse_arxiv_id(str(record.get("id", ""))) if isinstance(record, dict) else None
            if line and parsed:
                yield parsed.base, zlib.compress(line, 1)


def parse_snapshot_record(record: dict[str, Any]) -> ArxivMetadata:
    """Return the metadata in one record of the snapshot; fields of an unexpected type are left empty."""
    parsed = record.get("authors_parsed")
    authors = [_join_name(parts) for parts in parsed if isinstance(parts, list)] if isinstance(parsed, list) else []
    if not authors and isinstance(record.get("authors"), str):
        authors = [name.strip() for name in record["authors"].replace(" and ", ",").split(",")]
    arxiv_id = str(record.get("id", ""))
    dated = parse_arxiv_id(arxiv_id)
    updated = str(record.get("update_date", ""))[:4]
    return ArxivMetadata(
        arxiv_id=arxiv_id,
        title=_normalize_text(record.get("title")),
        authors=tuple(name for name in authors if name),
        year=dated.year if dated else int(updated) if updated.isascii() and updated.isdigit() else None,
        fields=tuple(_normalize_text(record.get("categories")).split()),
        abstract=_normalize_text(record.get("abstract")),
        license=_normalize_text(record.get("license")),
    )


def _join_name(parts: list[Any]) -> str:
    """Return "Jane Doe Jr." for `["Doe", "Jane", "Jr."]`."""
    last, first, suffix, *_ = [p if isinstance(p, str) else "" for p in [*parts, "", "", ""]]
    return clean_text(" ".join(f"{first} {last} {suffix}".split()))


def _normalize_text(value: Any) -> str:
    return clean_text(" ".join(value.split())) if isinstance(value, str) else ""
