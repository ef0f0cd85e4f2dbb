"""Texts within Milvus's limit of 65,535 bytes: longer ones are packed, and split where that is not enough."""

from __future__ import annotations

import base64
import binascii

import zstandard

from eqkin.backends.milvus.schema import MAX_TEXT_BYTES
from eqkin.errors import CorruptData
from eqkin.limits import LIMITS

_PACKED = "zstd+base64:"  # a text that begins so is packed, too
_MOST = 64 * LIMITS.mathml_chars  # bytes of an unpacked text


def fitted(text: str) -> str | None:
    """A text as it is kept: as it is, packed if it is long, None if it does not even fit then."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_TEXT_BYTES and not text.startswith(_PACKED):
        return text
    packed = _packed(encoded)
    return packed if len(packed) <= MAX_TEXT_BYTES else None


def split(text: str) -> list[str]:
    """A text as it is kept in one row or several."""
    whole = fitted(text)
    if whole is not None:
        return [whole]
    packed = _packed(text.encode("utf-8", "replace"))
    return [packed[start : start + MAX_TEXT_BYTES] for start in range(0, len(packed), MAX_TEXT_BYTES)]


def restored(kept: str) -> str:
    """The text that is kept so; raises `CorruptData`."""
    if not kept.startswith(_PACKED):
        return kept
    try:
        packed = base64.b64decode(kept[len(_PACKED) :], validate=True)
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=_MOST).decode()
    except (binascii.Error, zstandard.ZstdError, UnicodeDecodeError) as error:
        raise CorruptData(f"a packed text is damaged ({error}); push the library into another collection") from error


def _packed(encoded: bytes) -> str:
    return _PACKED + base64.b64encode(zstandard.ZstdCompressor(level=9).compress(encoded)).decode()
