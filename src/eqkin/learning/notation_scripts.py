"""Other notations of formulas that mean the same, to learn from.

`notations.js` prints the operator tree of a formula as LaTeX in randomly chosen notations: `a/b` for a fraction,
`x^{1/2}` for a root, other styles of derivatives and transposes, operands commuted, sides swapped, variables renamed.
The LaTeX is converted like any other input, and a notation is kept only if its canonical form is that of the formula.
`paraphrases.js` changes the tree first: another author may write an integral for a sum, or `u` for `u(x, t)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
from py_mini_racer import JSFunction

from eqkin.formulas.engine import LIMIT_ERRORS, FormulaEngine, encode_forest, start_engine
from eqkin.formulas.forest import Forest, ForestBuilder
from eqkin.formulas.operators import FORM_KINDS
from eqkin.formulas.scripts import join_modules
from eqkin.limits import LIMITS

_BATCH_TREES = 500  # rewritten in one call
_CANONICAL, _RENAMED = FORM_KINDS.index("canonical"), FORM_KINDS.index("renamed")

Integers = npt.NDArray[np.int64]


class Notation(NamedTuple):
    """A formula in another notation."""

    latex: str
    is_renamed: bool  # variables have other names
    is_paraphrase: bool  # says nearly the same


class NotationWriter:
    """Rewrites formulas in other notations. Not safe to share between threads."""

    def __init__(self) -> None:
        self._write: JSFunction | None = None
        self._finish: Callable[[], object] = lambda: None
        self._formulas = FormulaEngine()

    def print(
        self, forest: Forest, *, count: int, seed: int, renamed: float = 0, paraphrased: float = 0
    ) -> list[list[Notation]]:
        """Print each tree in `count` notations, or in none if it cannot be parsed completely.

        Args:
            forest: Presentation trees of formulas.
            count: Notations per formula; some may be equal.
            seed: The seed and the position of a tree determine its notations.
            renamed: Fraction of the notations whose variables get other names.
            paraphrased: Fraction of the notations that say nearly the same.
        """
        printed: list[list[Notation]] = []
        for first in range(0, len(forest), _BATCH_TREES):
            trees = np.arange(first, min(first + _BATCH_TREES, len(forest)))
            seeds = np.random.SeedSequence([seed, first]).generate_state(len(trees)).tolist()
            printed += self._print_batch(
                forest.select(trees), seeds, count=count, renamed=renamed, paraphrased=paraphrased
            )
        return printed

    def _print_batch(self, forest: Forest, seeds: list[int], **settings: float) -> list[list[Notation]]:
        """Print some trees in one call; if that takes too long, each half by itself, and a single tree not at all."""
        payload = orjson.dumps(encode_forest(forest) | {"seeds": seeds} | settings).decode()
        if self._write is None:
            engine, self._finish = start_engine(self, join_modules("notations"), LIMITS)
            self._write = cast("JSFunction", engine.eval("writeNotations"))
        try:
            answer = self._write(payload, timeout_sec=LIMITS.batch_seconds)
        except LIMIT_ERRORS:
            self._write = None
            self._finish()
            half, trees = len(forest) // 2, np.arange(len(forest))
            if not half:
                return [[]]
            parts = ((trees[:half], seeds[:half]), (trees[half:], seeds[half:]))
            return [tree for part, own in parts for tree in self._print_batch(forest.select(part), own, **settings)]
        return [[Notation(*notation) for notation in tree] for tree in orjson.loads(str(answer))]

    def rewrite(
        self, forest: Forest, *, count: int, seed: int, renamed: float = 0, paraphrased: float = 0
    ) -> tuple[Forest, Integers]:
        """Return trees of other notations that keep the canonical form, and for each the number of its formula.

        A notation with renamed variables keeps the name-free form; a paraphrase can be parsed. Arguments: see `print`.
        """
        printed = self.print(forest, count=count, seed=seed, renamed=renamed, paraphrased=paraphrased)
        written = [(tree, notation) for tree, notations in enumerate(printed) for notation in dict.fromkeys(notations)]
        converted = self._formulas.read([notation.latex for _, notation in written])
        usable = np.array([failure is None for failure in converted.failures], bool)
        source = np.array([tree for tree, _ in written], np.int64)[usable]
        is_renamed, is_paraphrase = np.array([notation[1:] for _, notation in written], bool).reshape(-1, 2)[usable].T
        before, after = self._formulas.parse(forest), converted.operators
        kind, rows = np.where(is_renamed, _RENAMED, _CANONICAL), np.arange(len(source))
        keeps_form = before.formula_forms[source, kind] == after.formula_forms[rows, kind]
        kept = np.flatnonzero(np.where(is_paraphrase, after.unparsed == 0, keeps_form))
        notations, source = converted.forest.select(kept), source[kept]
        differs = ~_find_equal(forest, source, notations)
        return notations.select(np.flatnonzero(differs)), source[differs]


def _find_equal(forest: Forest, trees: Integers, others: Forest) -> npt.NDArray[np.bool_]:
    """Return for each of the other trees whether it equals the given tree of the forest."""
    builder = ForestBuilder()
    builder.add_forest(forest.select(trees))
    builder.add_forest(others)
    both = builder.build()  # with common numbers of strings
    columns = np.stack([both.tag, both.attribute, both.text, both.n_children], axis=1).astype(np.int64)
    parts = np.split(columns, both.offsets[1:])[:-1]
    pairs = zip(parts[: len(trees)], parts[len(trees) :], strict=True)
    return np.array([np.array_equal(one, other) for one, other in pairs], bool)
