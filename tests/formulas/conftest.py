"""Fixtures of the tests of the engine."""

import pytest

from eqkin.formulas.engine import FormulaEngine


@pytest.fixture(scope="session")
def engine():
    """One engine for all tests that do not break it."""
    return FormulaEngine()
