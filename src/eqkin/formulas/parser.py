"""Presentation trees to operator trees, by a precedence parser in the embedded JavaScript engine.

`symbols.js` holds the tables of signs and letters, `operators.js` the grammar, `canonical.js` the table of equivalent
notations, `forms.js` and `weak_forms.js` the hashes of statements; `batches.js` reads and writes arrays. `matching.js`
matches operator trees, `explain.js` shows the matches in presentation trees. The engine is needed for KaTeX anyway, and
runs code that handles node after node faster than Python does.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import orjson
from py_mini_racer import MiniRacer

from eqkin.formulas.converter import LIMIT_ERRORS, PARSER_SCRIPTS, evaluate, load_scripts, start_engine
from eqkin.formulas.forest import Forest
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.limits import LIMITS

_BATCH_NODES = 40_000  # of presentation trees parsed in one call
_CODE_OFFSET = 256  # as in batches.js
_NODE = np.zeros(1, np.int64)
_UNPARSED = OperatorForest(
    ["p:math"], _NODE, _NODE, np.arange(2), _NODE + 1, np.zeros((1, len(FORM_KINDS)), np.uint32), np.arange(2)
)


class OperatorParser:
    """Parses presentation trees. Not safe to share between threads."""

    def __init__(self) -> None:
        self._engine: MiniRacer | None = None
        self._finish: Callable[[], object] = lambda: None

    def parse(self, forest: Forest, *, canonical: bool = True) -> OperatorForest:
        """Parse every tree; whatever has no meaning keeps its presentation structure.

        Args:
            forest: Presentation trees.
            canonical: Unify equivalent notations (`a/b` and a fraction, `x^{1/2}` and a root, `a > b` and `b < a`).
        """
        answers = list(self._iter_answers(forest, canonical))
        return answers[0] if len(answers) == 1 else OperatorForest.concatenate(answers)

    def _iter_answers(self, forest: Forest, canonical: bool) -> Iterator[OperatorForest]:
        first = 0
        while first < len(forest):
            room = int(np.searchsorted(forest.offsets, forest.offsets[first] + _BATCH_NODES, "right")) - 1
            end = max(first + 1, room)
            batch = forest if end - first == len(forest) else forest.select(np.arange(first, end))
            try:
                answer = self.call("parseOperators", encode_trees(batch, canonical=canonical))
                yield _decode_answer(bytes(cast("memoryview", answer)))
            except LIMIT_ERRORS:  # one tree took all the time or memory
                if len(batch) == 1:  # it becomes a single node; the others are parsed
                    yield _UNPARSED
                else:
                    for tree in range(len(batch)):
                        yield from self._iter_answers(batch.select([tree]), canonical)
            first = end

    def call(self, function: str, payload: bytes) -> object:
        """Call a function of the scripts with JSON; a call that reaches a limit raises one of `LIMIT_ERRORS`."""
        try:
            if self._engine is None:
                scripts = load_scripts(*PARSER_SCRIPTS, "matching", "explain")
                self._engine, self._finish = start_engine(self, scripts, LIMITS)
            # One evaluation is one round trip to the engine's thread; calling a function object would be three.
            # A buffer that nothing in the engine refers to is freed, even while Python reads it.
            code = f"globalThis.answer = {function}({orjson.dumps(payload.decode()).decode()})"
            return evaluate(self._engine, code, LIMITS.parse_seconds)
        except BaseException:  # an interrupted engine may still owe the answer to this call
            self._engine = None
            self._finish()
            raise


def _decode_answer(answer: bytes) -> OperatorForest:
    """Read what `AnswerWriter.toBuffer` in `batches.js` wrote."""
    nodes, trees, forms, _ = np.frombuffer(answer, "<u4", 4).tolist()
    lengths = [4, trees, trees, trees, forms]
    numbers = np.frombuffer(answer, "<u4", sum(lengths))
    _, sizes, unparsed, statements, codes = np.split(numbers, list(accumulate(lengths))[:-1])
    rest = np.frombuffer(answer, "<u2", offset=numbers.nbytes)
    label, depth = rest[: 2 * nodes].astype(np.int64).reshape(2, -1)
    labels = orjson.loads(rest[2 * nodes :].tobytes().decode("utf-16-le"))
    return _build_forest(labels, label, depth, sizes, unparsed, statements, codes)


def read_parsed(parsed: dict[str, list[Any]]) -> OperatorForest:
    """Return the operator trees of `ConvertedFormulas.parsed`."""
    names = ("label", "depth", "sizes", "unparsed", "statements", "forms")
    return _build_forest(parsed["labels"], *(np.array(parsed[name], np.int64) for name in names))


def _build_forest(labels: list[str], *columns: npt.NDArray[Any]) -> OperatorForest:
    label, depth, sizes, unparsed, statements, forms = columns
    offsets, form_offsets = (np.concatenate(([0], np.cumsum(counts, dtype=np.int64))) for counts in (sizes, statements))
    codes = forms.astype(np.uint32).reshape(-1, len(FORM_KINDS))
    return OperatorForest(labels, label, depth, offsets, unparsed.astype(np.int64), codes, form_offsets)


def encode_trees(forest: Forest, **settings: object) -> bytes:
    """Return trees and settings as the argument of a function in `batches.js`."""
    batch = settings | {
        "tags": forest.tags,
        "attributes": forest.attributes,
        "texts": forest.texts,
        "sizes": forest.sizes.tolist(),
        "nodes": encode_columns([forest.tag, forest.attribute, forest.text, forest.n_children]),
    }
    return orjson.dumps(batch)


def encode_columns(columns: Sequence[npt.NDArray[Any]]) -> str:
    """Return small numbers as a string for `batches.js`, column after column, one character each."""
    numbers = np.concatenate([np.asarray(column, np.int64) for column in columns])
    return (numbers + _CODE_OFFSET).astype("<u2").tobytes().decode("utf-16-le")


_idle_parsers: deque[OperatorParser] = deque()  # of this process
_parent_parsers: list[object] = []  # engines do not survive a fork; to collect them would wait for them


@contextmanager
def borrow_parser() -> Iterator[OperatorParser]:
    """Borrow a parser that no other thread is using."""
    try:
        parser = _idle_parsers.pop()
    except IndexError:
        parser = OperatorParser()
    try:
        yield parser
    finally:
        _idle_parsers.append(parser)


def parse_operators(forest: Forest) -> OperatorForest:
    """Parse every tree."""
    with borrow_parser() as parser:
        return parser.parse(forest)


def _forget_parsers() -> None:
    _parent_parsers.extend(_idle_parsers)
    _idle_parsers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parsers)
