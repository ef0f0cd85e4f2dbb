"""Documents kept as JSON lines (`.jsonl`, also gzipped or zstd-compressed): one paper a record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.sources.arxiv_ids import parse_id
from eqkin.sources.files import failed_item, file_key, shown
from eqkin.sources.lines import lines_of
from eqkin.sources.paper import Item, Paper, digest_of
from eqkin.sources.text import clean

_LOCAL_NAMES = ("id", "key")  # tell the records of one file apart, and no more than that
_TEXT_NAMES = ("latex", "text")


def record_items(path: Path, limits: Limits = LIMITS) -> Iterator[Item]:
    """The records of a file, each an item with its raw line.

    A line that cannot be read is an item that fails; a damaged file raises `BadInput` after the lines before that.
    """
    for line in lines_of(path, limits.line_bytes):
        origin = f"{shown(path)}:{line.number}"
        fallback = f"{file_key(path)}#line-{line.number}"
        if line.raw is None:
            error = LimitReached(f"{origin}: the line is longer than {limits.line_bytes:,} bytes")
            yield failed_item(fallback, origin, error)
            continue
        try:
            key = _key_of(_parse(line.raw, origin), path, fallback)
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


def _key_of(record: dict[str, Any], path: Path, fallback: str) -> str:
    """Key of a record: only `doc_id` names it everywhere, other names count within their file."""
    if name := _name(record.get("doc_id")):
        return f"record:{name}"
    name = next((name for field in _LOCAL_NAMES if (name := _name(record.get(field)))), "")
    return f"{file_key(path)}#{name}" if name else fallback


def _name(value: Any) -> str:
    usable = isinstance(value, str | int) and not isinstance(value, bool)
    return clean(str(value)) if usable and str(value).strip() else ""


def _load(raw: bytes, key: str, origin: str) -> Paper:
    record = _parse(raw, origin)
    text = next((record[name] for name in _TEXT_NAMES if isinstance(record.get(name), str)), None)
    if text is None:
        raise BadInput(f"{origin}: the record has no text under {' or '.join(_TEXT_NAMES)!r}")
    return Paper(
        key=key,
        text=clean(text),
        origin=_string(record, "path") or origin,
        kind="jsonl",
        title=_string(record, "title"),
        authors=_strings(record, "authors"),
        year=_year(record.get("year")),
        fields=_strings(record, "fields") or _strings(record, "discipline"),
        lang=_string(record, "lang"),
        license=_string(record, "license"),
        group=_string(record, "repo") or _string(record, "parent"),
        abstract=_string(record, "abstract"),
        styles=_strings(record, "local_macros"),
        cites=_cites(record),
    )


def _year(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 10_000 else None


def _cites(record: dict[str, Any]) -> list[str]:
    """Identifiers of the cited papers in their plain form, each once; what is no identifier is dropped."""
    found = [parse_id(text) for text in _strings(record, "arxiv_ids_cited")]
    return list(dict.fromkeys(arxiv_id.base for arxiv_id in found if arxiv_id))


def _string(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _strings(record: dict[str, Any], name: str) -> list[str]:
    """A field that may be one string or a list of them."""
    value = record.get(name)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]
