"""A scope that cancels its work at a certain check."""

from eqkin.limits import CancelScope


class CountingScope(CancelScope):
    """Cancelled after a number of checks."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    @property
    def cancelled(self) -> bool:  # type: ignore[override]
        self.left -= 1
        return self.left < 0
