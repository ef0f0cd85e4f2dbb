"""numba's compiler, for loops over arrays: it works without its cache where that cannot be used."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_SLOW_SECONDS = 2.0  # reading everything from the cache takes less


class _Progress:
    """Seconds spent so far, and whom to tell that it takes longer than reading the cache would."""

    announce: Callable[[str], None] | None = None  # set by the command line
    seconds = 0.0


progress = _Progress()


def njit(*arguments: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit(...)`, which compiles every time if no cache folder can be written or the cache is damaged.

    Servers often run like that: as a user without a home, on a read-only file system. `NUMBA_CACHE_DIR` names a folder.
    """
    import numba  # takes a third of a second, and `progress` needs none of it

    def compile_function(function: Callable[..., Any]) -> Any:
        started = time.perf_counter()
        try:
            compiled = numba.njit(*arguments, **options)(function)
        except Exception:
            # whatever reading or writing the cache raises; errors of the function itself come again
            compiled = numba.njit(*arguments, **options | {"cache": False})(function)
        progress.seconds += time.perf_counter() - started
        if progress.seconds > _SLOW_SECONDS and progress.announce is not None:
            progress.announce("compiling inner loops, once after an installation; this takes about 20 seconds")
            progress.announce = None
        return compiled

    return compile_function
