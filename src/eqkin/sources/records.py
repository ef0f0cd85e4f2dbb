"""Documents kept as JSON lines (`.jsonl`, also gzipped or zstd-compressed): one paper a record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.sources.files import failed_item, file_key, shown
from eqkin.sources.lines import lines_of
from eqkin.sources.paper import Item, Paper, digest_of
from eqkin.sources.text import clean

_ID_NAMES = ("doc_id", "id", "key")
_TEXT_NAMES = ("latex", "text")


def record_items(path: Path, limits: Limits = LIMITS) -> Iterator[Item]:
    """The records of a file, each an item with its raw line.

    A line that cannot be read is an item that fails; a damaged file raises `BadInput` after the lines before that.
    """
    for line in lines_of(path, limits.line_bytes):
        origin = f"{shown(path)}:{line.number}"
        fallback = f"{file_key(path)}:{line.number}"
        if line.raw is None:
            error = LimitReached(f"{origin}: the line is longer than {limits.line_bytes:,} bytes")
            yield failed_item(fallback, origin, error)
            continue
        try:
            key = _key_of(_parse(line.raw, origin), fallback)
        except BadInput as error:
            yield failed_item(fallback, origin, error)
            continue
        yield Item(key, origin, partial(_load, line.raw, key, origin), digest_of(line.raw))


def _parse(raw: bytes, origin: str) -> dict[str, Any]:
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{origin}: is not a JSON record ({error})") from error
    if not isinstance(record, dict):
        raise BadInput(f"{origin}: is not a JSON object")
    return record


def _key_of(record: dict[str, Any], fallback: str) -> str:
    for name in _ID_NAMES:
        value = record.get(name)
        if isinstance(value, str | int) and str(value).strip():
            return f"record:{value}"
    return fallback


def _load(raw: bytes, key: str, origin: str) -> Paper:
    record = _parse(raw, origin)
    text = next((record[name] for name in _TEXT_NAMES if isinstance(record.get(name), str)), None)
    if text is None:
        raise BadInput(f"{origin}: the record has no text under {' or '.join(_TEXT_NAMES)!r}")
    year = record.get("year")
    return Paper(
        key=key,
        text=clean(text),
        origin=_string(record, "path") or origin,
        kind="jsonl",
        title=_string(record, "title"),
        authors=_strings(record, "authors"),
        year=year if isinstance(year, int) else None,
        fields=_strings(record, "fields") or _strings(record, "discipline"),
        lang=_string(record, "lang"),
        license=_string(record, "license"),
        group=_string(record, "repo") or _string(record, "parent"),
        abstract=_string(record, "abstract"),
        styles=_strings(record, "local_macros"),
        cites=_strings(record, "arxiv_ids_cited"),
    )


def _string(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _strings(record: dict[str, Any], name: str) -> list[str]:
    """A field that may be one string or a list of them."""
    value = record.get(name)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]
