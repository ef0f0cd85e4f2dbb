"""Small corpora for training, and a test of whether counts fit a distribution."""

import numpy as np
from hypothesis import strategies as st

from eqkin.formulas import Forest
from eqkin.learning.data import Corpus
from tests.formulas.strategies import build

TAGS = st.sampled_from(["mi", "mo", "mn", "mrow", "mfrac", "msup", "nobody"])
ATTRIBUTES = st.sampled_from(["", "a=b", "a=1\nb=2", "mathvariant=normal", "x=y"])
TEXTS = st.sampled_from(["", "x", "y", "α", "12", "exp", "xxy", "☃"])
TREES = st.recursive(
    st.tuples(TAGS, ATTRIBUTES, TEXTS, st.just([])),
    lambda children: st.tuples(TAGS, ATTRIBUTES, TEXTS, st.lists(children, max_size=4)),
    max_leaves=12,
)
FORESTS = st.lists(TREES, min_size=1, max_size=6).map(build)


def equation(number: int):
    """Return a tree that differs from those with other numbers."""
    letters = [("mi", "", "abcdefghijkl"[(number + i) % 12], []) for i in range(1 + number % 3)]
    return ("mrow", "", "", [*letters, ("mo", "stretchy=false", "=", []), ("mn", "", str(number), [])])


def some_trees(count: int) -> Forest:
    """Return different trees, some with a single node."""
    return build([("mi", "", "xyz"[i % 3], []) if i % 5 == 4 else equation(i) for i in range(count)]).canonicalise()


def corpus_of(papers: list[list[int]], citations: tuple[tuple[int, int], ...] = ()) -> Corpus:
    """Return a corpus of papers with sections of these sizes and citations between them."""
    sections = [size for paper in papers for size in paper]
    trees = [sum(paper) for paper in papers]
    corpus = Corpus(
        forest=some_trees(sum(trees)),
        section=np.repeat(np.arange(len(sections)), sections).astype(np.int32),
        paper=np.repeat(np.arange(len(papers)), trees).astype(np.int32),
        papers=[f"paper{i}" for i in range(len(papers))],
        works=[f"work{i}" for i in range(len(papers))],
        citations=np.array(sorted(citations), np.int32).reshape(-1, 2),
        numbers=np.array([number for count in trees for number in range(count)], np.int32),
    )
    return corpus


def fits(counts, chances) -> bool:
    """Return whether counts fit a distribution by Pearson's test, with a margin of six deviations."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    expected = counts.sum() * chances
    possible = expected > 0
    if counts[~possible].any():
        return False
    freedom = possible.sum() - 1
    squares = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    return bool(squares <= freedom + 6 * np.sqrt(2 * freedom) + 12)
