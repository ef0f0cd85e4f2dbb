"""The embedded JavaScript engine: KaTeX, the parser of operator trees, and the matcher, with hard limits.

Four functions cross the border (`js/engine.mjs`): `read` makes presentation and operator trees of formulas, `match`
finds the trees that a pattern matches, `explain` shows what two formulas have in common, and `describe_labels` tells
what signs and labels mean, which only the scripts know. Both directions have one format (`js/columns.mjs`).

The failure of one formula never costs the result of another. A formula that takes too long or expands to too much is
stopped by the script itself, which goes on with the next one. Where the script cannot do that, the engine is stopped,
and the batch is tried again formula by formula in a new one.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from queue import Empty
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException, MiniRacer, init_mini_racer

from eqkin.errors import CorruptData, EqkinError
from eqkin.formulas.forest import Forest, accumulate
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.formulas.scripts import join_modules, load_katex
from eqkin.latex.environments import DIAGRAM_COMMANDS
from eqkin.latex.macros import Macro, find_providers, load_preludes
from eqkin.limits import LIMITS, Limits, check_cancelled

LIMIT_ERRORS = (JSTimeoutException, JSOOMException, JSEvalException)
# Nodes of presentation trees that are parsed in one call.
_PARSED_NODES = 40_000
# Without V8's last compiler, engines read formulas faster, and explain the first hundreds of hits in two thirds of the
# time: code optimised for some formulas is discarded when another differs. Only indexing loses a tenth.
_ENGINE_FLAGS = ("--single-threaded", "--no-opt", "--no-lazy-feedback-allocation")
# How long an engine may take to deliver the answer of a script that was stopped.
_STOP_SECONDS = 1.0
# V8 reserves 1.5 TB for its sandbox.
_ENGINE_ADDRESS_BYTES = 2_000_000_000_000
# V8 initialises itself with its first engine; two threads at once may end the process.
_START_LOCK = Lock()
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

    # A class of reasons that can be counted: "undefined command", "limit: time", ...
    reason: str
    # What the converter says.
    message: str
    # Character offset in the formula, if known.
    position: int = -1
    # The undefined command, if that is the reason.
    command: str = ""

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


@dataclass(frozen=True, eq=False)
class FormulaContext:
    """What the formulas of one document share.

    An undefined command that a known package provides is taken from there; any other becomes a named symbol or
    operator with as many arguments as its uses in `formulas` suggest.
    """

    packages: Sequence[str] = ()
    definitions: Sequence[Macro] = ()
    formulas: Sequence[str] = ()


NO_CONTEXT = FormulaContext()


@dataclass
class ReadFormulas:
    """The results of some formulas."""

    # Presentation trees of those that were read, in order.
    forest: Forest
    # Their operator trees; none if they were not asked for.
    operators: OperatorForest
    # For each formula None, or why it has no tree.
    failures: list[Failure | None]
    # For each formula the undefined commands shown in it by name.
    unknown: list[tuple[str, ...]]


@dataclass
class _AnswerCollector:
    """Combines the answers of some calls of `read`."""

    forests: list[Forest] = field(default_factory=list)
    operators: list[OperatorForest] = field(default_factory=list)
    failures: list[Failure | None] = field(default_factory=list)
    unknown: list[tuple[str, ...]] = field(default_factory=list)

    def add_answer(self, answer: dict[str, Any]) -> int:
        """Add an answer; return the number of formulas in it."""
        outcomes = answer["outcomes"]
        for outcome in outcomes:
            # The number of nodes alone stands for the usual outcome.
            about: dict[str, Any] = {"size": outcome} if isinstance(outcome, int) else outcome
            failed = "error" in about
            self.failures.append(Failure.from_message(about["error"], about["position"]) if failed else None)
            self.unknown.append(tuple(about.get("unknown", ())))
        self.forests.append(_decode_forest(answer["trees"]))
        if "operators" in answer:
            self.operators.append(_decode_operators(answer["operators"]))
        return len(outcomes)

    def add_failures(self, count: int, what: str) -> None:
        """Add formulas for which the engine ran out of `what`."""
        self.failures += [Failure(f"limit: {what}", f"the converter ran out of {what}")] * count
        self.unknown += [()] * count


class FormulaEngine:
    """An embedded engine that reads, matches and explains formulas. Not safe to share between threads.

    It starts with its first call, and again after one that had to be stopped.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        # After which a call of `read` is stopped; the script stops itself before that.
        self._reading_seconds = 2 * limits.batch_seconds + 2 * limits.formula_seconds
        self._engine: MiniRacer | None = None
        self._finish: Callable[[], object] = lambda: None
        self._document: FormulaContext | None = None
        self._has_read = False

    def read(
        self,
        formulas: Sequence[str],
        document: FormulaContext = NO_CONTEXT,
        *,
        display: bool = True,
        operators: bool = True,
        deadline: float = math.inf,
    ) -> ReadFormulas:
        """Read formulas of LaTeX into presentation trees and operator trees.

        Args:
            formulas: Formulas.
            document: The document that contains them.
            display: Whether they stand on a line of their own.
            operators: Whether to make operator trees as well.
            deadline: A time of `time.monotonic`; formulas that are not read by then fail.
        """
        collected = _AnswerCollector()
        texts = self._trim_formulas(formulas)
        settings = {"displayMode": display, "wantsOperators": operators, "canonical": True}
        done = 0
        # Formulas up to here are read one by one: one of them stopped the engine.
        alone = 0
        while done < len(texts):
            check_cancelled()
            if time.monotonic() > deadline:
                collected.add_failures(len(texts) - done, "time for the paper")
                break
            batch = texts[done : done + (self.limits.batch_formulas if done >= alone else 1)]
            payload: dict[str, object] = {"formulas": batch, **settings}
            is_opened = self._document is document
            is_fresh = not self._has_read
            try:
                if is_opened:
                    answer = self._call("read", payload, self._reading_seconds)
                else:
                    # One call to open the document and to read its first formulas.
                    payload["document"] = self._describe_document(document)
                    answer = self._call("read", payload, self._reading_seconds + self.limits.document_seconds)
                    self._document = document
                self._has_read = True
                done += collected.add_answer(answer)
            except LIMIT_ERRORS as error:
                is_slow = isinstance(error, JSTimeoutException)
                if not is_opened:
                    # The document itself may be the cause.
                    self._open(document)
                    alone = done + len(batch)
                elif len(batch) == 1 and (is_fresh or is_slow):
                    collected.add_failures(1, "time" if is_slow else "memory")
                    done += 1
                else:
                    # Another formula of the batch, or what earlier ones left in memory, may be the cause.
                    self._open(document)
                    alone = done + len(batch)
        return ReadFormulas(
            forest=Forest.concatenate(collected.forests),
            operators=OperatorForest.concatenate(collected.operators),
            failures=collected.failures,
            unknown=collected.unknown,
        )

    def parse(self, forest: Forest, *, canonical: bool = True) -> OperatorForest:
        """Read presentation trees into operator trees; whatever has no meaning keeps its presentation structure.

        Args:
            forest: Presentation trees.
            canonical: Unify equivalent notations (`a/b` and a fraction, `x^{1/2}` and a root, `a > b` and `b < a`).
        """
        return OperatorForest.concatenate(list(self._iter_parsed(forest, canonical)))

    def _iter_parsed(self, forest: Forest, canonical: bool) -> Iterator[OperatorForest]:
        first = 0
        while first < len(forest):
            room = int(np.searchsorted(forest.offsets, forest.offsets[first] + _PARSED_NODES, "right")) - 1
            end = max(first + 1, room)
            batch = forest if end - first == len(forest) else forest.select(np.arange(first, end))
            try:
                payload: dict[str, object] = {
                    "trees": encode_forest(batch),
                    "wantsOperators": True,
                    "canonical": canonical,
                }
                answer = self._call("read", payload, self.limits.parse_seconds)
                yield _decode_operators(answer["operators"])
            except LIMIT_ERRORS:
                if len(batch) == 1:
                    # It took all the time or memory: it becomes a single node, and the others are parsed.
                    yield UNPARSED
                else:
                    for tree in range(len(batch)):
                        yield from self._iter_parsed(batch.select([tree]), canonical)
            first = end

    def match(self, pattern: OperatorForest, operators: OperatorForest, max_steps: int) -> npt.NDArray[np.uint8]:
        """Return for each tree 2 if all of it matches a pattern, 1 if a part does, 0 if none is found.

        Args:
            pattern: One tree, in which variables `?x` stand for anything.
            operators: Trees.
            max_steps: Steps of the search for a match in one tree.

        Raises:
            LIMIT_ERRORS: It takes too much time or memory.
        """
        payload: dict[str, object] = {
            "pattern": encode_operators(pattern),
            "operators": encode_operators(operators),
            "limit": max_steps,
        }
        return np.array(self._call("match", payload, self.limits.parse_seconds), np.uint8)

    def explain(
        self,
        query: Forest,
        hits: Forest,
        forms: Sequence[Sequence[str]],
        operators: tuple[OperatorForest, OperatorForest] | None = None,
    ) -> list[dict[str, Any]]:
        """Return how each hit is related to a query, and which nodes match (see `js/explain.mjs`).

        Args:
            query: One tree.
            hits: Trees.
            forms: For each hit those of `FORM_KINDS` that it has in common with the query.
            operators: The operator trees of query and hits, if only relations are wanted.

        Raises:
            LIMIT_ERRORS: It takes too much time or memory.
        """
        payload: dict[str, object] = {"query": encode_forest(query), "hits": encode_forest(hits), "forms": forms}
        if operators is not None:
            payload["operators"] = {"query": encode_operators(operators[0]), "hits": encode_operators(operators[1])}
        answer: list[dict[str, Any]] = self._call("explain", payload, self.limits.parse_seconds)
        return answer

    def describe_labels(self) -> dict[str, frozenset[str]]:
        """Return the labels of each kind (see `js/labels.mjs`)."""
        tables: dict[str, list[str]] = self._call("describeLabels", {}, self._reading_seconds)
        return {kind: frozenset(labels) for kind, labels in tables.items()}

    def close(self) -> None:
        """Release the engine and its memory."""
        self._engine = None
        self._document = None
        self._has_read = False
        self._finish()

    def _trim_formulas(self, formulas: Sequence[str]) -> list[str]:
        """Return formulas without NULs, and of one that is too long no more than shows that it is."""
        return [formula[: self.limits.latex_chars + 1].replace("\0", "") for formula in formulas]

    def _open(self, document: FormulaContext) -> None:
        """Open a document in a new engine; if that fails, its formulas are read as far as possible without it."""
        seconds = self._reading_seconds + self.limits.document_seconds
        self.close()
        with suppress(*LIMIT_ERRORS):
            self._call("read", {"document": self._describe_document(document), "formulas": []}, seconds)
        if self._engine is None:
            self._call("read", {"document": self._describe_document(NO_CONTEXT), "formulas": []}, seconds)
        self._document = document

    def _describe_document(self, document: FormulaContext) -> dict[str, object]:
        """Return a document for the scripts; what exceeds the limit of its formulas together is left out."""
        formulas = self._trim_formulas(document.formulas)
        lengths = accumulate(np.array([len(formula) for formula in formulas], np.int64))
        known = int(np.searchsorted(lengths, self.limits.document_chars, "right")) - 1
        return {
            "packages": ["latex", *(name for name in document.packages if name in load_preludes())],
            "definitions": list(document.definitions),
            "formulas": formulas[:known],
        }

    def _call(self, function: str, payload: dict[str, object], seconds: float) -> Any:
        """Call a function of the scripts; a call that reaches a limit raises one of `LIMIT_ERRORS`."""
        try:
            if self._engine is None:
                self._start()
            assert self._engine is not None
            # One evaluation is one round trip to the engine's thread; calling a function object would be three.
            answer = evaluate(self._engine, f"{function}({to_json(to_json(payload))})", seconds)
            return orjson.loads(str(answer))
        except BaseException:
            # An engine that was stopped, interrupted or out of memory cannot be trusted further.
            self.close()
            raise

    def _start(self) -> None:
        script = f"{load_katex()[1]}\n{join_modules('formulas/js/engine.mjs')}"
        self._engine, self._finish = start_engine(self, script, self.limits)
        limits = asdict(self.limits) | {"diagram_commands": sorted(DIAGRAM_COMMANDS)}
        prepared = f'{{"limits":{to_json(limits)},{_encode_preludes()}}}'
        evaluate(self._engine, f"start({to_json(prepared)})", self._reading_seconds + self.limits.document_seconds)


