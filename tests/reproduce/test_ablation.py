"""The ablation: networks without each part, trained once and resumed, with intervals, compared with baselines."""

# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.cache import ResultCache, compute_digest
from eqkin.evaluation.context import (
    HELD_OUT_FRACTION,
    SMALL_SCALE,
    SPLIT_SEED,
    ExperimentContext,
    drop_text,
)
from eqkin.evaluation.formulas import NamedFormulas
from eqkin.evaluation.labelled import LabelledSet
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.sparse import BagOfWords
from eqkin.evaluation.tables import PAPER, ExperimentResult, Score
from eqkin.statistics import draw_bootstrap_weights
from eqkin.training.run import TrainingRun
from eqkin.training.text import ContextWords
from reproduce.ablation import (
    EQKIN,
    VARIANTS,
    AblationScores,
    HeldOutTriples,
    _compute_difference,
    make_recipe,
    rank_triples,
    run_ablation,
    train_networks,
    train_variant,
)
from tests.evaluation.formulas import formulas
from tests.training.corpora import corpus_of

SCALE = replace(SMALL_SCALE, triplets=256, width=8, triples=200, resamples=50, seeds=2)
CORPUS = corpus_of([[3, 2], [4], [2, 2], [5]] * 3, ((0, 1), (2, 3), (4, 8)))
LATEX = ["x^2", "y^3", r"\frac{a}{b}", r"\frac{c}{d}", r"\sum_i x_i", r"\sum_j a_j"]


def labelled() -> LabelledSet:
    names = [str(number) for number in range(len(LATEX))]
    return LabelledSet("mine", NamedFormulas(names, formulas(*LATEX)), [latex[:2] for latex in LATEX])


class Ran(NamedTuple):
    """An ablation on the smallest scale: its folder, its result, its messages."""

    folder: Path
    result: ExperimentResult
    messages: list[str]

    def again(self, scale=SCALE, corpus=CORPUS) -> tuple[ExperimentResult, list[str]]:
        messages: list[str] = []
        context = ExperimentContext(ResultCache(self.folder), scale, "cpu", messages.append)
        return run_ablation(context, corpus, [BagOfWords()], labelled())[0], messages


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    folder, messages = tmp_path_factory.mktemp("ablation"), list[str]()
    context = ExperimentContext(ResultCache(folder), SCALE, "cpu", messages.append)
    return Ran(folder, run_ablation(context, CORPUS, [BagOfWords()], labelled())[0], messages)


def learning(messages: list[str]) -> set[str]:
    """Return the networks that were trained, according to the messages."""
    return {message.partition(":")[0] for message in messages if ", seed " in message}


def cells(result: ExperimentResult, table: str) -> dict[str, dict[str, Any]]:
    (found,) = [one for one in result.tables if one.name == table]
    return {row.title: row.cells for row in found.rows if row.origin != PAPER}


def test_ablation_trains_each_variant_with_each_seed(ran):
    paper = {f"paper {variant}, seed {seed}" for variant in VARIANTS for seed in (0, 1)}
    assert learning(ran.messages) == paper | {"eqkin, seed 0"}
    titles = [title for title, _ in VARIANTS.values()]
    assert list(cells(ran.result, "ablation")) == [*titles, "eqkin's recipe", "Bag of words"]
    models = [Model.load(path.parent).digest for path in ran.folder.rglob("model.json")]
    assert len(set(models)) == len(models) == 9


def test_variants_differ_only_in_the_part_left_out(tmp_path):
    context = ExperimentContext(ResultCache(tmp_path), SCALE)
    full = make_recipe("full", 1, context).to_dict()
    assert (full["seed"], full["triplets"], full["held_out"], full["split_seed"]) == (
        1,
        256,
        HELD_OUT_FRACTION,
        SPLIT_SEED,
    )
    parts = {"no-histogram": "loss", "no-masking": "masking", "no-augmentation": "transpositions"}
    for variant, part in parts.items():
        other = make_recipe(variant, 1, context).to_dict()
        assert {name for name in full if full[name] != other[name]} == {part}
        assert other[part] in ("triplet", 0)


