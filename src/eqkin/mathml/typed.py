r"""Formulas as people type them or take them from elsewhere -> trees, one at a time."""

from __future__ import annotations

from eqkin.latex.glued import respaced
from eqkin.mathml.converter import Converter
from eqkin.mathml.formulas import Conversion, Outcome, convert

_ROUNDS = 3  # a formula that got some of its blanks back may show others


def convert_typed(converter: Converter, formula: str) -> Conversion:
    """Convert one formula, as `eqkin.latex.formula.typed_formula` gives it; a better reading of lost blanks counts.

    The forest has one tree, or none if the formula cannot be read; then the failure is that of the formula as given.
    """
    conversion = convert(converter, [formula])
    for _ in range(_ROUNDS):
        outcome = conversion.outcomes[0]
        mended = respaced(formula, outcome.unknown, outcome.failure is not None)
        if mended == formula:
            break
        again = convert(converter, [mended])
        if _faults(again.outcomes[0]) > _faults(outcome):
            break
        if again.outcomes[0].failure is None:
            again.outcomes[0].repaired = True
            conversion = again
        formula = mended
    return conversion


def _faults(outcome: Outcome) -> tuple[bool, int]:
    return outcome.failure is not None, len(outcome.unknown)
