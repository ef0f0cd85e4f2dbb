"""What the authors' test code would print; the table of equalities is made in `test_main`."""

import pytest

from research.equalities import print_as_authors


def test_authors_test_prints_larger_recalls():
    printed = print_as_authors({1: 0.5, 10: 0.5, 100: 1.0})
    assert printed == pytest.approx({1: 0.264 + 0.368 * 0.5, 10: 0.368 + 0.632 * 0.5, 100: 1}, abs=1e-3)