def test_measured_scores_have_intervals_and_the_papers_have_none(ran):
    for table in ran.result.tables:
        for row in table.rows:
            for score in (cell for cell in row.cells.values() if isinstance(cell, Score)):
                if row.origin == PAPER:
                    assert score.low is score.high is None
                else:
                    assert score.low <= score.value <= score.high


def test_ablation_scores_are_means_over_seeds_on_held_out_half(ran):
    learn_from, held_out = CORPUS.split(HELD_OUT_FRACTION, SPLIT_SEED)
    assert set(learn_from.works).isdisjoint(held_out.works)
    triples = HeldOutTriples(held_out, SCALE.triples)
    context, shares = ExperimentContext(ResultCache(ran.folder), SCALE, "cpu"), {}
    for variant in VARIANTS:
        models = [train_variant(context, CORPUS, variant, seed) for seed in (0, 1)]
        right = [triples.find_correct(Encoder.load(model).embed(triples.formulas.forest)) for model in models]
        shares[variant] = np.mean(right)
        assert np.array_equal(rank_triples(context, models[0], triples), right[0])
    found = cells(ran.result, "ablation")
    for variant, (title, _) in VARIANTS.items():
        assert found[title]["ranking"].value == pytest.approx(shares[variant])
    for title, scores in cells(ran.result, "ablation-differences").items():
        wanted = 100 * (found[title]["ranking"].value - shares["full"])
        assert scores["ranking"].value == pytest.approx(wanted)
        if title != "eqkin's recipe":  # which has one seed
            assert np.mean([float(part) for part in scores["seeds"].split(", ")]) == pytest.approx(wanted, abs=0.06)
        labelled_change = found[title]["accuracy"].value - found["Full model"]["accuracy"].value
        assert scores["accuracy"].value == pytest.approx(100 * labelled_change)


def test_eqkin_recipe_is_compared_with_the_papers_full_recipe(ran):
    context = ExperimentContext(ResultCache(ran.folder), SCALE, "cpu")
    recipe = make_recipe(EQKIN, 0, context)
    assert (recipe.loss, recipe.held_out, recipe.triplets, recipe.architecture.width) == (
        "kin",
        HELD_OUT_FRACTION,
        256,
        8,
    )
    model = Model.load(train_variant(context, CORPUS, EQKIN, 0))
    assert model.recipe == recipe.to_dict()
    found = cells(ran.result, "ablation")
    gain = cells(ran.result, "ablation-differences")["eqkin's recipe"]
    assert set(gain) == {"ranking", "labelled_ranking", "accuracy"}
    for key, score in gain.items():
        wanted = found["eqkin's recipe"][key].value - found["Full model"][key].value
        assert score.value == pytest.approx(100 * wanted)


def test_text_around_equations_changes_only_eqkins_network(ran):
    two = ContextWords(["even", "odd"], np.arange(len(CORPUS) + 1), (np.arange(len(CORPUS)) % 2).astype(np.uint16))
    words = replace(CORPUS, words=two)
    words.validate()
    assert words.digest != CORPUS.digest
    assert learning(ran.again(corpus=words)[1]) == {"eqkin, seed 0"}
    assert drop_text(words).digest == CORPUS.digest


def test_second_ablation_trains_and_measures_nothing(ran):
    before = {path: path.stat().st_mtime_ns for path in ran.folder.rglob("*") if path.is_file()}
    result, messages = ran.again()
    assert result == ran.result
    assert learning(messages) == set()
    assert {path: path.stat().st_mtime_ns for path in ran.folder.rglob("*") if path.is_file()} == before


def test_ablation_with_other_triples_reuses_networks(ran):
    rows = len(list((ran.folder / "rows" / "ranking").iterdir()))
    _, messages = ran.again(replace(SCALE, triples=100))
    assert learning(messages) == set()
    assert len(list((ran.folder / "rows" / "ranking").iterdir())) == rows + 10


