"""numba's compiler, for loops over arrays: it works without its cache where that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def njit(*arguments: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit(...)`, which compiles every time if no cache folder can be written or the cache is damaged.

    Servers often run like that: as a user without a home, on a read-only file system. `NUMBA_CACHE_DIR` names a folder.
    """

    def compile_function(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(*arguments, **options)(function)
        except (
            Exception
        ):  # numba raises whatever reading or writing the cache raises; errors of the function come again
            return numba.njit(*arguments, **options | {"cache": False})(function)

    return compile_function
