r"""Convert the formulas of a document, or a typed formula, to trees, and repair what KaTeX refuses.

Formulas see the macros of the document, the preludes of its packages, and stand-ins for commands that nothing defines (the
formula then counts as degraded). Mistakes that TeX forgives or people make are repaired, one kind of message at a time; the
formula then counts as repaired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro
from eqkin.latex.typed import restore_spaces
from eqkin.mathml.converter import ConvertedFormulas, Converter, Failure
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


_RESPACING_ROUNDS = 3  # a formula that got some of its blanks back may show others


def convert_typed_formula(converter: Converter, formula: str) -> Conversion:
    """Convert one formula, as `eqkin.latex.typed.typed_formula` gives it; a better reading of lost blanks counts.

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


_SCRIPTED_COMMAND = re.compile(r"([_^])\s*(\\[A-Za-z]+(?:\s*+\{(?:[^{}]++|\{[^{}]*+\})*+\})*)")
_DOLLAR = re.compile(r"(?<!\\)\$|\\[()]")
_TEXT = re.compile(r"\\(?:text[a-z]*|mbox|hbox|operatorname\*?|mathrm|mathtt|mathit|mathsf|textnormal)\s*\{[^{}]*\}")
_LEFT_RIGHT = re.compile(r"\\(?:left|right|middle)(?![A-Za-z])\s*\.?")
_UNDERSCORE = re.compile(r"(?<!\\)_")
_TRAILING_BACKSLASH = re.compile(r"\\+\s*$")
_SCRIPTED_LIMITS = re.compile(r"([_^])\s*\\limits(?![A-Za-z])")
_BARE_RADICAND = re.compile(r"(\\sqrt\s*+\[[^\[\]]*+\])\s*+(\\[A-Za-z]+(?:\s*+\{(?:[^{}]++|\{[^{}]*+\})*+\})+)")
_ROW_SPACE = re.compile(r"\\\\\s*\[[^\]]*\]")


def _wrap_in_aligned(text: str, failure: Failure) -> str:
    return rf"\begin{{aligned}}{text}\end{{aligned}}"


def _brace_scripts(text: str, failure: Failure) -> str:
    return _SCRIPTED_COMMAND.sub(r"\1{\2}", text)


def _move_limits_first(text: str, failure: Failure) -> str:
    return _SCRIPTED_LIMITS.sub(r"\\limits\1", text)


def _brace_radicand(text: str, failure: Failure) -> str:
    return _BARE_RADICAND.sub(r"\1{\2}", text)


def _drop_dollars(text: str, failure: Failure) -> str:
    return _DOLLAR.sub(" ", text)


def _escape_underscores(text: str, failure: Failure) -> str:
    return _TEXT.sub(lambda m: _UNDERSCORE.sub(r"\\_", m[0]), text)


def _drop_left_right(text: str, failure: Failure) -> str:
    return _LEFT_RIGHT.sub("", text)


def _open_group_at(text: str, failure: Failure) -> str:
    at = failure.position
    return text[:at] + "{}" + text[at:] if 0 <= at <= len(text) else text


def _drop_at(text: str, failure: Failure) -> str:
    at = failure.position
    return text[:at] + text[at + 1 :] if 0 <= at < len(text) else text


def _close_group(text: str, failure: Failure) -> str:
    return text + "}"


def _drop_row_space(text: str, failure: Failure) -> str:
    return _ROW_SPACE.sub(r"\\\\ ", text)


def _drop_trailing_backslash(text: str, failure: Failure) -> str:
    return _TRAILING_BACKSLASH.sub("", text)


_REPAIRS: tuple[tuple[re.Pattern[str], tuple[Callable[[str, Failure], str], ...]], ...] = (
    (re.compile(r"Expected 'EOF', got '&'"), (_wrap_in_aligned,)),
    (
        re.compile(r"Got function|Expected group (?:after|as)"),
        (_move_limits_first, _escape_underscores, _brace_scripts, _open_group_at),
    ),
    (re.compile(r"Can't use function '(?:\$|\\[()])'"), (_drop_dollars,)),
    (re.compile(r"Double (?:sub|super)script"), (_open_group_at,)),
    (re.compile(r"got '_'|Expected 'EOF', got '\^'"), (_escape_underscores, _open_group_at)),
    (re.compile(r"'\\right'|Expected & or|'\\middle'|\\middle without|delimiter"), (_drop_left_right,)),
    (re.compile(r"got 'EOF'|Unexpected end of input"), (_brace_radicand, _close_group)),
    (re.compile(r"Expected 'EOF', got '\}'|Extra \}"), (_drop_at,)),
    (re.compile(r"Invalid (?:size|unit)"), (_drop_row_space,)),
    (re.compile(r"Unexpected character"), (_drop_trailing_backslash, _drop_at)),
)


def repair_formula(text: str, failure: Failure) -> str:
    """The formula with the first repair applied that fits the failure and changes something, or "" if there is none."""
    if failure.command:
        return ""
    for pattern, repairs in _REPAIRS:
        if pattern.search(failure.message):
            for repair in repairs:
                mended = repair(text, failure)
                if mended != text and mended.strip():
                    return mended
    return ""
