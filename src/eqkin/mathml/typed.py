r"""Formulas as people type them or take them from elsewhere -> trees, one at a time."""

from __future__ import annotations

from eqkin.latex.glued import restore_spaces
from eqkin.mathml.converter import Converter
from eqkin.mathml.formulas import Conversion, FormulaOutcome, convert_formulas

_RESPACING_ROUNDS = 3  # a formula that got some of its blanks back may show others


def convert_typed_formula(converter: Converter, formula: str) -> Conversion:
    """Convert one formula, as `eqkin.latex.formula.typed_formula` gives it; a better reading of lost blanks counts.

    The forest has one tree, or none if the formula cannot be read; then the failure is that of the formula as given.
    """
    conversion = convert_formulas(converter, [formula])
    for _ in range(_RESPACING_ROUNDS):
        outcome = conversion.outcomes[0]
        mended = restore_spaces(formula, outcome.unknown, outcome.failure is not None)
        if mended == formula:
            break
        again = convert_formulas(converter, [mended])
        if _count_faults(again.outcomes[0]) > _count_faults(outcome):
            break
        if again.outcomes[0].failure is None:
            again.outcomes[0].repaired = True
            conversion = again
        formula = mended
    return conversion


def _count_faults(outcome: FormulaOutcome) -> tuple[bool, int]:
    return outcome.failure is not None, len(outcome.unknown)
