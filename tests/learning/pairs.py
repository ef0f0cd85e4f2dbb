"""A small corpus of equalities whose right sides follow from the left ones."""

import numpy as np

from eqkin.learning.data import Corpus
from tests.formulas.strategies import build

LATIN, GREEK = "abcdefghijkl", "αβγδεζηθικλμ"


def corpus_of_equalities(works: int = 24, equations: int = 8, seed: int = 0) -> Corpus:
    """Equations such as a+b+c = α+β+γ, each work a paper; none occurs twice."""
    draw = np.random.default_rng(seed)
    seen, trees = set(), []
    while len(trees) < works * equations:
        letters = tuple(draw.permutation(12)[: draw.integers(4, 7)].tolist())
        if letters not in seen:
            seen.add(letters)
            sign = "≤" if len(trees) % 4 == 3 else "="
            trees.append(("mrow", "", "", [*side(LATIN, letters), ("mo", "", sign, []), *side(GREEK, letters)]))
    paper = np.repeat(np.arange(works), equations).astype(np.int32)
    corpus = Corpus(
        forest=build(trees).canonicalise(),
        section=paper,
        paper=paper,
        papers=[f"paper{number:02}" for number in range(works)],
        works=[f"work{number:02}" for number in range(works)],
        citations=np.zeros((0, 2), np.int32),
        numbers=np.tile(np.arange(equations), works).astype(np.int32),
    )
    return corpus


def side(alphabet, letters):
    """Letters with plus signs between them."""
    nodes = []
    for letter in letters:
        nodes += [("mo", "", "+", []), ("mi", "", alphabet[letter], [])]
    return nodes[1:]
