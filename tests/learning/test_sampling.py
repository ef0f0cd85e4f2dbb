"""Triplets are drawn with the probabilities of rejection sampling."""

# ruff: noqa: E402
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.errors import BadInput
from eqkin.learning.data import Corpus
from eqkin.learning.sampling import CONTEXT_KINDS, TripletSampler, make_step_column
from tests.learning.corpora import corpus_of, fits
from tests.learning.test_data import corpora

CPU = torch.device("cpu")
CORPORA = {
    "ordinary": corpus_of([[2, 3], [4], [1, 1, 2]], ((0, 1), (2, 1))),
    "singletons": corpus_of([[1], [1], [1, 1]], ((0, 1),)),
    "sections of one": corpus_of([[1, 1, 1], [1, 1]]),
    "both ways": corpus_of([[3], [2], [1]], ((0, 1), (1, 0), (0, 2))),
    "one pair": corpus_of([[1], [2], [1]]),
    "far apart": corpus_of([[1], [1], [1]], ((0, 2),)),
}


def sampler(corpus: Corpus, seed=0) -> TripletSampler:
    return TripletSampler(corpus, seed=seed, device=CPU)


def draw(corpus: Corpus, count: int, **arguments):
    """Draw anchors, kinds, partners and negatives."""
    triplets = sampler(corpus, **arguments).draw(make_step_column(0, 10, CPU), count // 10)
    fields = (triplets.anchor, triplets.kind, triplets.partner, triplets.negative)
    return [field.flatten().tolist() for field in fields]


def partners(corpus: Corpus, anchor: int, kind: str) -> dict[int, float]:
    """Return the partners of an anchor with their probabilities."""
    trees = range(len(corpus))
    if kind == "citation":
        mine = corpus.paper[anchor]
        around = {b if a == mine else a for a, b in corpus.citations.tolist() if mine in (a, b)}
        return {
            tree: 1 / len(around) / int((corpus.paper == paper).sum())
            for paper in around
            for tree in trees
            if corpus.paper[tree] == paper
        }
    place = corpus.section if kind == "section" else corpus.paper
    others = [tree for tree in trees if place[tree] == place[anchor] and tree != anchor]
    return {tree: 1 / len(others) for tree in others}


def chances(corpus: Corpus) -> dict[tuple[int, int, int], float]:
    """Return the probability of each anchor, kind and partner, given that an attempt succeeds."""
    attempt = {}
    for anchor in range(len(corpus)):
        own = 1 / len(corpus.papers) / int((corpus.paper == corpus.paper[anchor]).sum())
        for kind in CONTEXT_KINDS:
            for partner, chance in partners(corpus, anchor, kind).items():
                attempt[anchor, CONTEXT_KINDS.index(kind), partner] = own / len(CONTEXT_KINDS) * chance
    return {outcome: chance / sum(attempt.values()) for outcome, chance in attempt.items()}


def simulated(corpus: Corpus, count: int) -> Counter:
    """Simulate the procedure: draw, and draw everything again if there is no partner."""
    generator = random.Random(5)
    counts: Counter = Counter()
    while counts.total() < count:
        paper = generator.randrange(len(corpus.papers))
        anchor = generator.choice(np.flatnonzero(corpus.paper == paper).tolist())
        kind = generator.randrange(3)
        possible = partners(corpus, anchor, CONTEXT_KINDS[kind])
        if possible:
            partner = generator.choices(list(possible), list(possible.values()))[0]
            counts[anchor, kind, partner] += 1
    return counts


@pytest.mark.parametrize("name", CORPORA)
def test_pairs_have_the_probabilities_of_rejection_sampling(name):
    corpus = CORPORA[name]
    expected = chances(corpus)
    anchor, kind, partner, _ = draw(corpus, 60_000)
    counts = Counter(zip(anchor, kind, partner, strict=True))
    assert set(counts) <= set(expected)
    assert fits([counts[outcome] for outcome in expected], list(expected.values()))


@pytest.mark.parametrize("name", CORPORA)
def test_negatives_are_drawn_by_paper_then_equation(name):
    corpus = CORPORA[name]
    anchor, _, partner, negative = draw(corpus, 60_000)
    expected = 1 / len(corpus.papers) / np.bincount(corpus.paper)[corpus.paper]
    assert fits(np.bincount(negative, minlength=len(corpus)), expected)
    for drawn in (anchor, partner):  # whatever the pair is
        joint = np.bincount(np.array(drawn) * len(corpus) + negative, minlength=len(corpus) ** 2)
        often = np.bincount(drawn, minlength=len(corpus)) / len(drawn)
        assert fits(joint, np.outer(often, expected).ravel())


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_balance_weights_papers_by_the_size_of_their_work(balance):
    corpus = replace(corpus_of([[2], [4], [3], [2, 2], [2], [1]]), works=["b", "a", "b", "b", "c", "b"])
    drawing = TripletSampler(corpus, seed=0, device=CPU, balance=balance)
    anchor = drawing.draw(make_step_column(0, 10, CPU), 5_000).anchor.flatten().numpy()
    weight = np.array([4.0**-balance, 1, 4.0**-balance, 4.0**-balance, 1, 0])  # the last has no pair
    assert fits(np.bincount(corpus.paper[anchor], minlength=6), weight / weight.sum())


@settings(max_examples=40)
@given(corpora(), st.integers(0, 2**32))
def test_partners_share_the_drawn_context_and_differ_from_the_anchor(corpus, seed):
    possible = [
        anchor for anchor in range(len(corpus)) if any(partners(corpus, anchor, kind) for kind in CONTEXT_KINDS)
    ]
    assume(possible)
    cites = {frozenset(pair) for pair in corpus.citations.tolist()}
    for anchor, kind, partner, negative in zip(*draw(corpus, 300, seed=seed), strict=True):
        assert anchor != partner
        assert 0 <= negative < len(corpus)
        if CONTEXT_KINDS[kind] == "section":
            assert corpus.section[anchor] == corpus.section[partner]
        elif CONTEXT_KINDS[kind] == "paper":
            assert corpus.paper[anchor] == corpus.paper[partner]
        else:
            assert frozenset((int(corpus.paper[anchor]), int(corpus.paper[partner]))) in cites


@pytest.mark.parametrize("corpus", [corpus_of([[1], [1]]), corpus_of([])])
def test_sampler_rejects_a_corpus_without_pairs(corpus):
    with pytest.raises(BadInput, match="add papers with several equations"):
        sampler(corpus)
