r"""Convert the formulas of a document, or a typed formula, to trees, and repair what KaTeX refuses.

Formulas see the macros of the document, the preludes of its packages, and stand-ins for undefined commands (the formula
then counts as degraded). Mistakes that TeX forgives or people make are repaired, one kind of message at a time; the
formula then counts as repaired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eqkin.formulas.engine import Failure, FormulaContext, FormulaEngine, ReadFormulas
from eqkin.formulas.forest import Forest
from eqkin.formulas.operators import OperatorForest
from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro
from eqkin.latex.typed import restore_spaces

# More than one, since a repaired formula may show another mistake.
_REPAIR_ROUNDS = 4
# More than one, since a formula with some spaces restored may show others.
_SPACE_ROUNDS = 3
_DIAGRAM_ENVIRONMENT = re.compile(r"No such environment: (?:tikz|xy|picture|feyn|CD|quantikz|prooftree|axis|pgf)")
_TEXT = re.compile(r"\\(?:text[a-z]*|mbox|hbox|operatorname\*?|mathrm|mathtt|mathit|mathsf|textnormal)\s*\{[^{}]*\}")
_UNDERSCORE = re.compile(r"(?<!\\)_")


@dataclass
class FormulaOutcome:
    """The result of one formula."""

    # Index in the forest, -1 if it failed.
    tree: int = -1
    failure: Failure | None = None
    # Undefined commands, shown by name.
    unknown: tuple[str, ...] = ()
    # What was repaired, in plain sentences.
    repairs: tuple[str, ...] = ()

    @property
    def repaired(self) -> bool:
        """True if it was read only after a repair."""
        return bool(self.repairs)


@dataclass
class Conversion:
    """The trees of a document's formulas, and the result of each formula."""

    forest: Forest
    # The operator tree of each tree; none if they were not asked for.
    operators: OperatorForest
    outcomes: list[FormulaOutcome]


def convert_formulas(
    engine: FormulaEngine,
    formulas: Sequence[str],
    packages: Iterable[str] | None = None,
    definitions: dict[str, Macro] | None = None,
    deadline: float = math.inf,
    *,
    operators: bool = True,
) -> Conversion:
    """Convert the formulas of one document.

    Args:
        engine: An engine.
        formulas: All formulas of the document.
        packages: The packages that it loads; None if its preamble is unknown.
        definitions: Its macros.
        deadline: A time of `time.monotonic`; formulas that are not converted by then fail.
        operators: Whether to make operator trees as well.
    """
    texts = list(formulas)
    document = FormulaContext(list(packages or ()), list((definitions or {}).values()), texts.copy())
    outcomes = [FormulaOutcome() for _ in texts]
    forests: list[Forest] = []
    parsed: list[OperatorForest] = []
    trees = 0

    def record(indices: Sequence[int], converted: ReadFormulas) -> None:
        nonlocal trees
        forests.append(converted.forest)
        parsed.append(converted.operators)
        for i, failure, unknown in zip(indices, converted.failures, converted.unknown, strict=True):
            outcomes[i].failure = failure
            outcomes[i].unknown = unknown
            if failure is None:
                outcomes[i].tree = trees
                trees += 1

    record(range(len(texts)), engine.read(texts, document, operators=operators, deadline=deadline))
    failures = [outcome.failure for outcome in outcomes]
    for _ in range(_REPAIR_ROUNDS):
        again = []
        for i, outcome in enumerate(outcomes):
            if outcome.failure and (repair := repair_formula(texts[i], outcome.failure)):
                texts[i] = repair[0]
                outcome.repairs = tuple(dict.fromkeys((*outcome.repairs, repair[1])))
                again.append(i)
        if not again:
            break
        repaired = [texts[i] for i in again]
        record(again, engine.read(repaired, document, operators=operators, deadline=deadline))
    for outcome, failure in zip(outcomes, failures, strict=True):
        if outcome.failure is not None:
            # Report what is wrong with the formula as written.
            outcome.failure = failure
            outcome.repairs = ()
    return Conversion(Forest.concatenate(forests), OperatorForest.concatenate(parsed), outcomes)


def convert_typed_formula(engine: FormulaEngine, formula: str, *, operators: bool = True) -> Conversion:
    """Convert one formula that `eqkin.latex.typed.clean_typed_formula` returned; restore lost spaces if that helps.

    The forest has one tree, or none if the formula cannot be read; the failure is then that of the formula as given.
    """

    def count_faults(outcome: FormulaOutcome) -> tuple[bool, int]:
        return outcome.failure is not None, len(outcome.unknown)

    conversion = convert_formulas(engine, [formula], operators=operators)
    for _ in range(_SPACE_ROUNDS):
        outcome = conversion.outcomes[0]
        spaced = restore_spaces(formula, outcome.unknown, outcome.failure is not None)
        if spaced == formula:
            break
        again = convert_formulas(engine, [spaced], operators=operators)
        if count_faults(again.outcomes[0]) > count_faults(outcome):
            break
        if again.outcomes[0].failure is None:
            again.outcomes[0].repairs += ("Separated commands that were written together.",)
            conversion = again
        formula = spaced
    return conversion


