"""The objective of the recipe "eqkin": losses, masking, compilation and degenerate batches."""

# ruff: noqa: E402
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import Vocabulary
from eqkin.errors import BadInput
from eqkin.learning import sampling
from eqkin.learning.config import Recipe, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import (
    EqkinObjective,
    TrainingData,
    build_training_data,
    compute_context_loss,
    compute_structure_loss,
)
from eqkin.learning.sampling import make_step_column

CPU = torch.device("cpu")
SHAPE = {"width": "12", "layers": "2", "dimensions": "6", "batch": "8"}
RECIPE = get_recipe("eqkin").override(SHAPE | {"renamed": "0.5"})
WEIGHTLESS = {"structure_weight": "0", "context_weight": "0", "words_weight": "0"}
WEIGHTS = {"structure_weight": "1", "context_weight": "0.3", "words_weight": "0.7"}
AS_IT_IS = {"renamed": "0", "masking": "0"}


@pytest.fixture(scope="module")
def training_data(atlas_corpus: Corpus) -> TrainingData:
    made = build_training_data(atlas_corpus, Vocabulary.learn([atlas_corpus.forest]), RECIPE, CPU)
    assert isinstance(made, TrainingData)
    return made


def objective(
    training_data: TrainingData, recipe: Recipe = RECIPE, dtype: torch.dtype = torch.float32
) -> EqkinObjective:
    return EqkinObjective(recipe, training_data, dtype)


def drawn(training_data: TrainingData, batch: int = 8) -> torch.Tensor:
    return training_data.sampler.draw(make_step_column(3, 1, CPU), batch).concatenate()[0]


def losses(made, training_data: TrainingData, trees: torch.Tensor, padding: int = 0, step: int = 0) -> torch.Tensor:
    nodes = torch.arange(int(training_data.forest.get_sizes(trees).sum()) + padding)
    torch._dynamo.mark_dynamic(nodes, 0)
    return made(trees, nodes, torch.tensor(step))


def seen(made: EqkinObjective, training_data: TrainingData, trees: torch.Tensor, step: int) -> torch.Tensor:
    """Return the features that the network receives in a step."""
    taken, real = [], made.network.encode_nodes

    def note(features, batch):
        taken.append(features)
        return real(features, batch)

    made.network.encode_nodes = note
    losses(made, training_data, trees, padding=9, step=step)
    made.network.encode_nodes = real
    return taken[0]


def test_objective_returns_the_losses_of_its_batch(training_data: TrainingData) -> None:
    recipe = RECIPE.override(AS_IT_IS | WEIGHTS | {"temperature": "0.2"})
    made, trees = objective(training_data, recipe).eval(), drawn(training_data)
    assert made.parts == ("structure", "context", "words") and made.words is not None
    batch = training_data.forest.collate(trees, torch.arange(int(training_data.forest.get_sizes(trees).sum())))
    vectors = made.network(training_data.forest.build_features(batch, torch.float32), batch.trees)
    paper = training_data.teachers.paper[trees]
    same = paper[:, None] == paper
    expected = [
        compute_structure_loss(vectors, training_data.teachers.terms.to_dense(trees, torch.float32), same, 0.2),
        0.3 * compute_context_loss(vectors[:8], vectors[8:16], paper[:8], paper[8:16]),
        0.7 * made.words(vectors, trees, same, torch.tensor(4)),
    ]
    assert losses(made, training_data, trees, step=4).tolist() == pytest.approx(
        [part.item() for part in expected], rel=1e-4
    )


def test_padding_changes_neither_losses_nor_gradients(training_data: TrainingData) -> None:
    results = []
    for padding in (0, 100):
        made = objective(training_data).double()
        made.dtype = torch.float64
        parts = losses(made, training_data, drawn(training_data), padding, step=5)
        parts.sum().backward()
        results.append([parts, *(p.grad for p in made.parameters()), *made.network.state_dict().values()])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:<class:DeprecationWarning")  # of torch, to itself
def test_objective_compiles_to_one_graph_for_all_sizes(training_data: TrainingData) -> None:
    made = objective(training_data)
    graphs = []

    def note(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(made, backend=note, fullgraph=True)
    for padding in (0, 37, 64):
        trees = drawn(training_data)
        plain = losses(made.eval(), training_data, trees, padding)
        assert torch.allclose(losses(compiled, training_data, trees, padding), plain, rtol=1e-4)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_each_loss_trains_the_network_and_can_be_switched_off(training_data: TrainingData) -> None:
    for i, name in enumerate(WEIGHTLESS):
        made = objective(training_data, RECIPE.override(WEIGHTLESS | {name: "1"}))
        if name != "words_weight":
            made.words = None
        parts = losses(made, training_data, drawn(training_data))
        assert [part > 0 for part in parts.tolist()] == [k == i for k in range(3)]
        parts.sum().backward()
        assert all(p.grad is not None and p.grad.any() for p in made.network.parameters())


def test_word_loss_is_omitted_without_words_or_weight(atlas_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PROJECTION_DIMENSIONS", 64)  # to be quick
    few = atlas_corpus.select(range(3))
    vocabulary = Vocabulary.learn([few.forest])
    for corpus, recipe in ((replace(few, words=None), RECIPE), (few, RECIPE.override({"words_weight": "0"}))):
        training_data = build_training_data(corpus, vocabulary, recipe, CPU)
        assert training_data.teachers is not None and training_data.teachers.words is None
        made = objective(training_data, recipe)
        assert {name.partition(".")[0] for name, _ in made.named_parameters()} == {"network"}
        assert losses(made, training_data, drawn(training_data))[2] == 0


def test_initial_weights_depend_only_on_the_seed(training_data: TrainingData) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = objective(training_data).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    other = objective(training_data, replace(RECIPE, seed=1)).state_dict()
    for name in ("network.first.weight", "words.vectors"):
        assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("kind", ["mix", "sum"])
@pytest.mark.parametrize("trees", [[3] * 12, [3, 3, 3], [0, 700, 1400]], ids=["all the same", "one", "three papers"])
def test_degenerate_batches_have_finite_losses_and_gradients(
    training_data: TrainingData, kind: str, trees: list[int]
) -> None:
    made = objective(training_data, RECIPE.override({"kind": kind}))
    parts = losses(made, training_data, torch.tensor(trees), padding=5)
    parts.sum().backward()
    assert parts.isfinite().all()
    assert all(p.grad.isfinite().all() for p in made.parameters() if p.grad is not None)
    assert all(buffer.isfinite().all() for buffer in made.buffers())


def test_training_data_of_one_paper_is_rejected(atlas_corpus: Corpus) -> None:
    one = atlas_corpus.select(np.array([0]))
    with pytest.raises(BadInput, match="only one paper"):
        build_training_data(one, Vocabulary.learn([one.forest]), RECIPE, CPU)
