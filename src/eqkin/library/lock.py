"""One writer at a time.

The lock is the operating system's: it goes with the process, also when that is killed. The file names its holder for
whoever is refused, and is emptied when it is let go.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from eqkin.errors import LibraryBusy, StorageFailed

if sys.platform == "win32":
    import msvcrt

    def _lock_file(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock_file(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class WriterLock:
    """Context manager that holds a library's writer lock; `LibraryBusy` if another process has it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._descriptor = -1

    def __enter__(self) -> WriterLock:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageFailed(f"{self.path}: cannot write to the library ({error.strerror})") from error
        try:
            _lock_file(self._descriptor)
        except OSError as error:
            holder = os.read(self._descriptor, 500).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise LibraryBusy(
                f"{self.path.parent}: another writer is at work ({holder or 'unknown'}); try again later"
            ) from error
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError):  # the name is for others to read; the lock holds without it
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
