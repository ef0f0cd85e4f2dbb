"""The cache folder: where downloads and look-up tables lie, written so that a reader never sees half a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eqkin.errors import BadInput


def cache_folder() -> Path:
    """`$EQKIN_CACHE`, else `eqkin` in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`)."""
    if own := os.environ.get("EQKIN_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "eqkin"


def make_folder(path: Path) -> Path:
    """`path`, made if it is not there; raises `BadInput` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path}: the cache folder cannot be made ({error.strerror}); set EQKIN_CACHE") from error
    return path


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A path to write to that takes the name `target` only when the block ends without an error; else it is removed.

    Raises `BadInput` if the folder cannot be written.
    """
    make_folder(target.parent)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        os.close(handle)
    except OSError as error:
        raise BadInput(f"{target.parent}: cannot be written ({error.strerror}); set EQKIN_CACHE") from error
    try:
        yield Path(name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