# The engines of this process that nobody uses.
_idle_engines: deque[FormulaEngine] = deque()
# Engines do not survive a fork; collecting them would wait for them.
_parent_engines: list[object] = []


@contextmanager
def borrow_engine() -> Iterator[FormulaEngine]:
    """Borrow an engine that no other thread is using."""
    try:
        engine = _idle_engines.pop()
    except IndexError:
        engine = FormulaEngine()
    try:
        yield engine
    finally:
        _idle_engines.append(engine)


def parse_operators(forest: Forest) -> OperatorForest:
    """Return the operator tree of every presentation tree."""
    with borrow_engine() as engine:
        return engine.parse(forest)


def _forget_engines() -> None:
    _parent_engines.extend(_idle_engines)
    _idle_engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_engines)


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
        # Without an event loop: in a notebook the engine would take that one and block it.
        with ThreadPoolExecutor(1) as pool:
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
    library = context._dll
    answers = context._non_cancelable_mr_task_results_queue
    source = context._python_to_value_handle(script)
    task = 0
    try:
        # 0: the answer goes into the queue.
        task = library.mr_eval(context._ctx, source.raw, 0)
        answer = answers.get(timeout=seconds)
    except BaseException as error:
        if task:
            library.mr_cancel_task(context._ctx, task)
        # The answer of the stopped script is not the answer to the next one.
        with suppress(Empty):
            answers.get(timeout=_STOP_SECONDS)
        if isinstance(error, Empty):
            raise JSTimeoutException from None
        raise
    return context._value_handle_to_python(answer)


