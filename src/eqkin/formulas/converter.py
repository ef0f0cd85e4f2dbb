"""Convert LaTeX to trees with KaTeX in an embedded V8 engine, in batches, with hard limits on time and memory.

The converter knows formulas and macro tables, not papers. The failure of one formula never costs the result of another.
A formula that takes too long or expands to too much is stopped by the script itself, which goes on with the next one.
Where the script cannot do that, the engine is stopped, and the batch is tried again formula by formula in a new one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from itertools import accumulate, takewhile
from queue import Empty
from threading import Lock
from typing import Any

import numpy as np
import orjson
from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException, MiniRacer, init_mini_racer

from eqkin.errors import CorruptData, EqkinError
from eqkin.formulas.forest import Forest, ForestBuilder
from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro, find_providers, load_preludes
from eqkin.limits import LIMITS, Limits, check_cancelled

LIMIT_ERRORS = (JSTimeoutException, JSOOMException, JSEvalException)
PARSER_SCRIPTS = ("symbols", "operators", "canonical", "forms", "weak_forms", "batches")
_NO_DOCUMENT: dict[str, object] = {"packages": ["latex"], "definitions": [], "formulas": []}
# Without V8's last compiler, engines read formulas faster, and explain the first hundreds of hits in two thirds of the
# time: code optimised for some formulas is discarded when another differs. Only indexing loses a tenth.
_ENGINE_FLAGS = ("--single-threaded", "--no-opt", "--no-lazy-feedback-allocation")
_STOP_SECONDS = 1.0  # until an engine delivers the answer of a script that was stopped
_ENGINE_ADDRESS_BYTES = 2_000_000_000_000  # V8 reserves 1.5 TB for its sandbox
_START_LOCK = Lock()  # V8 initialises itself with its first engine; two threads at once may end the process
_UNDEFINED = re.compile(
    r"(?:Undefined control sequence: |Unrecognized (?:infix )?control sequence: )(\\(?:[A-Za-z@]+|.))", re.DOTALL
)
_REASONS = (
    (re.compile(r"^eqkin:limit (.*)"), "limit: size"),
    (re.compile(r"^eqkin:time"), "limit: time"),
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


@dataclass(frozen=True)
class Failure:
    """The reason why a formula has no tree."""

    reason: str  # a class of reasons that can be counted: "undefined command", "limit: time", ...
    message: str  # of the converter
    position: int = -1  # character offset in the formula, if known
    command: str = ""  # the undefined command, if that is the reason

    @classmethod
    def from_message(cls, message: str, position: int) -> Failure:
        """Classify a message of the converter."""
        undefined = _UNDEFINED.search(message)
        if undefined:
            return cls("undefined command", message, position, undefined[1])
        for pattern, reason in _REASONS:
            if pattern.search(message):
                return cls(reason, message.removeprefix("eqkin:").removeprefix("limit "), position)
        return cls("not parsed", message, position)


@dataclass(frozen=True)
class ConverterIdentity:
    """The converter that made a tree; stored in every library, never mixed within one."""

    name: str
    version: str
    sha256: str


@cache
def load_scripts(*names: str) -> str:
    """Return bundled scripts, one after the other."""
    package = resources.files("eqkin.formulas").joinpath("js")
    return "\n".join(package.joinpath(f"{name}.js").read_text("utf-8") for name in names)


@cache
def _load_sources() -> tuple[ConverterIdentity, str]:
    package = resources.files("eqkin.formulas")
    try:
        meta = orjson.loads(package.joinpath("katex.json").read_bytes())
        script = package.joinpath("katex.min.js").read_bytes()
    except FileNotFoundError as error:
        raise CorruptData(
            f"eqkin was installed without its converter ({error.filename}); install it again with pip"
        ) from error
    if hashlib.sha256(script).hexdigest() != meta["sha256"]:
        raise CorruptData("the bundled KaTeX script does not match its recorded hash; install eqkin again")
    ours = load_scripts("macros", "document", "trees")
    return ConverterIdentity(meta["name"], meta["version"], meta["sha256"]), f"{script.decode()}\n{ours}"


def get_converter_identity() -> ConverterIdentity:
    """Return name, version and hash of the bundled converter."""
    return _load_sources()[0]


@dataclass(frozen=True)
class ConvertedFormulas:
    """The results of some formulas."""

    forest: Forest  # trees of the converted formulas, in order
    failures: list[Failure | None]  # for each formula None, or why it has no tree
    unknown: list[list[str]]  # for each formula the undefined commands shown in it by name
    parsed: Any = None  # operator trees of all of them for `eqkin.formulas.parser.read_parsed`, if asked for


class _AnswerCollector:
    """Combines the answers of the engine."""

    def __init__(self) -> None:
        self._builder = ForestBuilder()
        self._failures: list[Failure | None] = []
        self._unknown: list[list[str]] = []
        self._parsed: Any = None

    def add_answer(self, answer: str) -> int:
        """Add an answer: a line of JSON (strings, outcomes), then the nodes, one character per number.

        Returns the number of formulas in it.
        """
        line, _, nodes = answer.partition("\n")
        header = orjson.loads(line)
        sizes: list[int] = []
        for outcome in header["outcomes"]:
            failure, unknown = None, []
            if type(outcome) is int:
                sizes.append(outcome)
            elif "size" in outcome:
                sizes.append(outcome["size"])
                unknown = outcome["unknown"]
            else:
                failure = Failure.from_message(outcome["error"], outcome["position"])
            self._failures.append(failure)
            self._unknown.append(unknown)
        self._parsed = header.get("parsed")
        columns = np.frombuffer(nodes.encode("utf-16-le"), "<u2").reshape(4, -1).astype(np.int64) - 1
        self._builder.add_columns(header["tags"], header["attributes"], header["texts"], list(columns), sizes)
        return len(header["outcomes"])

    def add_failures(self, count: int, what: str) -> None:
        """Add formulas for which the engine ran out of `what`."""
        self._failures += [Failure(f"limit: {what}", f"the converter ran out of {what}")] * count
        self._unknown += [[] for _ in range(count)]

    def build(self) -> ConvertedFormulas:
        """Return the combined results."""
        return ConvertedFormulas(self._builder.build(), self._failures, self._unknown, self._parsed)


class Converter:
    """A KaTeX engine. Not thread-safe; make one per thread.

    Args:
        limits: Of time, memory and sizes.
        parse: Whether the first formulas of a document are also parsed to operator trees, in the same call.
    """

    def __init__(self, limits: Limits = LIMITS, *, parse: bool = False) -> None:
        self.limits = limits
        self._parse = parse
        self._engine: MiniRacer | None = None
        self._finish: Callable[[], object] = lambda: None
        self._document = _NO_DOCUMENT

    def open_document(
        self,
        packages: Sequence[str],
        definitions: Iterable[Macro],
        formulas: Sequence[str],
        *,
        display: bool = True,
    ) -> ConvertedFormulas:
        """Open a document with its packages, definitions and all of its formulas; return the trees of the first few.

        An undefined command that a known package provides is taken from there; any other becomes a named symbol or
        operator with as many arguments as its uses suggest. `convert` converts the other formulas.
        """
        texts = self._trim_formulas(formulas)
        lengths = accumulate(map(len, texts))
        known = sum(1 for _ in takewhile(lambda length: length <= self.limits.document_chars, lengths))
        self._document = {
            "packages": ["latex", *(name for name in packages if name in load_preludes())],
            "definitions": list(definitions),
            "formulas": texts[:known],
        }
        trees = _AnswerCollector()
        with suppress(*LIMIT_ERRORS):  # `convert` finds out which formula is the cause
            wanted = {"first": self.limits.batch_formulas, "parse": self._parse, "displayMode": display}
            trees.add_answer(self._call("openDocument", _to_json(self._document | wanted)))
        return trees.build()

    def convert(
        self, formulas: Sequence[str], *, display: bool = True, deadline: float = math.inf
    ) -> ConvertedFormulas:
        """Convert formulas with the macros of the document that was opened last.

        Formulas not converted at `deadline`, a time of `time.monotonic`, fail.
        """
        trees = _AnswerCollector()
        texts = self._trim_formulas(formulas)
        done = alone = 0  # formulas up to `alone` are tried one by one: one of them stopped the engine
        while done < len(texts):
            check_cancelled()
            if time.monotonic() > deadline:
                trees.add_failures(len(texts) - done, "time for the paper")
                break
            batch = texts[done : done + (self.limits.batch_formulas if done >= alone else 1)]
            is_fresh = self._engine is None
            try:
                done += trees.add_answer(self._call("convert", _to_json({"formulas": batch, "displayMode": display})))
            except LIMIT_ERRORS as error:
                is_slow = isinstance(error, JSTimeoutException)
                if len(batch) == 1 and (is_fresh or is_slow):
                    trees.add_failures(1, "time" if is_slow else "memory")
                    done += 1
                else:  # another formula of the batch, or what earlier ones left in memory, may be the cause
                    alone = done + len(batch)
        return trees.build()

    def _trim_formulas(self, formulas: Sequence[str]) -> list[str]:
        """Return formulas without NULs, and of one that is too long no more than shows that it is."""
        return [formula[: self.limits.latex_chars + 1].replace("\0", "") for formula in formulas]

    def close(self) -> None:
        """Release the engine and its memory."""
        self._engine = None
        self._finish()

    def _call(self, function: str, payload: str) -> str:
        try:
            if self._engine is None:
                self._engine = self._start()
            return self._run(self._engine, function, payload)
        except BaseException:  # an engine that was stopped, interrupted or out of memory cannot be trusted further
            self.close()
            raise

    def _run(self, engine: MiniRacer, function: str, payload: str) -> str:
        # one evaluation is one round trip to the engine's thread; calling a function object would be three
        seconds = self.limits.batch_seconds + 2 * self.limits.formula_seconds  # the script stops itself before that
        seconds += self.limits.document_seconds * (function == "openDocument")
        answer = evaluate(engine, f"{function}({_to_json(payload)})", seconds)
        return answer if isinstance(answer, str) else ""

    def _start(self) -> MiniRacer:
        limits = asdict(self.limits) | {"diagram_commands": sorted(DIAGRAM_COMMANDS)}
        while True:
            engine, self._finish = start_engine(self, _load_sources()[1], self.limits)
            if self._parse:  # in a scope of its own
                engine.eval(
                    f"const parseFormulas = (() => {{ {load_scripts(*PARSER_SCRIPTS)}; return parseBatch; }})()"
                )
            self._run(engine, "setLimits", _to_json(limits))
            self._run(engine, "setPrelude", _encode_preludes())
            try:  # reopen the document of the previous engine
                self._run(engine, "openDocument", _to_json(self._document | {"first": 0}))
                return engine
            except LIMIT_ERRORS:
                if self._document is _NO_DOCUMENT:
                    raise
                self._finish()
                self._document = _NO_DOCUMENT  # its formulas are converted as far as that is possible without it


def check_address_space() -> None:
    """Raise `EqkinError` where the addresses of this process are limited (`ulimit -v`): V8 would end the process."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, AttributeError):
        return
    if limit != resource.RLIM_INFINITY and limit < _ENGINE_ADDRESS_BYTES:
        raise EqkinError(
            "`ulimit -v` is set: the converter reserves over a terabyte of addresses, though little memory; "
            "run `ulimit -v unlimited`, and limit memory in another way (a cgroup, `systemd-run -p MemoryMax=8G`)"
        )


