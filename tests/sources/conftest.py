"""Fixtures of the tests of the readers."""

import sys

import pytest


class Work:
    """Counts what a call does instead of timing it, so that a busy machine changes nothing."""

    def count(self, call, size):
        lines = 0

        def trace(frame, event, argument):
            nonlocal lines
            lines += 1
            return trace

        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            call(size)
        finally:
            sys.settrace(previous)
        return lines

    def is_linear(self, call, size):
        """Assert that four times the input takes about four times the steps."""
        assert self.count(call, 4 * size) < 6 * self.count(call, size) + 1_000


@pytest.fixture
def work():
    return Work()
