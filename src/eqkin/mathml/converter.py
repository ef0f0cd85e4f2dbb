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

import numpy as np
import orjson
from py_mini_racer import JSEvalException, JSFunction, JSOOMException, JSTimeoutException, MiniRacer

from ..errors import CorruptData
from ..forest.forest import Forest, ForestBuilder
from ..latex.macros import Macro
from ..latex.packages import PRELUDES
from ..limits import LIMITS, Limits

_LIMITS = (JSTimeoutException, JSOOMException, JSEvalException)


@dataclass(frozen=True)
class Failure:
    """Why a formula has no tree."""

    reason: str  # a short class of reasons that can be counted: "undefined command", "limit: time", ...
    message: str  # what the converter said
    position: int = -1  # character offset in the formula, if known
    command: str = ""  # the undefined command, if that is the reason


@dataclass(frozen=True)
class Identity:
    """Which converter made a tree; stored in every library, never mixed within one."""

    name: str
    version: str
    sha256: str


@cache
def _sources() -> tuple[Identity, str]:
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
    bridge = package.joinpath("bridge.js").read_text("utf-8")
    return Identity(meta["name"], meta["version"], meta["sha256"]), script.decode("utf-8") + "\n" + bridge


def identity() -> Identity:
    """Name, version and hash of the bundled converter."""
    return _sources()[0]


class Converter:
    """A KaTeX engine. Not safe to share between threads; make one for each."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._engine: MiniRacer | None = None
        self._functions: dict[str, JSFunction] = {}
        self._finish: Callable[[], object] = lambda: None
        self._macros = _json({"packages": ["latex"], "definitions": [], "formulas": []})
        self._added: list[str] = []
        self._failures = _Classifier()

    def set_macros(
        self, packages: Sequence[str] = (), definitions: Iterable[Macro] = (), formulas: Sequence[str] = ()
    ) -> list[str]:
        """Choose what formulas may use: preludes of packages and a document's definitions.

        Only what `formulas` need is made. Returns the commands in them that nobody defines.
        """
        known = ["latex", *(name for name in packages if name in PRELUDES)]
        given = [_definition(macro) for macro in definitions]
        self._macros = _json({"packages": known, "definitions": given, "formulas": formulas})
        self._added = []
        return self._prepare("setMacros", self._macros)

    def add_macros(self, borrowed: Iterable[Macro], unknown: Iterable[Macro]) -> list[str]:
        """Add macros of packages that were not named, and stand-ins for unknown commands, to those set before.

        Returns the commands the borrowed ones need and nobody defines.
        """
        added = _json({"borrowed": [_definition(m) for m in borrowed], "unknown": [_definition(m) for m in unknown]})
        self._added.append(added)
        return self._prepare("addMacros", added)

    def _prepare(self, function: str, payload: str) -> list[str]:
        try:
            missing: list[str] = orjson.loads(self._call(function, payload, self.limits.batch_seconds))
            return missing
        except _LIMITS:
            self.close()  # the next engine starts with these macros
            return []

    def trees(
        self, formulas: Sequence[str], *, display: bool = True
    ) -> tuple[Forest, list[Failure | None], list[list[str]]]:
        """Trees of those formulas that convert, in order; for each formula None or why it has none; unknown commands met."""
        builder = ForestBuilder()
        failures: list[Failure | None] = []
        unknown: list[list[str]] = []
        size = self.limits.batch_formulas
        for start in range(0, len(formulas), size):
            self._batch(formulas[start : start + size], display, builder, failures, unknown)
        return builder.build(), failures, unknown

    def markup(self, formulas: Sequence[str]) -> list[str | None]:
        """KaTeX's own markup, as anyone would call it: the yardstick of the ingest benchmark."""
        payload = orjson.dumps({"formulas": formulas, "displayMode": True}).decode()
        pages: list[str | None] = orjson.loads(self._call("bare", payload, 60.0))
        return pages

    def close(self) -> None:
        """Give the engine's memory back."""
        self._engine = None
        self._functions = {}
        self._finish()

    def _batch(
        self,
        formulas: Sequence[str],
        display: bool,
        builder: ForestBuilder,
        failures: list[Failure | None],
        unknown: list[list[str]],
    ) -> None:
        alone = len(formulas) == 1
        payload = _json({"formulas": [_encodable(f) for f in formulas], "displayMode": display})
        seconds = self.limits.formula_seconds if alone else self.limits.batch_seconds
        try:
            header, _, nodes = self._call("convert", payload, seconds).partition("\n")
        except _LIMITS as error:
            self.close()  # an engine that was stopped or ran out of memory cannot be trusted further
            if alone:
                what = "time" if isinstance(error, JSTimeoutException) else "memory"
                failures.append(Failure(f"limit: {what}", f"the converter ran out of {what}"))
                unknown.append([])
                return
            for formula in formulas:
                self._batch([formula], display, builder, failures, unknown)
            return
        answer = orjson.loads(header)
        sizes: list[int] = []
        for outcome in answer["outcomes"]:
            if type(outcome) is int:
                outcome = {"size": outcome}
            if "size" in outcome:
                sizes.append(outcome["size"])
            failures.append(
                None if "size" in outcome else self._failures.classify(outcome["error"], outcome["position"])
            )
            unknown.append(outcome.get("unknown", []))
        columns = np.frombuffer(nodes.encode("utf-16-le"), "<u2").reshape(4, -1).astype(np.int64) - 1
        builder.add_columns(answer["tags"], answer["attributes"], answer["texts"], columns, sizes)

    def _call(self, function: str, payload: str, seconds: float) -> str:
        if self._engine is None:
            self._start()
        answer = self._functions[function](payload, timeout_sec=seconds)
        return answer if isinstance(answer, str) else ""

    def _start(self) -> None:
        engine = MiniRacer()
        self._engine = engine
        self._finish = weakref.finalize(self, _finish, engine)  # runs also when the interpreter exits
        engine.eval(_sources()[1])
        engine.set_hard_memory_limit(self.limits.converter_bytes)
        for name in ("setLimits", "setPrelude", "setMacros", "addMacros", "convert", "bare"):
            function = engine.eval(name)
            if not isinstance(function, JSFunction):
                raise CorruptData(f"the converter's script lacks {name}; install eqkin again")
            self._functions[name] = function
        self._functions["setLimits"](orjson.dumps(asdict(self.limits)).decode())
        self._functions["setPrelude"](_prelude_json())
        self._functions["setMacros"](self._macros)
        for added in self._added:
            self._functions["addMacros"](added)


def _finish(engine: MiniRacer) -> None:
    """Close an engine in order: one that was just stopped still has an answer under way, which nobody would receive."""
    with suppress(*_LIMITS):
        engine.eval("0", timeout_sec=1.0)
    engine.close()


def _encodable(formula: str) -> str:
    """NULs mean nothing in a formula."""
    return formula.replace("\0", "")


def _definition(macro: Macro) -> dict[str, object]:
    return {
        "name": macro.name,
        "args": macro.args,
        "body": macro.body,
        "prefix": macro.prefix,
        "alias": macro.alias,
        "weak": macro.weak,
    }


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a surrogate pair somewhere
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


@cache
def _prelude_json() -> str:
    return orjson.dumps({name: [_definition(m) for m in table.values()] for name, table in PRELUDES.items()}).decode()


class _Classifier:
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
