"""Equations with a common name, such as "Jensen's inequality", to learn from.

Authors write the same law in different ways, but call it by the same name. Many equations near a name are something
else: two equations count as related only if the bundled network finds them more alike than chance allows.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.notations import build_notations, list_contents

# Nodes of an equation with a name.
_MIN_NODES, _MAX_NODES = 6, 150
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
    trees = np.flatnonzero((sizes >= _MIN_NODES) & (sizes <= _MAX_NODES))
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
