"""Fixtures of the tests of trees."""

import pytest

from eqkin.formulas.converter import Converter


@pytest.fixture(scope="session")
def converter():
    """One engine for all tests."""
    return Converter()
