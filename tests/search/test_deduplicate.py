"""Deduplication, limits per paper and the combination of scores."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin import Library
from eqkin.formulas import ForestBuilder
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.index.update import update_index
from eqkin.library.references import EquationColumns, hash_latex, normalise_latex
from eqkin.search import SearchEngine
from eqkin.search.candidates import CandidateSet
from eqkin.search.deduplicate import deduplicate, limit_per_paper
from eqkin.search.rerank import combine_scores


@pytest.mark.parametrize("other", [r"a\,+\;b .", "{a}+{{b}},", r"\left(a+b\right)", r"\displaystyle a+b\quad"])
def test_normalise_latex_ignores_spacing(other):
    assert re.sub(r"[{}()]", "", normalise_latex([other])[0]) == "a+b"


class _Trees:
    """A snapshot that has only operator trees, and counts how often they are read."""

    def __init__(self, *mathml):
        self.nodes, self.reads = [parse_mathml(text) for text in mathml], 0

    def get_operators(self, keys):
        self.reads += 1
        builder = ForestBuilder()
        for key in keys.tolist():
            builder.add_forest(to_forest(self.nodes[key]))
        return parse_operators(builder.build())


def _make_set(vectors, snapshot, latex=None):
    count = len(vectors)
    hashes = hash_latex(latex or [f"x_{i}" for i in range(count)])
    columns = EquationColumns(np.arange(count), np.arange(count), np.arange(count), hashes)
    return CandidateSet(snapshot, columns, np.asarray(vectors, np.float32), {})


def test_deduplicate_keeps_formulas_with_far_vectors():
    trees = _Trees(*["<math><mi>a</mi></math>"] * 3)
    kept, duplicates = deduplicate(np.arange(3), _make_set(np.eye(3), trees))
    assert kept.tolist() == [0, 1, 2] and not duplicates


def test_deduplicate_folds_near_vectors_only_if_the_formulas_are_the_same():
    trees = _Trees(*(f"<math><mi>a</mi><mo>+</mo><mi>{x}</mi></math>" for x in "bbc"))
    kept, duplicates = deduplicate(np.arange(3), _make_set(np.ones((3, 4)) / 2, trees, ("a + b", "a+b,", "a+c")))
    assert kept.tolist() == [0, 2] and duplicates == {0: [1]}
    assert trees.reads == 1


def test_deduplicate_ignores_style_and_needless_brackets_but_not_order():
    bold, plain = '<mi mathvariant="bold">a</mi>', "<mi>a</mi>"
    trees = _Trees(
        f"<math>{plain}<mo>+</mo><mi>b</mi></math>",
        f"<math><mrow>{bold}<mo>+</mo><mi>b</mi></mrow><mo>.</mo></math>",
        f"<math><mi>b</mi><mo>+</mo>{plain}</math>",
        f"<math><mo>(</mo>{plain}<mo>)</mo><mo>+</mo><mi>b</mi></math>",
    )
    kept, duplicates = deduplicate(np.arange(4), _make_set(np.ones((4, 4)) / 2, trees))
    assert kept.tolist() == [0, 2] and duplicates == {0: [1, 3]}


def test_formulas_without_latex_are_not_the_same():
    trees = _Trees("<math><mi>a</mi></math>", "<math><mi>b</mi></math>")
    kept, _ = deduplicate(np.arange(2), _make_set(np.ones((2, 4)) / 2, trees, ("", r"\,")))
    assert kept.tolist() == [0, 1]


def test_no_candidates_give_no_hits():
    kept, duplicates = deduplicate(np.zeros(0, np.int64), _make_set(np.zeros((0, 4)), _Trees()))
    assert not len(kept) and not duplicates
    assert limit_per_paper([], 10, 2) == ([], {})


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 15), st.integers(1, 3), st.integers(0, 40))
def test_limit_per_paper_defers_candidates_and_counts_hidden_ones(papers, k, per_paper, first):
    first = min(first, len(papers))
    places, hidden = limit_per_paper(papers, k, per_paper, first)
    everything, _ = limit_per_paper(papers, 99, per_paper, first)
    assert places == everything[:k] and hidden.keys() <= set(places)
    assert sorted(everything[:first]) == list(range(first)) and sorted(everything) == list(range(len(papers)))
    if sum(min(papers[:first].count(paper), per_paper) for paper in set(papers)) >= k:
        ours = [papers[place] for place in places]
        assert places == sorted(places) and max(ours.count(paper) for paper in ours) <= per_paper
        better = [paper for i, paper in enumerate(papers) if i < places[-1] and i not in places]
        assert sum(hidden.values()) == len(better)


@given(st.floats(0, 1), st.floats(0, 1))
def test_combine_scores_weighs_formula_three_quarters_and_either_alone_fully(kinship, words):
    both = combine_scores(kinship, words, formula=True, text=True)
    assert 0 <= both <= 1 and both == pytest.approx(0.75 * kinship + 0.25 * words)
    assert combine_scores(kinship, words, formula=True, text=False) == kinship
    assert combine_scores(kinship, words, formula=False, text=True) == words


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
