"""The paper's objective: losses, augmentation and degenerate batches."""

# ruff: noqa: E402
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import Architecture, Vocabulary
from eqkin.formulas import Forest
from eqkin.learning.batches import Augmentation, DeviceForest, Masking
from eqkin.learning.config import Recipe
from eqkin.learning.losses import PaperObjective, TrainingData, compute_histogram_loss, compute_triplet_loss
from eqkin.learning.sampling import TripletSampler
from tests.formulas.strategies import build
from tests.learning.corpora import FORESTS, corpus_of, some_trees

CPU = torch.device("cpu")
RECIPE = Recipe(architecture=Architecture(width=12, layers=3, normalised=(0, 2), dimensions=5))
FOREST = some_trees(20)
SAMPLER = TripletSampler(corpus_of([[2]]), seed=0, device=CPU)
TREES = torch.tensor([3, 4, 9, 14, 5, 5, 19, 0, 7, 2, 2, 3])


def objective(recipe: Recipe = RECIPE, forest: Forest = FOREST, dtype: torch.dtype = torch.float32) -> PaperObjective:
    return PaperObjective(recipe, TrainingData(DeviceForest(forest, Vocabulary.learn([forest]), CPU), SAMPLER), dtype)


def losses(made: PaperObjective, trees: torch.Tensor = TREES, padding: int = 0, step: int = 0) -> torch.Tensor:
    nodes = int(made.data.forest.get_sizes(trees).sum()) + padding
    return made(trees, torch.arange(nodes), torch.tensor(step))


def gradients(made: PaperObjective) -> list[torch.Tensor]:
    return [parameter.grad for parameter in made.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(("name", "loss"), [("histogram", compute_histogram_loss), ("triplet", compute_triplet_loss)])
def test_objective_returns_the_losses_of_its_batch(name, loss):
    recipe = replace(RECIPE, loss=name, seed=4, masking=0.5)
    made, again = objective(recipe).eval(), objective(recipe).eval()
    step = torch.tensor(7)
    forest, network = again.data.forest, again.network
    nodes = torch.arange(int(forest.get_sizes(TREES).sum()))
    batch = forest.collate(TREES, nodes)
    renaming = Augmentation(recipe.transpositions, seed=4, device=CPU).draw(step, len(TREES))
    mask = Masking(recipe.masking, seed=4).draw(step, nodes, batch.trees.node_count)
    answers = forest.build_masking_targets(batch, mask.nodes, renaming)
    assert not torch.equal(answers, forest.build_masking_targets(batch, mask.nodes))
    vectors = network.encode_nodes(
        forest.build_features(batch, torch.float32, renaming=renaming, mask=mask), batch.trees
    )
    embeddings = network.pool(vectors, batch.trees)
    similarity = loss(embeddings[:4], embeddings[4:8], embeddings[8:])
    masking = again.heads(vectors, mask, answers)
    assert made.parts == ("similarity", "masking")
    assert losses(made, step=7).tolist() == [similarity.item(), masking.item()]


@settings(max_examples=25)
@given(FORESTS, st.data(), st.integers(1, 200), st.integers(0, 100))
def test_padding_changes_neither_losses_nor_gradients(forest, data, padding, step):
    trees = torch.tensor(data.draw(st.lists(st.integers(0, len(forest) - 1), min_size=6, max_size=6)))
    results = []
    for rows in (0, padding):
        made = objective(forest=forest).double()
        made.dtype = torch.float64
        parts = losses(made, trees, rows, step)
        parts.sum().backward()
        results.append([parts, *gradients(made), *made.buffers()])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7)


def test_initial_weights_depend_only_on_the_seed():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = objective().state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = objective().state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = objective(replace(RECIPE, seed=1)).state_dict()
    assert not torch.equal(first["network.first.weight"], other["network.first.weight"])


def test_masking_loss_is_zero_without_masking():
    made = objective(replace(RECIPE, masking=0.0))
    parts = losses(made)
    parts.sum().backward()
    assert parts[1] == 0
    assert parts[0] > 0
    assert all(parameter.grad is None for parameter in made.heads.parameters())
    assert all(parameter.grad is not None for parameter in made.network.parameters())


@pytest.mark.parametrize("loss", ["histogram", "triplet"])
@pytest.mark.parametrize("masking", [0.0, 0.15, 0.95])
@pytest.mark.parametrize(
    ("forest", "trees"),
    [
        (FOREST, [3] * 12),
        (FOREST, [3, 4, 5]),
        (FOREST, [4, 4, 4]),
        (build([("mi", "", "x", [])]), [0] * 9),
        (build([("mrow", "", "", [("mi", "", "x", [])] * 2_000), ("mi", "", "x", [])]), [0, 1, 1]),
    ],
    ids=["all the same", "one triplet", "one tree of one node", "one node in the world", "a giant"],
)
def test_degenerate_batches_have_finite_losses_and_gradients(loss, masking, forest, trees):
    for transpositions in (0.0, 32.0):
        made = objective(replace(RECIPE, loss=loss, masking=masking, transpositions=transpositions), forest)
        for step in range(3):
            made.zero_grad()
            parts = losses(made, torch.tensor(trees), padding=5, step=step)
            parts.sum().backward()
            assert parts.isfinite().all()
            assert all(gradient.isfinite().all() for gradient in gradients(made))
        assert all(buffer.isfinite().all() for buffer in made.buffers())