def is_diagram_failure(failure: Failure) -> bool:
    """Return whether a formula failed because it draws a picture."""
    return failure.command in DIAGRAM_COMMANDS or _DIAGRAM_ENVIRONMENT.match(failure.message) is not None


def repair_formula(text: str, failure: Failure) -> tuple[str, str] | None:
    """Return the formula after the first repair that fits the failure and changes something, and what it did."""
    if failure.command:
        return None
    for pattern, repairs in _REPAIRS:
        if pattern.search(failure.message):
            for repair, sentence in repairs:
                repaired = repair(text, failure.position)
                if repaired != text and repaired.strip():
                    return repaired, sentence
    return None


# From a formula and the place of the failure to the repaired formula.
_Repair = Callable[[str, int], str]


def _substitute(pattern: str, replacement: str) -> _Repair:
    compiled = re.compile(pattern)
    return lambda text, at: compiled.sub(replacement, text)


def _escape_underscores(text: str, at: int) -> str:
    return _TEXT.sub(lambda m: _UNDERSCORE.sub(r"\\_", m[0]), text)


def _insert_group(text: str, at: int) -> str:
    return text[:at] + "{}" + text[at:] if 0 <= at <= len(text) else text


def _drop_character(text: str, at: int) -> str:
    return text[:at] + text[at + 1 :] if 0 <= at < len(text) else text


_COMMAND_WITH_ARGUMENTS = r"\\[A-Za-z]+(?:\s*+\{(?:[^{}]++|\{[^{}]*+\})*+\})"
_move_limits_first = _substitute(r"([_^])\s*\\limits(?![A-Za-z])", r"\\limits\1")
_brace_scripts = _substitute(rf"([_^])\s*({_COMMAND_WITH_ARGUMENTS}*)", r"\1{\2}")
_brace_radicand = _substitute(rf"(\\sqrt\s*+\[[^\[\]]*+\])\s*+({_COMMAND_WITH_ARGUMENTS}+)", r"\1{\2}")
_drop_dollars = _substitute(r"(?<!\\)\$|\\[()]", " ")
_drop_left_right = _substitute(r"\\(?:left|right|middle)(?![A-Za-z])\s*\.?", "")
_drop_row_space = _substitute(r"\\\\\s*\[[^\]]*\]", r"\\\\ ")
_drop_trailing_backslash = _substitute(r"\\+\s*$", "")

_BRACE_SCRIPTS = "Put braces around a command after ^ or _."
_REPAIRS: tuple[tuple[re.Pattern[str], tuple[tuple[_Repair, str], ...]], ...] = (
    (
        re.compile(r"Expected 'EOF', got '&'"),
        ((lambda text, at: rf"\begin{{aligned}}{text}\end{{aligned}}", "Read & as the alignment of rows."),),
    ),
    (
        re.compile(r"Got function|Expected group (?:after|as)"),
        (
            (_move_limits_first, r"Moved \limits before the limits."),
            (_escape_underscores, "Took _ in text for a character."),
            (_brace_scripts, _BRACE_SCRIPTS),
            (_insert_group, "Added an empty pair of braces where an argument is missing."),
        ),
    ),
    (re.compile(r"Can't use function '(?:\$|\\[()])'"), ((_drop_dollars, "Removed a stray $ or bracket of LaTeX."),)),
    (
        re.compile(r"Double (?:sub|super)script"),
        ((_insert_group, "Separated two indices or two exponents of one symbol."),),
    ),
    (
        re.compile(r"got '_'|Expected 'EOF', got '\^'"),
        (
            (_escape_underscores, "Took _ in text for a character."),
            (_insert_group, "Added an empty pair of braces before ^ or _."),
        ),
    ),
    (
        re.compile(r"'\\right'|Expected & or|'\\middle'|\\middle without|delimiter"),
        ((_drop_left_right, r"Ignored \left and \right, which do not match."),),
    ),
    (
        re.compile(r"got 'EOF'|Unexpected end of input"),
        (
            (_brace_radicand, "Put braces around what is under a root."),
            (lambda text, at: text + "}", "Added a missing } at the end."),
        ),
    ),
    (re.compile(r"Expected 'EOF', got '\}'|Extra \}"), ((_drop_character, "Removed a } that nothing opens."),)),
    (re.compile(r"Invalid (?:size|unit)"), ((_drop_row_space, "Ignored the space between two rows."),)),
    (
        re.compile(r"Unexpected character"),
        (
            (_drop_trailing_backslash, "Removed a backslash at the end."),
            (_drop_character, "Removed a character that formulas do not have."),
        ),
    ),
)
