"""Other notations of equations that mean the same, to learn from.

`js/notations.mjs` prints the operator tree of a formula as LaTeX in randomly chosen notations: `a/b` for a fraction,
`x^{1/2}` for a root, other styles of derivatives and transposes, operands commuted, sides swapped, variables renamed.
The LaTeX is converted like any other input, and a notation is kept only if its canonical form is that of the formula.
`js/paraphrases.mjs` changes the tree first: another author may write an integral for a sum, or `u` for `u(x, t)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
from py_mini_racer import JSFunction

from eqkin.formulas.engine import LIMIT_ERRORS, FormulaEngine, encode_forest, start_engine, to_json
from eqkin.formulas.forest import Forest
from eqkin.formulas.operators import FORM_KINDS
from eqkin.formulas.scripts import join_modules
from eqkin.learning.config import NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.limits import LIMITS

# Of an equation worth rewriting.
_MIN_NODES, _MAX_NODES = 8, 90
# Rewritten at a time, and printed in one call of the engine.
_BLOCK_TREES, _BATCH_TREES = 2_000, 500
_CANONICAL, _RENAMED = FORM_KINDS.index("canonical"), FORM_KINDS.index("renamed")

Integers = npt.NDArray[np.int64]


def build_notations(corpus: Corpus, recipe: Recipe) -> Corpus:
    """Rewrite some equations of a corpus; return a corpus of one paper per equation, which comes first in it.

    Args:
        corpus: The equations. Those of small papers are as likely as those of large ones.
        recipe: Says how many equations to rewrite (`rewritten`), how often (`notations`), and what share of the
            notations to rename (`notations_renamed`) and to paraphrase (`notations_paraphrased`).
    """
    # Draw equations, with larger keys for those of large papers.
    rng = np.random.default_rng(recipe.seed)
    sizes = corpus.forest.sizes
    candidates = np.flatnonzero((sizes >= _MIN_NODES) & (sizes <= _MAX_NODES))
    in_paper = np.bincount(corpus.paper[candidates], minlength=len(corpus.papers))[corpus.paper[candidates]]
    keys = rng.random(len(candidates)) * np.sqrt(in_paper)
    chosen = np.sort(candidates[np.argsort(keys, kind="stable")[: recipe.rewritten]])

    # Write each equation before its notations.
    forests: list[Forest] = []
    writer, owners = NotationWriter(), [np.zeros(0, np.int64)]
    for first in range(0, len(chosen), _BLOCK_TREES):
        trees = chosen[first : first + _BLOCK_TREES]
        originals = corpus.forest.select(trees)
        notations, source = writer.rewrite(
            originals,
            count=recipe.notations,
            seed=recipe.seed + first,
            renamed=recipe.notations_renamed,
            paraphrased=recipe.notations_paraphrased,
        )
        rewritten = np.unique(source)
        both = Forest.concatenate([originals.select(rewritten), notations])
        owner = np.concatenate([rewritten, source])
        order = np.argsort(owner, kind="stable")
        forests.append(both.select(order))
        owners.append(trees[owner[order]])

    equations, paper = np.unique(np.concatenate(owners), return_inverse=True)
    names = [f"{NOTATIONS}:{corpus.get_equation_id(int(tree))}" for tree in equations]
    return Corpus.from_papers(Forest.concatenate(forests), paper, names, NOTATIONS)


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

    def rewrite(
        self, forest: Forest, *, count: int, seed: int, renamed: float = 0, paraphrased: float = 0
    ) -> tuple[Forest, Integers]:
        """Return trees of other notations that keep the canonical form, and for each the number of its formula.

        A notation with renamed variables keeps the name-free form; a paraphrase can be parsed. Arguments: see `print`.
        """
        printed = self.print(forest, count=count, seed=seed, renamed=renamed, paraphrased=paraphrased)
        written = [(tree, notation) for tree, notations in enumerate(printed) for notation in dict.fromkeys(notations)]
        read = self._formulas.read([notation.latex for _, notation in written])
        usable = [pair for pair, failure in zip(written, read.failures, strict=True) if failure is None]
        source = np.array([tree for tree, _ in usable], np.int64)
        kind = np.array([_RENAMED if notation.is_renamed else _CANONICAL for _, notation in usable], np.int64)
        is_paraphrase = np.array([notation.is_paraphrase for _, notation in usable], bool)

        before, after = self._formulas.parse(forest), read.operators
        keeps_form = before.formula_forms[source, kind] == after.formula_forms[np.arange(len(source)), kind]
        # The notation may be the one that the formula has already.
        contents = list_contents(Forest.concatenate([forest, read.forest]))
        differs = [
            contents[tree] != other for tree, other in zip(source.tolist(), contents[len(forest) :], strict=True)
        ]
        kept = np.flatnonzero(np.where(is_paraphrase, after.unparsed == 0, keeps_form) & np.array(differs, bool))
        return read.forest.select(kept), source[kept]

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
        settings = {"count": count, "renamed": renamed, "paraphrased": paraphrased}
        printed: list[list[Notation]] = []
        for first in range(0, len(forest), _BATCH_TREES):
            trees = np.arange(first, min(first + _BATCH_TREES, len(forest)))
            seeds = np.random.SeedSequence([seed, first]).generate_state(len(trees)).tolist()
            printed += self._print_batch(forest.select(trees), seeds, settings)
        return printed

    def _print_batch(self, forest: Forest, seeds: list[int], settings: dict[str, float]) -> list[list[Notation]]:
        """Print some trees in one call; if that takes too long, each half by itself, and a single tree not at all."""
        if self._write is None:
            engine, self._finish = start_engine(self, join_modules("learning/js/notations.mjs"), LIMITS)
            self._write = cast("JSFunction", engine.eval("writeNotations"))
        payload = to_json(encode_forest(forest) | {"seeds": seeds} | settings)
        try:
            answer = orjson.loads(str(self._write(payload, timeout_sec=LIMITS.batch_seconds)))
        except LIMIT_ERRORS:
            self._write = None
            self._finish()
            if len(forest) == 1:
                return [[]]
            halves = np.array_split(np.arange(len(forest)), [len(forest) // 2])
            parts = [(forest.select(half), [seeds[tree] for tree in half]) for half in halves]
            return [tree for part, own in parts for tree in self._print_batch(part, own, settings)]
        return [[Notation(*notation) for notation in notations] for notations in answer]


def list_contents(forest: Forest) -> list[bytes]:
    """Return bytes for each tree that are the same for equal trees of the forest."""
    columns = np.stack([forest.tag, forest.attribute, forest.text, forest.n_children], axis=1).astype(np.int32)
    return [part.tobytes() for part in np.split(columns, forest.offsets[1:-1])] if len(forest) else []
