r"""Formulas of one document -> trees, with a second chance for what fails at first.

As written they meet the document's macros, the preludes of its packages, and stand-ins for commands that nobody defines
(then the formula counts as degraded). Slips that TeX forgives or people make are mended (`repairs`), and the formula
counts as repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro
from eqkin.mathml.converter import ConvertedFormulas, Converter, Failure
from eqkin.mathml.repairs import repair_formula
from eqkin.trees.forest import Forest, ForestBuilder

_REPAIR_ROUNDS = 4  # rounds; a mended formula may show another slip
_DIAGRAM_ENVIRONMENT = re.compile(r"No such environment: (?:tikz|xy|picture|feyn|CD|quantikz|prooftree|axis|pgf)")


@dataclass
class FormulaOutcome:
    """What became of one formula."""

    tree: int = -1  # index in the forest, -1 if it failed
    failure: Failure | None = None
    unknown: tuple[str, ...] = ()  # commands nobody defines, shown by name
    repaired: bool = False


@dataclass
class Conversion:
    """Trees of a document's formulas and what became of each."""

    forest: Forest
    outcomes: list[FormulaOutcome]


def convert_formulas(
    converter: Converter,
    formulas: Sequence[str],
    packages: Iterable[str] | None = None,
    definitions: dict[str, Macro] | None = None,
) -> Conversion:
    """Convert the formulas of one document; `packages` None means that its preamble is not known."""
    attempts = _Attempts(converter, list(formulas))
    first = converter.open_document(list(packages or []), (definitions or {}).values(), formulas)
    attempts.record_results(range(len(first.failures)), first)
    attempts.try_formulas(range(len(first.failures), len(formulas)))
    refused = [outcome.failure for outcome in attempts.outcomes]
    for _ in range(_REPAIR_ROUNDS):
        again = attempts.repair_failed()
        if not again:
            break
        attempts.try_formulas(again)
    for outcome, failure in zip(attempts.outcomes, refused, strict=True):
        if outcome.failure is not None:  # what is wrong with the formula as written, not as mended in vain
            outcome.failure, outcome.repaired = failure, False
    return Conversion(attempts.builder.build(), attempts.outcomes)


class _Attempts:
    """Formulas, what became of each so far, and the trees of those that are done."""

    def __init__(self, converter: Converter, texts: list[str]) -> None:
        self.converter, self.texts = converter, texts
        self.builder, self.trees = ForestBuilder(), 0
        self.outcomes = [FormulaOutcome() for _ in texts]

    def try_formulas(self, indices: Sequence[int]) -> None:
        """Try these formulas (again)."""
        if indices:
            self.record_results(indices, self.converter.convert([self.texts[i] for i in indices]))

    def record_results(self, indices: Sequence[int], trees: ConvertedFormulas) -> None:
        """Put the results of an attempt in their places."""
        self.builder.add_forest(trees.forest)
        for i, failure, names in zip(indices, trees.failures, trees.unknown, strict=True):
            outcome = self.outcomes[i]
            outcome.failure, outcome.unknown = failure, tuple(names)
            if failure is None:
                outcome.tree = self.trees
                self.trees += 1

    def repair_failed(self) -> list[int]:
        """Repair formulas that failed; returns those that changed."""
        again = []
        for i, outcome in enumerate(self.outcomes):
            text = repair_formula(self.texts[i], outcome.failure) if outcome.failure else ""
            if text and text != self.texts[i]:
                self.texts[i], outcome.repaired = text, True
                again.append(i)
        return again


def is_diagram_failure(failure: Failure) -> bool:
    """Whether a formula failed because it draws a picture."""
    return failure.command in DIAGRAM_COMMANDS or _DIAGRAM_ENVIRONMENT.match(failure.message) is not None
