"""Fixtures of the tests of the readers."""

import gc
import time

import pytest

_ENOUGH = 0.01  # seconds a call must take before its time says anything
_LARGEST = 64  # times the size a test asks for


class Work:
    """Measures how the time of this process grows with the input, so that what other processes do changes little."""

    def seconds(self, call, size):
        """The best of three runs."""
        gc.collect()
        gc.disable()
        try:
            return min(self._once(call, size) for _ in range(3))
        finally:
            gc.enable()

    def _once(self, call, size):
        started = time.process_time()
        call(size)
        return time.process_time() - started

    def is_linear(self, call, size):
        """Assert that four times the input takes about four times as long; quadratic work takes sixteen times.

        The size grows until the time can be measured.
        """
        largest = size * _LARGEST
        while size < largest and self._once(call, size) < _ENOUGH:
            size *= 2
        before = self.seconds(call, size)
        tries = [0.0] * 3
        for at in range(len(tries)):  # the best of three counts: the first that is fast enough will do
            tries[at] = self._once(call, 4 * size)
            if tries[at] < 8 * before + _ENOUGH:
                return
        pytest.fail(f"size {size}: {before:.3f} s, size {4 * size}: {min(tries):.3f} s")


@pytest.fixture
def work():
    return Work()