def start_engine(owner: object, script: str, limits: Limits) -> tuple[MiniRacer, Callable[[], object]]:
    """Start a JavaScript engine with a bundled script, and return it with the function that closes it.

    It is closed at the latest when its owner is collected or the interpreter exits.
    """
    check_address_space()
    with _START_LOCK:
        init_mini_racer(flags=_ENGINE_FLAGS, ignore_duplicate_init=True)
        with ThreadPoolExecutor(1) as pool:  # without an event loop: in a notebook it would take that one and block it
            engine = pool.submit(MiniRacer).result()
        finish = weakref.finalize(owner, _close_engine, engine)
        try:
            engine.eval(script)
        except JSEvalException as error:
            raise CorruptData(f"a bundled script does not start ({error}); install eqkin again") from error
    engine.set_hard_memory_limit(limits.converter_bytes)
    return engine, finish


def evaluate(engine: MiniRacer, script: str, seconds: float) -> object:
    """Evaluate a script as `engine.eval` does, but without its event loop, which takes as long as a short script does.

    Raises:
        JSTimeoutException: It takes longer than `seconds`.
        JSEvalException: It fails, or takes too much memory.
    """
    context = engine._ctx
    assert context is not None
    library, answers = context._dll, context._non_cancelable_mr_task_results_queue
    source = context._python_to_value_handle(script)
    task = 0
    try:
        task = library.mr_eval(context._ctx, source.raw, 0)  # 0: the answer goes into that queue
        answer = answers.get(timeout=seconds)
    except BaseException as error:
        if task:
            library.mr_cancel_task(context._ctx, task)
        with suppress(Empty):
            answers.get(timeout=_STOP_SECONDS)  # that of the stopped script is not the answer to the next one
        if isinstance(error, Empty):
            raise JSTimeoutException from None
        raise
    return context._value_handle_to_python(answer)


def _close_engine(engine: MiniRacer) -> None:
    """Close an engine after a last evaluation: one that was just stopped still has an answer to deliver."""
    with suppress(*LIMIT_ERRORS):
        engine.eval("0", timeout_sec=_STOP_SECONDS)
    engine.close()


def _to_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate
        return json.dumps(value, ensure_ascii=False, default=asdict).encode("utf-8", "replace").decode()


@cache
def _encode_preludes() -> str:
    packages = {name: list(table.values()) for name, table in load_preludes().items()}
    return _to_json({"packages": packages, "providers": find_providers()})
