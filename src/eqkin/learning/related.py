"""Equations related to those of a corpus, to learn from: other notations, and equations with a common name.

Other notations mean the same. `js/notations.mjs` prints the operator tree of a formula as LaTeX in randomly chosen
notations: `a/b` for a fraction, `x^{1/2}` for a root, other styles of derivatives and transposes, operands commuted,
sides swapped, variables renamed. The LaTeX is converted like any other input, and a notation is kept only if its
canonical form is that of the formula. `js/paraphrases.mjs` changes the tree first: another author may write an integral
for a sum, or `u` for `u(x, t)`.

Authors write the same law in different ways, but call it by the same name, such as "Jensen's inequality". Many
equations near a name are something else: two equations count as related only if the bundled network finds them more
alike than chance allows.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
from py_mini_racer import JSFunction

from eqkin.encoder.encoder import Encoder
from eqkin.formulas.engine import LIMIT_ERRORS, FormulaEngine, encode_forest, start_engine, to_json
from eqkin.formulas.forest import Forest
from eqkin.formulas.operators import FORM_KINDS
from eqkin.formulas.scripts import join_modules
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.limits import LIMITS

# Nodes of an equation with a name.
_MIN_NAMED_NODES, _MAX_NAMED_NODES = 6, 150
# A name with more equations means too little.
_MAX_EQUATIONS = 1_500
# Random equations, of which the nearest ones are kept for each equation.
_SAMPLE, _NEAREST_OF_SAMPLE = 20_000, 400
# Among as many random equations as have the name, fewer than so many may be as similar.
_MAX_EXPECTED = 0.04
_MIN_COSINE = 0.3
# Partners of the first equation of a paper.
_MAX_PARTNERS = 5
# An equation that is in so many papers begins no other, and joins no other.
_MAX_FIRST, _MAX_USES = 2, 4
# Equations compared with the sample at a time.
_BLOCK = 4_000

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
# Nodes of an equation worth rewriting.
_MIN_NODES, _MAX_NODES = 8, 90
# Equations rewritten at a time, and printed in one call of the engine.
_BLOCK_TREES, _BATCH_TREES = 2_000, 500
_CANONICAL, _RENAMED = FORM_KINDS.index("canonical"), FORM_KINDS.index("renamed")


def add_related(corpus: Corpus, recipe: Recipe, folder: Path) -> Corpus:
    """Return a corpus with notations of its equations and papers of named ones, if the recipe asks for them.

    The folder keeps both for the next run with the same equations and settings.
    """
    whole = corpus
    shares = recipe.notations_renamed, recipe.notations_paraphrased
    settings = (corpus.digest, recipe.notations, recipe.rewritten, *shares, recipe.seed)
    for kind, is_wanted in ((NOTATIONS, recipe.notations > 0), (NAMES, recipe.names_share > 0)):
        if is_wanted:
            path = folder / f"{kind}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:12]}.zst"
            if not path.exists():
                related = build_notations(corpus, recipe) if kind == NOTATIONS else build_names(corpus, recipe.seed)
                related.save(path)
            whole = whole.concatenate(Corpus.load(path))
    return whole


def build_names(corpus: Corpus, seed: int) -> Corpus:
    """Return a corpus of papers, each with equations of different works that have a name in common."""
    partners = _find_partners(corpus, seed)
    named = sorted({*partners, *(other for pairs in partners.values() for _, other in pairs)})
    contents = dict(zip(named, list_contents(corpus.forest.select(np.array(named, np.int64))), strict=True))
    uses: Counter[int] = Counter()
    papers: dict[frozenset[bytes], list[int]] = {}
    # The most certain pairs come first.
    for first in sorted(partners, key=lambda tree: partners[tree][0]):
        if uses[first] >= _MAX_FIRST:
            continue
        others = [tree for _, tree in partners[first] if uses[tree] < _MAX_USES][:_MAX_PARTNERS]
        distinct: dict[bytes, int] = {}
        for tree in (first, *others):
            distinct.setdefault(contents[tree], tree)
        if len(distinct) > 1 and frozenset(distinct) not in papers:
            papers[frozenset(distinct)] = [*distinct.values()]
            uses.update(distinct.values())
    trees = np.array([tree for group in papers.values() for tree in group], np.int64)
    paper = np.repeat(np.arange(len(papers)), [len(group) for group in papers.values()])
    names = [f"{NAMES}:{number}:{corpus.get_equation_id(group[0])}" for number, group in enumerate(papers.values())]
    return Corpus.from_papers(corpus.forest.select(trees), paper, names, NAMES)


def _find_partners(corpus: Corpus, seed: int) -> dict[int, list[tuple[float, int]]]:
    """Return for each equation the expected number of random ones as similar and the tree of each partner, sorted."""
    sizes = corpus.forest.sizes
    trees = np.flatnonzero((sizes >= _MIN_NAMED_NODES) & (sizes <= _MAX_NAMED_NODES))
    work = np.unique(np.array(corpus.works, object), return_inverse=True)[1][corpus.paper]
    groups = [group for group in _group_by_name(corpus, trees) if len(np.unique(work[group])) > 1]
    if not groups:
        return {}
    named = np.unique(np.concatenate(groups))
    encoder = Encoder.load("eqkin")
    vectors = _embed(encoder, corpus, named)

    # Cosines of each equation with the nearest ones of a random sample, in descending order.
    drawn = np.random.default_rng(seed).choice(trees, min(_SAMPLE, len(trees)), replace=False)
    sample = _embed(encoder, corpus, np.sort(drawn))
    count = min(_NEAREST_OF_SAMPLE, len(sample))
    parts = []
    for first in range(0, len(vectors), _BLOCK):
        cosines = vectors[first : first + _BLOCK] @ sample.T
        parts.append(-np.sort(-np.partition(cosines, -count, axis=1)[:, -count:], axis=1))
    nearest = np.concatenate(parts)

    found: dict[int, dict[int, float]] = defaultdict(dict)
    for group in groups:
        place = np.searchsorted(named, group)
        cosines = vectors[place] @ vectors[place].T
        cosines[work[group][:, None] == work[group]] = -1.0
        for i, row in enumerate(cosines):
            best = np.argsort(-row, kind="stable")[:_MAX_PARTNERS]
            as_near = np.searchsorted(-nearest[place[i]], -row[best], side="right") + 0.5
            expected = as_near / len(sample) * len(group)
            is_kept = (expected < _MAX_EXPECTED) & (row[best] >= _MIN_COSINE)
            known = found[int(group[i])]
            for other, number in zip(group[best[is_kept]].tolist(), expected[is_kept].tolist(), strict=True):
                known[other] = min(number, known.get(other, number))
    return {
        first: sorted((number, other) for other, number in known.items()) for first, known in found.items() if known
    }


def _group_by_name(corpus: Corpus, trees: Integers) -> list[Integers]:
    """Return the trees of each name that has not too many of them."""
    if corpus.names is None:
        return []
    is_used = np.isin(np.arange(len(corpus)), trees)
    names = corpus.names.select(is_used)
    tree, order = np.repeat(trees, names.counts), np.argsort(names.word, kind="stable")
    groups = np.split(tree[order], np.flatnonzero(np.diff(names.word[order])) + 1)
    return [group for group in groups if 0 < len(group) <= _MAX_EQUATIONS]


def _embed(encoder: Encoder, corpus: Corpus, trees: Integers) -> Floats:
    vectors = encoder.embed(corpus.forest.select(trees))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors


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
    # Variables have other names.
    is_renamed: bool
    # Says nearly the same.
    is_paraphrase: bool


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
