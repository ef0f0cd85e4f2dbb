"""Formulas for tests of systems, read by the real converter."""

from functools import cache

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.systems import FormulaSet


@cache
def _encoder():
    return Encoder.load()


def formulas(*latex):
    """These formulas, as trees and as LaTeX."""
    return FormulaSet(_encoder().parse_formulas(latex), list(latex))
