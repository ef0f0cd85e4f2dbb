"""Fixtures of the tests of the converter."""

import pytest

from eqkin.formulas.engine import FormulaEngine


@pytest.fixture(scope="session")
def converter():
    """One engine for all tests that do not break it."""
    return FormulaEngine()
