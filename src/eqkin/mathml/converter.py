"""LaTeX -> MathML trees: KaTeX in an embedded V8, batched, with hard limits on time and memory.

The converter knows formulas and macro tables, not papers. One formula's failure never costs another one's result: a
batch that runs out of time or memory is tried again formula by formula in a fresh engine.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from threading import Lock

import numpy as np
import orjson
from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException, MiniRacer

from eqkin.errors import CorruptData
from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro, find_providers, load_preludes
from eqkin.limits import LIMITS, Limits
from eqkin.trees.forest import Forest, ForestBuilder

_LIMIT_ERRORS = (JSTimeoutException, JSOOMException, JSEvalException)
_START_LOCK = (
    Lock()
)  # V8 sets itself up with its first engine; if two threads start one at once, it may end the process


@dataclass(frozen=True)
class Failure:
    """Why a formula has no tree."""

    reason: str  # a short class of reasons that can be counted: "undefined command", "limit: time", ...
    message: str  # what the converter said
    position: int = -1  # character offset in the formula, if known
    command: str = ""  # the undefined command, if that is the reason


@dataclass(frozen=True)
class ConverterIdentity:
    """Which converter made a tree; stored in every library, never mixed within one."""

    name: str
    version: str
    sha256: str


@cache
def _load_sources() -> tuple[ConverterIdentity, str]:
    package = resources.files("eqkin.mathml")
    try:
        meta = orjson.loads(package.joinpath("katex.json").read_bytes())
        script = package.joinpath("katex.min.js").read_bytes()
    except FileNotFoundError as error:
        raise CorruptData(
            f"eqkin was installed without its converter ({error.filename}); install it again with pip"
        ) from error
    if hashlib.sha256(script).hexdigest() != meta["sha256"]:
        raise CorruptData("the bundled KaTeX script does not match its recorded hash; install eqkin again")
    ours = [package.joinpath(name).read_text("utf-8") for name in ("macros.js", "document.js", "trees.js")]
    return ConverterIdentity(meta["name"], meta["version"], meta["sha256"]), "\n".join([script.decode("utf-8"), *ours])


def get_converter_identity() -> ConverterIdentity:
    """Name, version and hash of the bundled converter."""
    return _load_sources()[0]


@dataclass(frozen=True)
class ConvertedFormulas:
    """What became of some formulas."""

    forest: Forest  # of those that converted, in order
    failures: list[Failure | None]  # for each formula None, or why it has no tree
    unknown: list[list[str]]  # for each formula the unknown commands shown in it by name


class _AnswerCollector:
    """Puts the engine's answers together."""

    def __init__(self, failures: _FailureClassifier) -> None:
        self._classifier = failures
        self._builder = ForestBuilder()
        self._failures: list[Failure | None] = []
        self._unknown: list[list[str]] = []

    def add_answer(self, answer: str) -> None:
        """An answer: a line of JSON (strings, outcomes), then the nodes, a character a number."""
        line, _, nodes = answer.partition("\n")
        header = orjson.loads(line)
        sizes: list[int] = []
        for outcome in header["outcomes"]:
            if type(outcome) is int:
                sizes.append(outcome)
                self._failures.append(None)
                self._unknown.append([])
            elif "size" in outcome:
                sizes.append(outcome["size"])
                self._failures.append(None)
                self._unknown.append(outcome["unknown"])
            else:
                self._failures.append(self._classifier.classify(outcome["error"], outcome["position"]))
                self._unknown.append([])
        columns = np.frombuffer(nodes.encode("utf-16-le"), "<u2").reshape(4, -1).astype(np.int64) - 1
        self._builder.add_columns(header["tags"], header["attributes"], header["texts"], list(columns), sizes)

    def add_failure(self, what: str) -> None:
        """A formula for which the engine ran out of `what`."""
        self._failures.append(Failure(f"limit: {what}", f"the converter ran out of {what}"))
        self._unknown.append([])

    def build(self) -> ConvertedFormulas:
        """What was collected."""
        return ConvertedFormulas(self._builder.build(), self._failures, self._unknown)


