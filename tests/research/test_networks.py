"""Networks of the experiments: settings, the choices of the formulas, one measurement each, nothing trained twice."""

# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.evaluation.context import FULL_SCALE, SMALL_SCALE, ExperimentContext, ResultCache

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import NamedFormulas
from eqkin.evaluation.labelled import LabelledSet
from eqkin.formulas import Vocabulary
from eqkin.learning.objective import build_objective, build_training_data
from research.equalities import FINETUNINGS, list_finetunings, measure_finetuning, print_as_authors
from research.networks import NETWORKS, ExperimentData, NetworkRunner, VariantObjective, measure_labels
from research.paper import PaperTables
from tests.evaluation.formulas import formulas
from tests.evaluation.pairs import corpus_of_equalities
from tests.learning.corpora import corpus_of

SCALE = replace(SMALL_SCALE, triplets=200, width=8, triples=200, resamples=20)
LATEX = ["x^2", "y^3", r"\frac{a}{b}", r"\frac{c}{d}", r"\sum_i x_i", r"\sum_j a_j"]
CORPUS = corpus_of_equalities(24)


def make_data(context: ExperimentContext) -> ExperimentData:
    names = [str(number) for number in range(len(LATEX))]
    labelled = LabelledSet("atlas", NamedFormulas(names, formulas(*LATEX)), [latex[:2] for latex in LATEX])
    fields = {paper: ("ml", "physics")[number % 2] for number, paper in enumerate(CORPUS.papers)}
    return ExperimentData.build(CORPUS, fields, [labelled], context)


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> NetworkRunner:
    context = ExperimentContext(ResultCache(tmp_path_factory.mktemp("networks")), SCALE, "cpu")
    runner = NetworkRunner(context, make_data(context))
    for name in ("full", "no-augmentation", "ml", "transformer-10"):
        runner.measure(name)
    for name in ("transformer-10-head", "base-mean", "base-wide", "graph-head", "bag-of-words"):
        measure_finetuning(runner, name)
    return runner


def compute_losses(**changes: object) -> list[float]:
    corpus = corpus_of([[3, 2], [4], [2, 2], [5]])
    context = ExperimentContext(ResultCache(None), SCALE)  # type: ignore[arg-type]
    settings = replace(NETWORKS["base"], **changes)  # type: ignore[arg-type]
    recipe = settings.make_recipe(context)
    data = build_training_data(corpus, Vocabulary.learn([corpus.forest]), recipe, torch.device("cpu"))
    made = VariantObjective(recipe, data, torch.float32, settings)
    trees = torch.arange(3 * 4) % len(corpus)
    nodes = torch.arange(int(data.forest.get_sizes(trees).sum()))
    losses = made(trees, nodes, torch.zeros((), dtype=torch.int64))
    if not changes:  # the default is the objective of eqkin
        wanted = build_objective(recipe, data, torch.float32)(trees, nodes, torch.zeros((), dtype=torch.int64))
        assert torch.allclose(losses, wanted)
    return losses.tolist()


def test_default_objective_is_that_of_the_recipe():
    assert len(compute_losses()) == 2


def test_complete_trees_change_only_the_similarity():
    masked, complete = compute_losses(), compute_losses(masked=False)
    assert masked[0] != complete[0] and masked[1] == pytest.approx(complete[1])
    assert compute_losses(masked=False, changes={"masking": "0"})[0] == compute_losses(changes={"masking": "0"})[0]


def test_one_negative_per_anchor_changes_only_the_similarity():
    every, own = compute_losses(), compute_losses(all_pairs=False)
    assert every[0] != own[0] and every[1] == own[1] and 0 <= own[0] <= 1


def test_networks_differ_only_in_what_they_vary():
    full, other = NETWORKS["full"], NETWORKS["no-masking"]
    assert replace(other, title=full.title, changes={}) == full
    assert (full.triplets, full.fixed, full.negatives) == (10_000_000, 1_000_000, "field")
    graph, transformer = NETWORKS["graph"], NETWORKS["transformer"]
    assert replace(transformer, kind="graph", title=graph.title) == graph