def _close_engine(engine: MiniRacer) -> None:
    """Close an engine after a last evaluation: one that was just stopped still has an answer to deliver."""
    with suppress(*LIMIT_ERRORS):
        engine.eval("0", timeout_sec=_STOP_SECONDS)
    engine.close()


def encode_forest(forest: Forest) -> dict[str, object]:
    """Return presentation trees for the scripts."""
    return {
        "tags": forest.tags,
        "attributes": forest.attributes,
        "texts": forest.texts,
        "sizes": forest.sizes,
        "tag": forest.tag,
        "attribute": forest.attribute,
        "text": forest.text,
        "n_children": forest.n_children,
    }


def encode_operators(operators: OperatorForest) -> dict[str, object]:
    """Return operator trees for the scripts, with only the labels that occur."""
    used, label = np.unique(operators.label, return_inverse=True)
    return {
        "labels": [operators.labels[number] for number in used.tolist()],
        "sizes": np.diff(operators.offsets),
        "label": label,
        "depth": operators.depth,
    }


def _decode_forest(answer: dict[str, Any]) -> Forest:
    return Forest(
        tags=answer["tags"],
        attributes=answer["attributes"],
        texts=answer["texts"],
        tag=np.array(answer["tag"], np.int64),
        attribute=np.array(answer["attribute"], np.int64),
        text=np.array(answer["text"], np.int64),
        n_children=np.array(answer["n_children"], np.int64),
        offsets=accumulate(np.array(answer["sizes"], np.int64)),
    )


