"""Names as a teacher: finding names in text, and papers of equations with a common name."""

# ruff: noqa: E402
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin import Library
from eqkin.learning.config import NAMES, NOTATIONS
from eqkin.learning.data import Corpus
from eqkin.learning.related import build_names
from eqkin.learning.sampling import TripletSampler, make_step_column
from eqkin.learning.text import find_context_names

SCHWARZ = (r"|\langle u, v\rangle| \le \|u\| \, \|v\|", r"|(x, y)| \leq \|x\| \|y\|", r"|x \cdot y| \le \|x\| \|y\|")
CHOLESKY = (r"A = L L^T", r"A = L L^\top", r"\Sigma = L L^{T}")
OTHERS = (r"\int_0^1 f(x) dx = F(1) - F(0)", r"\sum_{k=0}^n \binom{n}{k} = 2^n", r"\Gamma(z+1) = z\Gamma(z)")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The atlas and three works; each has two laws under their names, and something else under the first name."""
    folder = tmp_path_factory.mktemp("names")
    for number, formulas in enumerate(zip(SCHWARZ, CHOLESKY, OTHERS, strict=True)):
        texts = (
            "By the Cauchy--Schwarz inequality",
            "The Cholesky decomposition is",
            "Cauchy--Schwarz inequality aside",
        )
        body = "\n".join(rf"{text} \[{latex}\]" for text, latex in zip(texts, formulas, strict=True))
        (folder / f"{number}.tex").write_text(rf"\documentclass{{article}}\begin{{document}}{body}\end{{document}}")
    with Library.open(folder / "library", create=True) as library:
        library.add("atlas:")
        for number in range(3):
            library.add(folder / f"{number}.tex")
        return Corpus.from_library(library)


@pytest.mark.parametrize(
    "before, after, names",
    [
        ("we obtain from Jensen's inequality", "", {"jensen inequality"}),
        ("the law of large numbers says", "", {"law of large numbers", "large number"}),
        ("This is the equation", "", set()),  # no name
        ("$x$ solves the Euler–Lagrange equations", "", {"euler-lagrange equation"}),
        ("the heat equation " + "and so on " * 30, "", set()),  # too far away
        ("", ", which is called the partition function.", {"partition function"}),
        ("", "Now the partition function follows.", set()),
    ],
)
def test_names_are_found_close_to_an_equation(before: str, after: str, names: set[str]) -> None:
    assert find_context_names("", before, after) == names


def test_names_are_found_in_short_headings() -> None:
    assert find_context_names("The central limit theorem", "", "") == {"limit theorem", "central limit theorem"}
    assert not find_context_names("The central limit theorem " + "and more " * 9, "", "")


def test_papers_hold_equations_of_different_works_that_are_alike(corpus: Corpus) -> None:
    papers = build_names(corpus, seed=0)
    assert set(papers.works) == {NAMES} and np.bincount(papers.paper).min() > 1
    numbers = {  # of the equations of the three works within their papers
        get_texts(corpus, tree): int(corpus.numbers[tree])
        for tree in range(len(corpus))
        if not corpus.papers[corpus.paper[tree]].startswith("atlas:")
    }
    found = [
        {numbers.get(get_texts(papers, tree)) for tree in np.flatnonzero(papers.paper == p)}
        for p in range(len(papers.papers))
    ]
    assert {0} in found and {1} in found  # both laws, each by itself
    assert not any(2 in paper for paper in found)  # what only stands near the name


def get_texts(corpus: Corpus, tree: int) -> tuple[str, ...]:
    forest = corpus.forest.select([tree])
    return tuple(forest.texts[text] for text in forest.text)


def test_each_kind_of_paper_has_its_share_of_the_triplets(corpus: Corpus) -> None:
    both = corpus.concatenate(build_names(corpus, seed=0))
    shares = {NOTATIONS: 0.3, NAMES: 0.2}  # there are no notations here
    sampler = TripletSampler(both, seed=0, device=torch.device("cpu"), shares=shares)
    anchor = sampler.draw(make_step_column(0, 1, torch.device("cpu")), 4_000).anchor.flatten().numpy()
    assert 0.16 < np.array([work == NAMES for work in both.works])[both.paper][anchor].mean() < 0.24


def test_names_are_stored_with_a_corpus(corpus: Corpus, tmp_path: Path) -> None:
    corpus.save(tmp_path / "corpus.zst")
    loaded = Corpus.load(tmp_path / "corpus.zst")
    assert corpus.names is not None and loaded.names is not None
    assert loaded.names.vocabulary == corpus.names.vocabulary and "cholesky decomposition" in loaded.names.vocabulary
    assert np.array_equal(loaded.names.word, corpus.names.word) and loaded.digest == corpus.digest
    assert not len(build_names(replace(corpus, names=None), seed=0))
