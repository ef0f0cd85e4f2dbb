"""Notations as a teacher: papers of notations, their share of the triplets, and runs that learn from them."""

# ruff: noqa: E402
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import Model
from eqkin.learning.config import NOTATIONS, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.related import add_related, build_notations
from eqkin.learning.run import MODEL_FOLDER, SPLIT_SEED
from eqkin.learning.sampling import TripletSampler, make_step_column
from tests.learning.test_run import TINY, run

RECIPE = get_recipe("eqkin").override(
    TINY | {"layers": "2", "notations": "2", "rewritten": "60", "notations_share": "0.3", "names_share": "0"}
)
pytestmark = pytest.mark.usefixtures("fast_neighbours")


@pytest.fixture(scope="module")
def notations(atlas_corpus: Corpus) -> Corpus:
    return build_notations(atlas_corpus, RECIPE)


def test_each_rewritten_equation_becomes_a_paper_that_begins_with_it(atlas_corpus: Corpus, notations: Corpus) -> None:
    assert 30 < len(notations.papers) <= 60
    sizes = np.bincount(notations.paper)
    assert sizes.min() >= 2 and sizes.max() <= 3
    ids = {atlas_corpus.get_equation_id(tree): tree for tree in range(len(atlas_corpus))}
    for paper in range(len(notations.papers)):
        first = notations.forest.select([int(np.flatnonzero(notations.paper == paper)[0])])
        equation = atlas_corpus.forest.select([ids[notations.papers[paper].removeprefix("notations:")]])
        assert (first.texts, first.tags, first.text.tolist()) == (equation.texts, equation.tags, equation.text.tolist())


def test_notations_are_the_same_for_the_same_seed(atlas_corpus: Corpus, notations: Corpus) -> None:
    assert build_notations(atlas_corpus, RECIPE).digest == notations.digest
    assert build_notations(atlas_corpus, replace(RECIPE, seed=1)).digest != notations.digest


def test_recipe_paper_learns_from_the_corpus_alone(atlas_corpus: Corpus, tmp_path: Path) -> None:
    assert add_related(atlas_corpus, get_recipe("paper"), tmp_path) is atlas_corpus
    assert not list(tmp_path.iterdir())


def test_share_of_the_triplets_comes_from_notations(atlas_corpus: Corpus, notations: Corpus) -> None:
    both = atlas_corpus.concatenate(notations)
    assert both.words is not None and len(both) == len(atlas_corpus) + len(notations)
    sampler = TripletSampler(both, seed=0, device=torch.device("cpu"), shares={NOTATIONS: 0.3})
    triplets = sampler.draw(make_step_column(0, 1, torch.device("cpu")), 4_000)
    anchor, partner = triplets.anchor.flatten().numpy(), triplets.partner.flatten().numpy()
    is_notation = np.array([work == NOTATIONS for work in both.works])[both.paper]
    assert 0.26 < is_notation[anchor].mean() < 0.34
    assert (both.paper[anchor] == both.paper[partner])[is_notation[anchor]].all()


def test_run_learns_from_notations_and_keeps_them(atlas_corpus: Corpus, tmp_path: Path) -> None:
    assert not run(atlas_corpus, tmp_path, RECIPE, stop_at=3).finished
    [kept] = tmp_path.glob("notations-*")
    written = kept.stat().st_mtime_ns
    assert run(atlas_corpus, tmp_path, RECIPE, resume=True).finished
    assert kept.stat().st_mtime_ns == written
    learn, _ = atlas_corpus.split(RECIPE.held_out, SPLIT_SEED)
    assert Model.load(tmp_path / MODEL_FOLDER).training["learned_from"]["trees"] == len(learn) + len(Corpus.load(kept))