class Converter:
    """A KaTeX engine. Not safe to share between threads; make one for each."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._engine: MiniRacer | None = None
        self._finish: Callable[[], object] = lambda: None
        self._document: dict[str, object] = {"packages": ["latex"], "definitions": [], "formulas": []}
        self._failures = _FailureClassifier()

    def open_document(
        self, packages: Sequence[str], definitions: Iterable[Macro], formulas: Sequence[str]
    ) -> ConvertedFormulas:
        """Begin with a document: its packages, definitions, all of its formulas. Returns the trees of the first batch.

        An undefined command that some known package provides is taken from there; one that nobody provides becomes a
        named symbol or operator with as many arguments as its uses suggest.
        """
        size = self.limits.batch_formulas
        self._document = {
            "packages": ["latex", *(name for name in packages if name in load_preludes())],
            "definitions": list(definitions),
            "formulas": [_remove_nuls(formula) for formula in formulas],
        }
        trees = _AnswerCollector(self._failures)
        try:
            document = _to_json(self._document | {"first": size})
            trees.add_answer(self._call("openDocument", document, self._compute_timeout(min(len(formulas), size))))
        except _LIMIT_ERRORS:
            self.close()  # an engine that was stopped or ran out of memory cannot be trusted further
            self._convert_batch(formulas[:size], True, trees)
        return trees.build()

    def convert(self, formulas: Sequence[str], *, display: bool = True) -> ConvertedFormulas:
        """Convert formulas with the macros of the document that was opened last."""
        trees = _AnswerCollector(self._failures)
        size = self.limits.batch_formulas
        for start in range(0, len(formulas), size):
            self._convert_batch(formulas[start : start + size], display, trees)
        return trees.build()

    def render_markup(self, formulas: Sequence[str]) -> list[str | None]:
        """KaTeX's own markup of formulas, to compare trees with."""
        payload = orjson.dumps({"formulas": formulas, "displayMode": True}).decode()
        pages: list[str | None] = orjson.loads(self._call("markup", payload, self.limits.batch_seconds))
        return pages

    def close(self) -> None:
        """Give the engine's memory back."""
        self._engine = None
        self._finish()

    def _convert_batch(self, formulas: Sequence[str], display: bool, trees: _AnswerCollector) -> None:
        alone = len(formulas) == 1
        payload = _to_json({"formulas": [_remove_nuls(f) for f in formulas], "displayMode": display})
        try:
            trees.add_answer(self._call("convert", payload, self._compute_timeout(len(formulas))))
        except _LIMIT_ERRORS as error:
            self.close()  # an engine that was stopped or ran out of memory cannot be trusted further
            if alone:
                trees.add_failure("time" if isinstance(error, JSTimeoutException) else "memory")
            else:
                for formula in formulas:
                    self._convert_batch([formula], display, trees)

    def _compute_timeout(self, formulas: int) -> float:
        return min(self.limits.batch_seconds, max(formulas, 1) * self.limits.formula_seconds)

    def _call(self, function: str, payload: str, seconds: float) -> str:
        if self._engine is None:
            self._engine = self._start()
        return self._run(self._engine, function, payload, seconds)

    def _run(self, engine: MiniRacer, function: str, payload: str, seconds: float) -> str:
        # one evaluation is one trip to the engine's thread; calling a function object would be three
        answer = engine.eval(f"{function}({_to_json(payload)})", timeout_sec=seconds)
        return answer if isinstance(answer, str) else ""

    def _start(self) -> MiniRacer:
        with _START_LOCK:
            engine = MiniRacer()
            self._finish = weakref.finalize(self, _close_engine, engine)  # runs also when the interpreter exits
            try:
                engine.eval(_load_sources()[1])
            except JSEvalException as error:
                raise CorruptData(f"the bundled converter does not start ({error}); install eqkin again") from error
        engine.set_hard_memory_limit(self.limits.converter_bytes)
        seconds = self.limits.batch_seconds
        limits = asdict(self.limits) | {"diagram_commands": sorted(DIAGRAM_COMMANDS)}
        self._run(engine, "setLimits", _to_json(limits), seconds)
        self._run(engine, "setPrelude", _encode_preludes(), seconds)
        with suppress(*_LIMIT_ERRORS):  # the document that was open when the last engine was given up
            self._run(engine, "openDocument", _to_json(self._document | {"first": 0}), seconds)
        return engine


def _close_engine(engine: MiniRacer) -> None:
    """Close an engine in order: one that was just stopped still has an answer under way, which nobody would receive."""
    with suppress(*_LIMIT_ERRORS):
        engine.eval("0", timeout_sec=1.0)
    engine.close()


def _remove_nuls(formula: str) -> str:
    """NULs mean nothing in a formula."""
    return formula.replace("\0", "")


def _to_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a surrogate pair somewhere
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


@cache
def _encode_preludes() -> str:
    packages = {name: list(table.values()) for name, table in load_preludes().items()}
    return _to_json({"packages": packages, "providers": find_providers()})


class _FailureClassifier:
    """Turns the converter's messages into countable reasons."""

    _UNDEFINED = re.compile(
        r"(?:Undefined control sequence: |Unrecognized (?:infix )?control sequence: )(\\(?:[A-Za-z@]+|.))", re.DOTALL
    )
    _RULES = (
        (re.compile(r"^eqkin:limit (.*)"), "limit: size"),
        (re.compile(r"^eqkin:refused"), "refused command"),
        (re.compile(r"Too many expansions"), "limit: macro expansion"),
        (re.compile(r"No such environment: (.*?)(?: at|$)"), "unknown environment"),
        (re.compile(r"Double (?:sub|super)script"), "double script"),
        (
            re.compile(
                r"Expected '\\?\}?(?:right|EOF|\}|\\end)|Extra \}|Unexpected end|Mismatch|Expected group|Got function"
            ),
            "unbalanced or incomplete",
        ),
        (re.compile(r"Can't use function"), "text command in math"),
        (re.compile(r"Invalid (?:size|color|delimiter|unit)|delimiter"), "invalid argument"),
    )

    def classify(self, message: str, position: int) -> Failure:
        undefined = self._UNDEFINED.search(message)
        if undefined:
            return Failure("undefined command", message, position, undefined[1])
        for pattern, reason in self._RULES:
            if pattern.search(message):
                return Failure(reason, message.removeprefix("eqkin:"), position)
        return Failure("not parsed", message, position)
