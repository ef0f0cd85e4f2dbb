"""The cache folder: where downloads and look-up tables lie, written so that a reader never sees half a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eqkin.errors import StorageFailed


def get_cache_folder() -> Path:
    """`$EQKIN_CACHE`, else `eqkin` in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`)."""
    if own := os.environ.get("EQKIN_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "eqkin"


def make_folder(path: Path) -> Path:
    """`path`, made if it is not there; raises `StorageFailed` if that fails."""
    with translate_storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def translate_storage_errors(path: Path) -> Iterator[None]:
    """Makes an error of the disk while `path` is written a `StorageFailed`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageFailed(f"{path}: cannot be written ({reason}); free space or set EQKIN_CACHE") from error


@contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """A path to write to that takes the name `target` only when the block ends without an error; else it is removed.

    Raises `StorageFailed` for every error of the disk, also within the block.
    """
    make_folder(target.parent)
    with translate_storage_errors(target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        os.close(handle)
        try:
            yield Path(name)
            with open(name, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


def lock_exclusively(handle: int) -> None:
    """Hold a file for this process alone, where the system can do that."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
