"""Pictures of formulas on disk: four levels of grey, compressed, each found by a hash of its tree.

A file has a line of JSON that describes it, the keys (8 bytes each), and the pictures, compressed. Four levels leave
symbols legible that two would not; column by column, pictures take a quarter less than row by row: 260 bytes each.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from eqkin.errors import CorruptData, StorageFailed
from eqkin.evaluation.systems.bitmaps.rendering import HEIGHT, VERSION, WIDTH, Images
from eqkin.storage import write_file

FORMAT = "eqkin-bitmaps"
ROW_BYTES = -(-WIDTH // 4)  # bytes a row of a picture takes

PackedImages = npt.NDArray[
    np.uint8
]  # (formulas, COLUMNS, HEIGHT), four pixels a byte, the leftmost in the highest bits
Keys = npt.NDArray[np.uint64]

_COMPRESSION_LEVEL = 12  # of compression; 19 takes 13 times as long for files 6 % smaller
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)


def pack(images: Images) -> PackedImages:
    """Pictures in four levels of grey."""
    levels = np.zeros((len(images), HEIGHT, ROW_BYTES * 4), np.uint8)
    levels[:, :, :WIDTH] = (images.astype(np.uint16) * 3 + 127) // 255
    fours = levels.reshape(len(images), HEIGHT, ROW_BYTES, 4) << _SHIFTS
    return np.ascontiguousarray(np.bitwise_or.reduce(fours, axis=3).swapaxes(1, 2))


def unpack(packed: PackedImages) -> Images:
    """Pictures with ink from 0 to 255."""
    fours = (packed.swapaxes(1, 2)[..., None] >> _SHIFTS) & 3
    return np.asarray(fours.reshape(len(packed), HEIGHT, ROW_BYTES * 4)[:, :, :WIDTH] * np.uint8(85))


@dataclass(frozen=True, eq=False)
class BitmapFile:
    """What one file holds."""

    path: Path
    keys: Keys  # each once
    browser: str  # that rendered it
    _content: bytes

    def read_images(self) -> PackedImages:
        """The pictures, in the order of the keys; raises `CorruptData`."""
        size = len(self.keys) * ROW_BYTES * HEIGHT
        try:
            data = zstandard.ZstdDecompressor().decompress(self._content, max_output_size=max(size, 1))
        except zstandard.ZstdError as error:
            raise _make_error(self.path, error) from error
        if len(data) != size:
            raise _make_error(self.path, "it holds another number of pictures")
        return np.frombuffer(data, np.uint8).reshape(-1, ROW_BYTES, HEIGHT)


def write_bitmaps(folder: Path, keys: Keys, pictures: PackedImages, browser: str) -> Path:
    """Put pictures into a new file of the folder, named by its content; raises `StorageFailed`."""
    body = keys.astype("<u8").tobytes()
    body += zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(pictures.tobytes())
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FORMAT, "version": VERSION, "browser": browser, "count": len(keys), "digest": digest}
    path = folder / f"{digest[:16]}.bitmaps"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: could not be made ({error.strerror or error})") from error
    write_file(path, json.dumps(header).encode() + b"\n" + body)
    return path


def read_bitmaps(path: Path) -> BitmapFile:
    """What `write` wrote; raises `CorruptData` if it is damaged or of another version, or `StorageFailed`."""
    try:
        line, _, body = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error
    try:
        header: dict[str, Any] = json.loads(line)
        found = (header["format"], header["version"])
        count, browser, digest = int(header["count"]), str(header["browser"]), header["digest"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _make_error(path, error) from error
    if found != (FORMAT, VERSION):
        raise CorruptData(f"{path}: pictures of another version of eqkin; delete it to render them again")
    if hashlib.sha256(body).hexdigest() != digest or not 0 <= count * 8 <= len(body):
        raise _make_error(path, "it does not match its hash")
    return BitmapFile(path, np.frombuffer(body[: count * 8], "<u8").astype(np.uint64), browser, body[count * 8 :])


def _make_error(path: Path, why: object) -> CorruptData:
    return CorruptData(f"{path}: damaged ({why}); delete it to render its pictures again")
