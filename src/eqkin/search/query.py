r"""Read formulas as people give them, LaTeX, MathML or a file of either, into trees; or say where they are wrong.

Wildcards of a query are replaced by placeholders: characters that are not in the formula and that the converter takes
for letters. Their names are restored in the tree.

    ?x          a question mark and a letter, unless the mark ends a question: after a word, or before a word and after
                a digit or a closing bracket
    \qvar{x}    anywhere
    ?           alone, where an operand is missing: at the beginning, after a sign or an opening bracket; each one is a
                wildcard of its own, named by its number (`?1`)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import BoundedSemaphore

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.formulas import Forest
from eqkin.formulas.conversion import convert_typed_formula
from eqkin.formulas.engine import Failure, borrow_engine, parse_operators
from eqkin.formulas.mathml import Node, NodeColumns, list_nodes, parse_mathml, to_forest, to_mathml, to_node
from eqkin.formulas.operators import OperatorForest
from eqkin.latex.typed import RewrittenText, clean_typed_formula, decode_entities, rewrite_matches
from eqkin.limits import LIMITS
from eqkin.search.wildcards import find_wildcards

FORMULA_FILES = frozenset({".tex", ".ltx", ".latex", ".txt", ".mml", ".mathml", ".xml"})
_MARKUP_START = re.compile(
    r"\s*(?:<\?xml\b|<!--|<!DOCTYPE\b|<(?:[A-Za-z][\w.-]*:)?(?:math|m[a-z]+)\b[^<>]*>)", re.IGNORECASE
)
_DOCUMENT_START = re.compile(r"\\begin\s*\{document\}")
_DEFAULT_CONVERTERS = 2  # engines that read formulas side by side; a slow formula holds up one of them
_PLACEHOLDER_CODES = range(0xA000, 0xA48D)  # Yi syllables; the converter refuses characters of private use
_MESSAGES = tuple(  # what is wrong, instead of the converter's words; … is what it names
    (re.compile(pattern), words)
    for pattern, words in (
        (r"No such environment", "there is no environment …"),
        (r"Double superscript", "two exponents follow one symbol; put braces around one of them"),
        (r"Double subscript", "two indices follow one symbol; put braces around one of them"),
        (r"Expected group after '\^'", "an exponent is missing after ^"),
        (r"Expected group after '_'", "an index is missing after _"),
        (r"Expected group as|Unexpected end of input in a macro argument|Expected a (?:macro|group)",
         "a command lacks its argument"),
        (r"got 'EOF'|Unexpected end of input", "the formula ends too early: a closing brace or command is missing"),
        (r"Expected 'EOF', got '\}'|Extra \}", "a closing brace has no opening one"),
        (r"Expected 'EOF', got '&'", "& is outside of a matrix or an alignment"),
        (r"Mismatch: \\begin", "\\begin and \\end do not name the same environment"),
        (r"'\\right'|'\\left'|delimiter", "\\left and \\right do not match, or lack a bracket"),
        (r"Too many expansions", "a macro calls itself without end"),
        (r"Can't use function", "… does not belong into a formula"),
        (r"Got function '.*' with no arguments", "… lacks braces around it"),
        (r"Invalid (?:size|unit|color)", "… is not a valid argument"),
        (r"Unexpected character", "a character that formulas do not have"),
        (r"Multiple \\tag|\\tag works only", "a formula has one tag, on its own line"),
        (r"ParseError|Expected '|Unexpected|Internal", "this is not valid LaTeX"),
    )
)  # fmt: skip
_WILDCARD_TOKEN = re.compile(
    r"\\qvar\s*\{\s*(?P<braced>[^{}]*?)\s*\}"
    r"|(?P<text>\\(?:text[a-z]*|[mhf]box|tag\*?|label|ref)\s*\{[^{}]*\})"
    r"|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|\?(?P<letter>[^\W\d_])(?=(?P<more>[^\W\d_])?)"
    r"|(?P<alone>\?)(?!\?)"
    r"|(?P<other>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Problem:
    """A problem of a formula, and its position."""

    message: str
    position: int = -1  # of the character in the text as given, from 0; -1 if unknown
    reason: str = ""  # kind of problem, in short


class FormulaError(EqkinError):
    """A formula has no tree; `problem` says what is wrong, and where."""

    def __init__(self, problem: Problem) -> None:
        where = f" at character {problem.position + 1}" if problem.position >= 0 else ""
        super().__init__(f"the formula cannot be read: {problem.message}{where}")
        self.problem = problem


class UnreadableFormula(FormulaError, BadInput):
    """A formula cannot be read."""


class OversizedFormula(FormulaError, LimitReached):
    """A formula takes more space or time than allowed."""


@dataclass(frozen=True)
class Formula:
    """A formula that was read."""

    latex: str  # as given; "" for MathML
    forest: Forest  # of its tree
    unknown: tuple[str, ...] = ()  # undefined commands, shown by name
    repairs: tuple[str, ...] = ()  # of typing errors, in plain sentences
    wildcards: tuple[str, ...] = ()  # by their text ("?x"), in the order written
    parsed: OperatorForest | None = None  # its operator tree, if it was parsed when it was read

    @property
    def operators(self) -> OperatorForest:
        """Its operator tree."""
        return self.parsed or parse_operators(self.forest)

    @cached_property
    def nodes(self) -> NodeColumns:
        """The nodes of its tree."""
        return NodeColumns.read(self.forest, 0)

    @property
    def mathml(self) -> str:
        """Its MathML, safe to be shown."""
        return to_mathml(self.nodes)


class FormulaReader:
    """Reads formulas for any number of threads, with a few converters that they share."""

    def __init__(self, converters: int = _DEFAULT_CONVERTERS) -> None:
        self.converters = converters
        self._free = BoundedSemaphore(converters)

    def read(self, text: str, *, wildcards: bool = True) -> Formula:
        r"""Read a formula of LaTeX or MathML.

        Args:
            text: As typed, or as copied from somewhere: HTML entities in it are decoded.
            wildcards: Read `?x` and `\qvar{x}` as wildcards.

        Raises:
            UnreadableFormula: it is empty or wrong.
            OversizedFormula: it takes more than `eqkin.limits` allows.
        """
        text = text.encode("utf-8", "replace").decode()
        if not text.strip():
            raise UnreadableFormula(Problem("the formula is empty", 0, "empty"))
        plain = RewrittenText(text) if is_mathml(text) or len(text) > LIMITS.latex_chars else decode_entities(text)
        try:
            formula = (
                self._read_mathml(plain.text) if is_mathml(plain.text) else self._read_latex(plain.text, wildcards)
            )
        except FormulaError as error:
            raise _move_error(error, plain) from error.__cause__
        # The reader shows what was typed, not what it was rewritten to.
        latex = text.strip() if formula.latex else ""
        may_have = wildcards and any(text.startswith("?") for text in formula.forest.texts)
        found = find_wildcards(to_node(formula.forest, 0)) if may_have else ()
        return replace(formula, latex=latex, wildcards=found)

    def iter_formulas(self, texts: Iterable[str], *, wildcards: bool = True) -> Iterator[Formula | str]:
        """Read many formulas in parallel; yield each in order, or why it cannot be read."""

        def read(text: str) -> Formula | str:
            try:
                return self.read(text, wildcards=wildcards)
            except FormulaError as error:
                return str(error)

        # The converters release Python's lock.
        with ThreadPoolExecutor(self.converters) as pool:
            yield from pool.map(read, texts)

    def _read_latex(self, text: str, wildcards: bool) -> Formula:
        if len(text) > LIMITS.latex_chars:
            raise OversizedFormula(
                Problem(f"the formula is longer than {LIMITS.latex_chars:,} characters", reason="limit: size")
            )
        signed = insert_placeholders(text) if wildcards else Placeholders(RewrittenText(text), {})
        typed = clean_typed_formula(signed.formula.text)
        if not typed.strip():
            raise UnreadableFormula(Problem("the formula is empty", 0, "empty"))
        with self._free, borrow_engine() as engine:
            conversion = convert_typed_formula(engine, typed)
        outcome = conversion.outcomes[0]
        if outcome.failure is not None:
            failure = replace(outcome.failure, message=restore_names(outcome.failure.message, signed.names))
            raise _move_error(_make_error(failure, typed, signed.formula.text), signed.formula)
        forest = conversion.forest if len(conversion.forest) == 1 else conversion.forest.select([outcome.tree])
        operators = None if signed.names else conversion.operators.select([outcome.tree])
        if signed.names:
            root = to_node(forest, 0)
            label_wildcards(root, signed.names)
            forest = to_forest(root)
        return Formula(text, forest, outcome.unknown, outcome.repairs, parsed=operators)

    def _read_mathml(self, text: str) -> Formula:
        try:
            root = parse_mathml(text)
        except LimitReached as error:
            raise OversizedFormula(Problem(str(error), reason="limit: size")) from error
        except EqkinError as error:
            raise UnreadableFormula(Problem(str(error), _locate_in_markup(text, error), "MathML")) from error
        return Formula("", to_forest(root))


@dataclass(frozen=True)
class Placeholders:
    """A formula with placeholders for its wildcards."""

    formula: RewrittenText
    names: dict[str, str]  # "?x" for each placeholder, in the order of the formula


def insert_placeholders(text: str) -> Placeholders:
    """Replace each wildcard of a formula by a placeholder, the same for the same name."""
    if "?" not in text and "\\qvar" not in text:
        return Placeholders(RewrittenText(text), {})
    free = (character for code in _PLACEHOLDER_CODES if (character := chr(code)) not in text)
    numbers = (str(number) for number in count(1) if f"{{{number}}}" not in text)
    signs: dict[str, str] = {}
    # The word just before the match: a question mark after it may end a question.
    word = ""
    # The end of the operand before the match, spaces aside: a question mark after it stands for nothing.
    operand = ""

    def replace(match: re.Match[str]) -> str:
        nonlocal word, operand
        before = word
        word = ""
        # After "d" an operand is missing all the same: "\\int ?f d?" has two wildcards.
        is_complete = bool(operand) and before != "d"
        operand = operand if match[0].isspace() and operand != "}" else ""
        name = re.sub(r"[\W_]", "", match["braced"] or "")
        if match["letter"]:
            is_question = len(before) > 1 or (before and not before.isalpha() and match["more"])
            name = "" if is_question else match["letter"]
            word = "" if name else match["letter"]
        elif character := match["other"]:
            if character.isalpha():
                word = (before if before.isalpha() else "") + character
            elif character.isdigit() or character in ")]":
                word = character
            operand = character if character.isalnum() or character in ")]}!'." else operand
        elif match["text"] or match["command"] in (r"\&", r"\%", r"\}"):
            operand = match[0]
        elif match["alone"] and not is_complete:
            name = next(numbers)
        if not name:
            return match[0]
        operand = name
        if name not in signs:
            signs[name] = next(free, "")
        return rf"{{\mathord{{{signs[name]}}}}}" if signs[name] else match[0]

    formula = rewrite_matches(_WILDCARD_TOKEN, replace, text)
    return Placeholders(formula, {sign: f"?{name}" for name, sign in signs.items() if sign})


def label_wildcards(root: Node, names: dict[str, str]) -> None:
    """Restore the names in a tree: a leaf that is a placeholder becomes an italic identifier."""
    for node in list_nodes(root):
        if node.text in names:
            node.tag = "mi"
            node.attributes = {"mathvariant": "italic"}
        node.text = restore_names(node.text, names)


def restore_names(text: str, names: dict[str, str]) -> str:
    """Return the text with names instead of placeholders."""
    return "".join(names.get(character, character) for character in text)


def is_mathml(text: str) -> bool:
    """Return whether a text is MathML rather than LaTeX."""
    return _MARKUP_START.match(text) is not None


def read_formula_file(path: Path) -> str:
    """Read the text of a file that contains one formula.

    Raises:
        BadInput: it cannot be read as text.
        LimitReached: it is too long for a formula.
    """
    try:
        with path.open("rb") as file:
            content = file.read(4 * LIMITS.mathml_chars + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) > 4 * LIMITS.mathml_chars:
        raise LimitReached(f"{path}: too long for one formula")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    if _DOCUMENT_START.search(text):
        raise BadInput(f"{path}: a whole document, not a formula; `eqkin similar-papers` finds papers related to it")
    return text


def _make_error(failure: Failure, typed: str, text: str) -> FormulaError:
    position = _locate(failure.position, typed, text) if failure.position >= 0 else -1
    # KaTeX's words mean little to whoever typed the formula.
    message = next((words for pattern, words in _MESSAGES if pattern.search(failure.message)), failure.message)
    found = re.search(r"(?:environment: |[Ff]unction '|Invalid \w+: ')([^\s']+)", failure.message)
    problem = Problem(message.replace("…", found[1] if found else "this"), position, failure.reason)
    return OversizedFormula(problem) if failure.reason.startswith("limit") else UnreadableFormula(problem)


def _move_error(error: FormulaError, text: RewrittenText) -> FormulaError:
    """Return the same error, with its position in the text before it was rewritten."""
    at = error.problem.position
    return type(error)(replace(error.problem, position=text.find_origin(at))) if at >= 0 else error


def _locate(units: int, typed: str, text: str) -> int:
    """Find the converter's position in the text as given, which may have lost `$`, labels or an environment."""
    # The converter counts in UTF-16.
    at = len(typed.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore"))
    start = text.find(typed)
    if start >= 0:
        return start + at
    # Something was removed: look for what surrounds the position, where that is unique.
    for reach in (24, 12, 6, 3):
        head = typed[max(0, at - reach) : at]
        tail = typed[at : at + reach]
        for context, offset in ((head + tail, len(head)), (head, len(head)), (tail, 0)):
            if context.strip() and text.count(context) == 1:
                return text.index(context) + offset
    return -1


def _locate_in_markup(text: str, error: EqkinError) -> int:
    """Return the character that expat names by line and column."""
    match = re.search(r"line (\d+), column (\d+)", str(error))
    if match is None:
        return -1
    lines = text.split("\n")
    line = int(match[1]) - 1
    column = int(match[2])
    return min(sum(len(before) + 1 for before in lines[:line]) + column, len(text))