def _decode_operators(answer: dict[str, Any]) -> OperatorForest:
    return OperatorForest(
        labels=answer["labels"],
        label=np.array(answer["label"], np.int64),
        depth=np.array(answer["depth"], np.int64),
        offsets=accumulate(np.array(answer["sizes"], np.int64)),
        unparsed=np.array(answer["unparsed"], np.int64),
        forms=np.array(answer["forms"], np.uint32).reshape(-1, len(FORM_KINDS)),
        form_offsets=accumulate(np.array(answer["statements"], np.int64)),
    )


_NODE = np.zeros(1, np.int64)
UNPARSED = OperatorForest(
    labels=["p:math"],
    label=_NODE,
    depth=_NODE,
    offsets=np.arange(2),
    unparsed=_NODE + 1,
    forms=np.zeros((1, len(FORM_KINDS)), np.uint32),
    form_offsets=np.arange(2),
)


def to_json(value: object) -> str:
    """Return JSON for the scripts, of arrays and macros too."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY, default=_to_lists).decode()
    except TypeError:
        # A lone surrogate.
        return json.dumps(value, ensure_ascii=False, default=_to_lists).encode("utf-8", "replace").decode()


def _to_lists(value: Any) -> Any:
    """Return what JSON can say instead: lists for an array, a dictionary for a macro."""
    return value.tolist() if isinstance(value, np.ndarray) else asdict(value)


@cache
def _encode_preludes() -> str:
    """Return the preludes of known packages as members of a JSON object."""
    packages = {name: list(table.values()) for name, table in load_preludes().items()}
    return to_json({"packages": packages, "providers": find_providers()})[1:-1]
