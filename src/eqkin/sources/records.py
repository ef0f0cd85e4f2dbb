"""Papers in JSON lines (`.jsonl`, also gzipped or zstd-compressed), one per record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.latex.titles import find_doi, parse_arxiv_id
from eqkin.limits import LIMITS
from eqkin.sources.files import display_path, iter_lines, make_file_key
from eqkin.sources.paper import Paper, SourceItem, clean_text, hash_parts, make_failed_item

_LOCAL_KEY_FIELDS = ("id", "key")  # identify a record within its file only
_TEXT_FIELDS = ("latex", "text")


def iter_record_items(path: Path) -> Iterator[SourceItem]:
    """Yield the records of a file, each an item with its raw line.

    An unreadable line is an item that fails; a damaged file raises `BadInput` after the lines before the damage.
    """
    for number, line in iter_lines(path, LIMITS.line_bytes):
        origin = f"{display_path(path)}:{number}"
        fallback = f"{make_file_key(path)}#line-{number}"
        if line is None:
            error = LimitReached(f"{origin}: the line is longer than {LIMITS.line_bytes:,} bytes")
            yield make_failed_item(fallback, origin, error)
            continue
        try:
            key = _make_record_key(_parse_record(line, origin), path, fallback)
        except BadInput as error:
            yield make_failed_item(fallback, origin, error)
            continue
        load = partial(_load_record, line, key, origin)
        yield SourceItem(key, origin, load=load, digest=hash_parts(line), size=len(line))


def _parse_record(raw: bytes, origin: str) -> dict[str, Any]:
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{origin}: is not a JSON record ({error})") from error
    if not isinstance(record, dict):
        raise BadInput(f"{origin}: is not a JSON object")
    return record


def _make_record_key(record: dict[str, Any], path: Path, fallback: str) -> str:
    """Return the key of a record: a `doc_id` is global, other names belong to their file."""
    if name := _read_name(record.get("doc_id")):
        return f"record:{name}"
    name = next((name for field in _LOCAL_KEY_FIELDS if (name := _read_name(record.get(field)))), "")
    return f"{make_file_key(path)}#{name}" if name else fallback


def _read_name(value: Any) -> str:
    usable = isinstance(value, str | int) and not isinstance(value, bool)
    return clean_text(str(value)) if usable and str(value).strip() else ""


def _load_record(raw: bytes, key: str, origin: str) -> Paper:
    record = _parse_record(raw, origin)
    year = record.get("year")
    cited = [parse_arxiv_id(text) for text in _read_strings(record, "arxiv_ids_cited")]
    text = next((record[name] for name in _TEXT_FIELDS if isinstance(record.get(name), str)), None)
    if text is None:
        raise BadInput(f"{origin}: the record has no text under {' or '.join(_TEXT_FIELDS)!r}")
    return Paper(
        key=key,
        text=clean_text(text),
        origin=_read_string(record, "path") or origin,
        kind="jsonl",
        title=_read_string(record, "title"),
        authors=_read_strings(record, "authors"),
        year=year if type(year) is int and 0 < year < 10_000 else None,
        fields=_read_strings(record, "fields") or _read_strings(record, "discipline"),
        lang=_read_string(record, "lang"),
        license=_read_string(record, "license"),
        group=_read_string(record, "repo") or _read_string(record, "parent"),
        abstract=_read_string(record, "abstract"),
        doi=find_doi(_read_string(record, "doi")),
        url=_read_string(record, "url"),
        styles=_read_strings(record, "local_macros"),
        cites=list(dict.fromkeys(arxiv_id.base for arxiv_id in cited if arxiv_id)),
    )


def _read_string(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _read_strings(record: dict[str, Any], name: str) -> list[str]:
    """Return the strings of a field that may be one string or a list."""
    value = record.get(name)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]
