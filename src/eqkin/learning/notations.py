"""Notations and names as teachers: related equations that become small papers.

Sampling draws them like any other paper, so that equations of such a paper are partners of each other, and the
equations of other papers are their negatives.

Notations: an equation with other notations of itself (`mathml.notations`).

Names: equations of different works that have the same name near them and look alike. "Cauchy-Schwarz inequality" stands
near many equations, and some of them are that inequality. Two equations near which the same name stands are related if
they are more alike than chance allows: a pair with cosine c, among n equations with that name, is kept if fewer than
0.04 of n random equations would be expected to have cosine c or more with one of the two. The cosines are those of the
bundled network.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.formulas.forest import ForestBuilder
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.notation_scripts import NotationWriter

_MIN_NODES, _MAX_NODES = 8, 90  # of an equation worth rewriting
_BLOCK_TREES = 2_000  # rewritten at a time
_MIN_NAMED_NODES, _MAX_NAMED_NODES = 6, 150  # of an equation with a name
_MAX_EQUATIONS = 1_500  # with one name; a name with more means too little
_SAMPLE = 20_000  # random equations
_NEAREST_OF_SAMPLE = 400  # of them are kept for each equation
_MAX_EXPECTED = 0.04  # random equations as similar
_MIN_COSINE = 0.3
_MAX_PARTNERS = 5  # of the first equation of a paper
_MAX_FIRST = 2  # an equation that is in so many papers begins no other
_MAX_USES = 4  # and one that is in so many joins no other
_BLOCK = 4_000  # equations compared with the sample at a time

Floats = npt.NDArray[np.float32]


def build_notations(corpus: Corpus, recipe: Recipe) -> Corpus:
    """Rewrite some equations of a corpus; return a corpus of one paper per equation, which comes first in it.

    Args:
        corpus: The equations. Those of small papers are as likely as those of large ones.
        recipe: Says how many equations to rewrite (`rewritten`), how often (`notations`), and what share of the
            notations to rename (`notations_renamed`) and to paraphrase (`notations_paraphrased`).
    """
    rng = np.random.default_rng(recipe.seed)
    sizes = corpus.forest.sizes
    candidates = np.flatnonzero((sizes >= _MIN_NODES) & (sizes <= _MAX_NODES))
    in_paper = np.bincount(corpus.paper[candidates], minlength=len(corpus.papers))[corpus.paper[candidates]]
    keys = rng.random(len(candidates)) * np.sqrt(in_paper)  # smaller for equations of small papers
    chosen = np.sort(candidates[np.argsort(keys, kind="stable")[: recipe.rewritten]])
    builder, owner, writer = ForestBuilder(), [np.zeros(0, np.int64)], NotationWriter()
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
        both = ForestBuilder()
        both.add_forest(originals.select(rewritten))
        both.add_forest(notations)
        order = np.argsort(np.concatenate([rewritten, source]), kind="stable")  # each original before its notations
        builder.add_forest(both.build().select(order))
        owner.append(trees[np.concatenate([rewritten, source])[order]])
    equations, first_trees, paper = np.unique(np.concatenate(owner), return_index=True, return_inverse=True)
    papers = [f"notations:{corpus.get_equation_id(int(tree))}" for tree in equations]
    number = paper.astype(np.int32)
    return Corpus(
        forest=builder.build().canonicalise(),
        section=number,
        paper=number,
        papers=papers,
        works=[NOTATIONS] * len(papers),
        citations=np.zeros((0, 2), np.int32),
        numbers=(np.arange(len(paper)) - first_trees[paper]).astype(np.int32),
    )


def build_names(corpus: Corpus, seed: int) -> Corpus:
    """Return a corpus of papers, each with equations of different works that have a name in common."""
    partners = _find_partners(corpus, seed)
    uses: Counter[int] = Counter()
    papers: dict[frozenset[bytes], list[int]] = {}
    for first in sorted(partners, key=lambda tree: partners[tree][0]):
        if uses[first] >= _MAX_FIRST:
            continue
        others = [tree for _, tree in partners[first] if uses[tree] < _MAX_USES][:_MAX_PARTNERS]
        distinct: dict[bytes, int] = {}
        for tree in (first, *others):
            distinct.setdefault(_get_content(corpus, tree), tree)
        if len(distinct) > 1 and frozenset(distinct) not in papers:
            papers[frozenset(distinct)] = [*distinct.values()]
            uses.update(distinct.values())
    trees = np.array([tree for paper in papers.values() for tree in paper], np.int64)
    sizes = [len(paper) for paper in papers.values()]
    paper = np.repeat(np.arange(len(papers)), sizes).astype(np.int32)
    return Corpus(
        forest=corpus.forest.select(trees).canonicalise(),
        section=paper,
        paper=paper,
        papers=[f"{NAMES}:{number}:{corpus.get_equation_id(group[0])}" for number, group in enumerate(papers.values())],
        works=[NAMES] * len(papers),
        citations=np.zeros((0, 2), np.int32),
        numbers=np.array([number for size in sizes for number in range(size)], np.int32),
    )


def _find_partners(corpus: Corpus, seed: int) -> dict[int, list[tuple[float, int]]]:
    """Return for each equation the expected number of random ones as similar and the tree of each partner, sorted."""
    if corpus.names is None:
        return {}
    sizes = corpus.forest.sizes
    is_used = (sizes >= _MIN_NAMED_NODES) & (sizes <= _MAX_NAMED_NODES)
    _, work = np.unique(np.array(corpus.works, object), return_inverse=True)
    work = work[corpus.paper]
    names = corpus.names.select(is_used)
    trees = np.flatnonzero(is_used)
    tree, name = np.repeat(trees, names.counts), names.word
    order = np.argsort(name, kind="stable")
    groups = np.split(tree[order], np.flatnonzero(np.diff(name[order])) + 1)
    groups = [group for group in groups if len(group) <= _MAX_EQUATIONS and len(np.unique(work[group])) > 1]
    if not groups:
        return {}
    named = np.unique(np.concatenate(groups))
    encoder = Encoder.load("eqkin")
    vectors = _embed(encoder, corpus, named)
    drawn = np.random.default_rng(seed).choice(trees, min(_SAMPLE, len(trees)), replace=False)
    sample = _embed(encoder, corpus, np.sort(drawn))
    count = min(_NEAREST_OF_SAMPLE, len(sample))
    parts = []
    for first in range(0, len(vectors), _BLOCK):
        cosines = vectors[first : first + _BLOCK] @ sample.T
        parts.append(-np.sort(-np.partition(cosines, -count, axis=1)[:, -count:], axis=1))
    nearest = np.concatenate(parts)  # cosines of each equation with the sample, in descending order
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


def _embed(encoder: Encoder, corpus: Corpus, trees: npt.NDArray[np.int64]) -> Floats:
    vectors = encoder.embed(corpus.forest.select(trees))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors


def _get_content(corpus: Corpus, tree: int) -> bytes:
    """Return bytes that are the same for equal trees of a corpus."""
    forest = corpus.forest
    nodes = slice(forest.offsets[tree], forest.offsets[tree + 1])
    return b"".join(array[nodes].tobytes() for array in (forest.tag, forest.attribute, forest.text, forest.n_children))


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