def test_ablation_of_another_corpus_trains_again(ran):
    other = corpus_of([[3, 2], [4], [2, 2], [6]] * 3)
    _, messages = ran.again(replace(SCALE, seeds=1), other)
    assert len(learning(messages)) == 5


def test_interrupted_training_of_a_variant_is_resumed_exactly(tmp_path):
    scale = replace(SCALE, triplets=6 * 128)
    whole = Model.load(
        train_variant(ExperimentContext(ResultCache(tmp_path / "whole"), scale, "cpu"), CORPUS, "full", 0)
    )
    messages: list[str] = []
    context = ExperimentContext(ResultCache(tmp_path / "parts"), scale, "cpu", messages.append)
    recipe = make_recipe("full", 0, context)
    key = compute_digest({"recipe": recipe.to_dict(), "corpus": CORPUS.digest})
    part, asked = context.cache.folder / "fitted" / f"paper-full-{key}.part", iter(range(10))
    assert not TrainingRun(CORPUS, recipe, part, "cpu", should_stop=lambda: next(asked) == 3).train().finished
    assert list(part.glob("checkpoint*"))
    folder = train_variant(context, CORPUS, "full", 0)
    assert messages[0].startswith("paper full, seed 0: 67%")
    assert Model.load(folder).digest == whole.digest
    assert not part.exists() and not list(folder.parent.glob("checkpoint*"))


def test_networks_can_be_trained_before_the_ablation(tmp_path):
    scale = replace(SCALE, seeds=1)
    triples = train_networks(ExperimentContext(ResultCache(tmp_path), scale, "cpu"), CORPUS)
    assert len(triples) == 200
    messages: list[str] = []
    result, plots = run_ablation(ExperimentContext(ResultCache(tmp_path), scale, "cpu", messages.append), CORPUS)
    assert learning(messages) == set()
    assert [column.key for column in result.tables[0].columns] == ["ranking"]
    assert [table.name for table in result.tables] == ["ablation", "ablation-differences"]
    assert "seeds" not in result.tables[0].rows[0].note
    assert [list(plot.series) for plot in plots] == [["here", "the paper"]]


def test_difference_is_negative_if_a_part_helps():
    triples = HeldOutTriples(CORPUS, 200)
    full = AblationScores("Full", [np.arange(200) % 4 > 0, np.arange(200) % 2 > 0], [])  # 75 % and 50 %
    less = AblationScores("Less", [np.arange(200) % 4 > 1, np.arange(200) % 2 > 0], [])  # 50 % and 50 %
    drawn = draw_bootstrap_weights(triples.work_count, 100, 0)
    (found,) = _compute_difference(triples, less, full, drawn).values()
    assert found.value == pytest.approx(-12.5)
    assert -25 < found.low < -12.5 < found.high < 0
    assert _compute_difference(triples, full, full, drawn) == {"ranking": Score(0, 0, 0)}


def test_difference_on_a_single_work_has_no_interval():
    triples = HeldOutTriples(replace(CORPUS, works=["a book"] * len(CORPUS.papers)), 200)
    full, less = (
        AblationScores(title, [np.arange(200) % 4 > least], []) for title, least in (("Full", 0), ("Less", 1))
    )
    differences = {"no-masking": _compute_difference(triples, less, full, draw_bootstrap_weights(1, 100, 0))}
    assert differences == {"no-masking": {"ranking": Score(-25)}}


class Nobody(System):
    name, title = "nobody", "Nobody"

    def rank(self, queries, formulas):
        return np.zeros((len(queries), len(formulas)), np.float32)


def test_ablation_rejects_baseline_without_vectors_before_training(tmp_path):
    with pytest.raises(BadInput, match="nobody gives no vectors"):
        run_ablation(ExperimentContext(ResultCache(tmp_path / "store"), SCALE, "cpu"), CORPUS, [BagOfWords(), Nobody()])
    assert not (tmp_path / "store").exists()