def test_small_run_scales_all_presentations_down():
    context = ExperimentContext(ResultCache(None), SCALE)  # type: ignore[arg-type]
    ratio = FULL_SCALE.triplets / SCALE.triplets
    assert NETWORKS["full"].make_recipe(context).triplets == round(10_000_000 / ratio)
    assert NETWORKS["full"].make_recipe(ExperimentContext(ResultCache(None))).batch == 128  # type: ignore[arg-type]


def test_measured_networks_are_not_trained_again(runner):
    messages: list[str] = []
    again = NetworkRunner(replace(runner.context, log=messages.append), runner.data)
    for name in ("full", "transformer-10"):
        assert again.measure(name) == runner.measure(name)
    assert measure_finetuning(again, "transformer-10-head") == measure_finetuning(runner, "transformer-10-head")
    assert not messages


def test_graph_networks_are_kept_as_models(runner):
    (folder,) = (runner.context.cache.folder / "fitted").glob("full-*")
    assert Model.load(folder / "model").training["learned_from"]["works"] == 12


def test_subset_is_trained_on_its_field_only(runner, tmp_path):
    papers = runner.data.select(NETWORKS["ml"]).papers
    assert papers and all(runner.data.fields[paper] == "ml" for paper in papers)
    elsewhere = replace(runner.context, cache=ResultCache(tmp_path))
    with pytest.raises(BadInput, match="no paper is of the field"):
        NetworkRunner(elsewhere, replace(runner.data, fields={})).measure("ml")


def test_tables_leave_out_what_is_not_measured(runner):
    tables = PaperTables(NetworkRunner(runner.context, runner.data, training=False))
    ablation = tables.make_ablation().tables
    rows = {row.title: row for row in ablation[0].rows if row.origin == "measured"}
    assert list(rows) == ["Full model", "No augmentation"]
    for cell in rows["Full model"].cells.values():
        assert cell.low <= cell.value <= cell.high
    equalities = {row.title: row.cells for row in tables.make_equalities().tables[0].rows if row.origin == "measured"}
    assert {"Bag of words", "Graph network, 64 numbers", "As trained by eqkin, mean of nodes"} <= {*equalities}
    assert all(0 <= cells["r1"].value <= cells["r10"].value <= 1 for cells in equalities.values())
    statistics = tables.make_statistics()
    assert [table.name for table in statistics.tables] == ["statistics", "theorem"]
    assert tables.make_sizes().tables[0].rows and tables.make_formulas().tables


def test_every_finetuning_belongs_to_a_network():
    names = [name for network in (*NETWORKS, "bag-of-words") for name, _ in list_finetunings(network)]
    assert {*names} == {*FINETUNINGS}


def test_authors_test_lets_a_query_find_its_copy():
    rng, count = np.random.default_rng(0), 20_000
    recalls, ranks = {1: 0.5, 10: 0.7}, rng.random(count)
    drawn = rng.integers(count, size=count)
    copies = np.bincount(drawn, minlength=count)[drawn]
    place = (rng.random(count) * copies).astype(int)  # of the query among its copies; the first hit is dropped
    printed = print_as_authors(recalls)
    found = np.where(copies > 1, place == 1, ranks < 0.5)
    assert np.mean(found) == pytest.approx(printed[1], abs=0.02)
    assert np.mean((place > 0) | (ranks < 0.7)) == pytest.approx(printed[10], abs=0.02)


def test_authors_protocol_uses_lengths_of_vectors():
    vectors = np.array([[1, 0], [0.9, 0.1], [5, 0.1], [0, 1], [0.1, 0.9]], np.float32)
    found = measure_labels(vectors, ["a", "a", "b", "c", "c"], 10)
    assert found["accuracy"][0] < found["accuracy_authors"][0] == 1
