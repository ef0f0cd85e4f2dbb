"""Deduplication, limits per paper and the combination of scores."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin import Library
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.index.update import update_index
from eqkin.library.references import EquationColumns, hash_latex, normalise_latex
from eqkin.search import SearchEngine
from eqkin.search.candidates import RankedCandidates
from eqkin.search.deduplicate import deduplicate, limit_per_paper


@pytest.mark.parametrize("other", [r"a\,+\;b .", "{a}+{{b}},", r"\left(a+b\right)", r"\displaystyle a+b\quad"])
def test_normalise_latex_ignores_spacing(other):
    assert re.sub(r"[{}()]", "", normalise_latex([other])[0]) == "a+b"


def _rank(vectors, *mathml, latex=None):
    """Return candidates in the order given, with these vectors and trees."""
    forests = []
    count = len(vectors)
    for text in mathml:
        forests.append(to_forest(parse_mathml(text)))
    hashes = hash_latex(latex or [f"x_{i}" for i in range(count)])
    none = np.zeros(count)
    return RankedCandidates(
        columns=EquationColumns(np.arange(count), np.arange(count), np.arange(count), hashes),
        vectors=np.asarray(vectors, np.float32),
        operators=parse_operators(Forest.concatenate(forests)),
        similarity=none,
        text_score=none,
        score=none,
        matches=none.astype(np.uint8),
    )


def test_deduplicate_keeps_formulas_with_far_vectors():
    ranked = _rank(np.eye(3), *["<math><mi>a</mi></math>"] * 3)
    kept, duplicates = deduplicate(ranked, np.arange(3))
    assert kept.tolist() == [0, 1, 2] and not duplicates


def test_deduplicate_folds_near_vectors_only_if_the_formulas_are_the_same():
    trees = (f"<math><mi>a</mi><mo>+</mo><mi>{x}</mi></math>" for x in "bbc")
    ranked = _rank(np.ones((3, 4)) / 2, *trees, latex=("a + b", "a+b,", "a+c"))
    kept, duplicates = deduplicate(ranked, np.arange(3))
    assert kept.tolist() == [0, 2] and duplicates == {0: [1]}


def test_deduplicate_ignores_style_and_needless_brackets_but_not_order():
    bold, plain = '<mi mathvariant="bold">a</mi>', "<mi>a</mi>"
    trees = (
        f"<math>{plain}<mo>+</mo><mi>b</mi></math>",
        f"<math><mrow>{bold}<mo>+</mo><mi>b</mi></mrow><mo>.</mo></math>",
        f"<math><mi>b</mi><mo>+</mo>{plain}</math>",
        f"<math><mo>(</mo>{plain}<mo>)</mo><mo>+</mo><mi>b</mi></math>",
    )
    kept, duplicates = deduplicate(_rank(np.ones((4, 4)) / 2, *trees), np.arange(4))
    assert kept.tolist() == [0, 2] and duplicates == {0: [1, 3]}


def test_formulas_without_latex_are_not_the_same():
    trees = ("<math><mi>a</mi></math>", "<math><mi>b</mi></math>")
    kept, _ = deduplicate(_rank(np.ones((2, 4)) / 2, *trees, latex=("", r"\,")), np.arange(2))
    assert kept.tolist() == [0, 1]


def test_no_candidates_give_no_hits():
    kept, duplicates = deduplicate(_rank(np.zeros((0, 4))), np.zeros(0, np.int64))
    assert not len(kept) and not duplicates
    assert limit_per_paper([], 10, 2) == ([], {})


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 15), st.integers(1, 3))
def test_limit_per_paper_defers_candidates_and_counts_hidden_ones(papers, k, per_paper):
    places, hidden = limit_per_paper(papers, k, per_paper)
    everything, _ = limit_per_paper(papers, 99, per_paper)
    assert places == everything[:k] and hidden.keys() <= set(places)
    assert sorted(everything) == list(range(len(papers)))
    if sum(min(papers.count(paper), per_paper) for paper in set(papers)) >= k:
        ours = [papers[place] for place in places]
        assert places == sorted(places) and max(ours.count(paper) for paper in ours) <= per_paper
        better = [paper for i, paper in enumerate(papers) if i < places[-1] and i not in places]
        assert sum(hidden.values()) == len(better)


def test_search_lists_the_better_of_a_display_and_its_rows(tmp_path, encoder):
    (tmp_path / "note.tex").write_text(
        r"\begin{align} \Box \Psi_{\nu} &= k \Psi_{\nu} \\ \oint_C f(z) dz &= 2 \pi i R \end{align}"
    )
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "note.tex")
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            for row, query in enumerate((r"\Box \Psi_{\nu} = k \Psi_{\nu}", r"\oint_C f(z) dz = 2 \pi i")):
                (hit,) = engine.search(query).hits
                assert hit.equation.id.endswith(f"#{row + 1}") and hit.equation.whole.endswith("#0")
