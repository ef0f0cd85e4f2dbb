"""Names as a teacher: equations of different works that have the same name near them and look alike.

"Cauchy-Schwarz inequality" stands near many equations, and some of them are that inequality. Two equations near which
the same name stands are related if they are more alike than chance allows: a pair with cosine c, among n equations
with that name, is kept if fewer than 0.04 of n random equations would be expected to have cosine c or more with one of
the two. Such equations become small papers, like notations (`training.notations`). The cosines are those of the
bundled network.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.training.config import NAMES
from eqkin.training.data import Corpus

_MIN_NODES, _MAX_NODES = 6, 150  # of an equation
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
    is_used = (sizes >= _MIN_NODES) & (sizes <= _MAX_NODES)
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
    parts = np.split(vectors, range(_BLOCK, len(vectors), _BLOCK))
    nearest = np.concatenate([_select_nearest(part @ sample.T) for part in parts])
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


def _select_nearest(cosines: Floats) -> Floats:
    """Return the largest numbers of each row, in descending order."""
    count = min(_NEAREST_OF_SAMPLE, cosines.shape[1])
    return -np.sort(-np.partition(cosines, -count, axis=1)[:, -count:], axis=1)


def _get_content(corpus: Corpus, tree: int) -> bytes:
    """Return bytes that are the same for equal trees of a corpus."""
    forest = corpus.forest
    nodes = slice(forest.offsets[tree], forest.offsets[tree + 1])
    return b"".join(array[nodes].tobytes() for array in (forest.tag, forest.attribute, forest.text, forest.n_children))
