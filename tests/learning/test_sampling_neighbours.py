"""Structural neighbours: search and sampling."""

# ruff: noqa: E402
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning import sampling
from eqkin.learning.data import Corpus
from eqkin.learning.sampling import TripletSampler, find_structural_neighbours, make_step_column
from eqkin.learning.text import TermTables
from tests.formulas.strategies import build
from tests.learning.corpora import corpus_of, fits

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tables(atlas_corpus: Corpus) -> TermTables:
    return TermTables(atlas_corpus.forest, CPU)


def test_neighbours_are_nearly_the_nearest_trees_of_other_papers(atlas_corpus: Corpus, tables: TermTables) -> None:
    paper = torch.from_numpy(atlas_corpus.paper)
    found = find_structural_neighbours(tables, paper).long()
    assert found.shape == (len(atlas_corpus), 16)
    some = found[:, 0] != torch.arange(len(paper))
    assert some.float().mean() > 0.98  # the others, such as a lone letter, have none
    vectors = tables.to_dense(torch.arange(len(paper)), torch.float32)
    cosines = (vectors @ vectors.T).masked_fill(paper[:, None] == paper, -1.0)
    cosines, found = cosines.masked_fill(cosines > 0.97, -1.0)[some], found[some]
    assert (paper[found] != paper[some][:, None]).all()
    chosen, best = cosines.gather(1, found), cosines.topk(16, 1).values
    assert (chosen > -1).float().mean() > 0.99  # but for cosines that the projection moves across the bound
    assert float((best.mean(1) - chosen.mean(1)).mean()) < 0.03
    assert float(chosen.mean()) > 2 * float(cosines.clamp(min=0).mean())


def test_neighbours_do_not_depend_on_the_block_size(
    atlas_corpus: Corpus, tables: TermTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = torch.from_numpy(atlas_corpus.paper)
    monkeypatch.setattr(sampling, "PROJECTION_DIMENSIONS", 64)  # to be quick
    whole = find_structural_neighbours(tables, paper)
    parts = find_structural_neighbours(tables, paper, block=(500, 300))
    # Equal cosines may change places.
    assert (parts == whole).float().mean() > 0.99


def test_missing_neighbours_repeat_the_nearest_or_the_tree_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "PROJECTION_DIMENSIONS", 128)  # to be quick
    row = [("mi", "", letter, []) for letter in "abc"]
    trees = [("mrow", "", "", row), ("mrow", "", "", row[:2]), ("mrow", "", "", row), ("mn", "", "7", [])]
    made = TermTables(build(trees), CPU)
    found = find_structural_neighbours(made, torch.tensor([0, 1, 2, 3])).tolist()
    assert found[1][2:] == [found[1][0]] * 14 and set(found[1]) == {0, 2}
    assert [found[0], *found[2:]] == [[1] * 16, [1] * 16, [3] * 16]  # 0 and 2 are the same; 3 is like none
    assert find_structural_neighbours(made, torch.tensor([0, 0, 0, 0])).tolist() == [[i] * 16 for i in range(4)]


def test_neighbour_sampler_draws_a_neighbour_of_the_anchor() -> None:
    corpus = corpus_of([[2, 3], [4], [3]])
    table = (torch.arange(12)[:, None] * 100 + torch.arange(4)).int()
    plain = TripletSampler(corpus, seed=5, device=CPU)
    made = TripletSampler(corpus, seed=5, device=CPU, neighbours=table)
    drawn, before = (sampler.draw(make_step_column(0, 50, CPU), 100) for sampler in (made, plain))
    assert torch.equal(drawn.anchor, before.anchor) and torch.equal(drawn.partner, before.partner)
    assert torch.equal(drawn.negative // 100, drawn.anchor)
    assert fits([count for _, count in sorted(Counter((drawn.negative % 100).flatten().tolist()).items())], [0.25] * 4)
    again = made.draw(make_step_column(7, 1, CPU), 100)
    assert torch.equal(again.concatenate()[0], drawn.concatenate()[7])
    assert made.shares == plain.shares
