"""The objective of the recipe "eqkin": losses, masking, compilation and degenerate batches."""

# ruff: noqa: E402
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.errors import BadInput
from eqkin.formulas import Vocabulary
from eqkin.learning import sampling
from eqkin.learning.config import Recipe, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import compute_context_loss, compute_structure_loss
from eqkin.learning.objective import EqkinObjective, TrainingData, build_training_data
from eqkin.learning.randomness import make_step_column

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


def test_structural_neighbours_share_more_terms_than_partners(training_data: TrainingData) -> None:
    anchor, partner, near = training_data.teachers.terms.to_dense(drawn(training_data, 200), torch.float32).chunk(3)
    assert (anchor * near).sum(1).mean() > (anchor * partner).sum(1).mean() + 0.05


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


@pytest.mark.parametrize("settings", [{}, {"renamed": "0"}, {"masking": "0"}], ids=["both", "hidden", "renamed"])
def test_losses_depend_on_the_step(training_data: TrainingData, settings: dict[str, str]) -> None:
    made, trees = objective(training_data, RECIPE.override(settings)).eval(), drawn(training_data)
    first, again, other = (losses(made, training_data, trees, step=step).tolist() for step in (0, 0, 1))
    assert first == again
    assert all(one != another for one, another in zip(first, other, strict=True))


def test_without_augmentation_only_the_word_loss_depends_on_the_step(training_data: TrainingData) -> None:
    made, trees = objective(training_data, RECIPE.override(AS_IT_IS)).eval(), drawn(training_data)
    first, other = (losses(made, training_data, trees, step=step).tolist() for step in (0, 9))
    assert first[:2] == other[:2] and first[2] != other[2]


def test_masking_hides_a_fraction_of_the_nodes_in_each_step(training_data: TrainingData) -> None:
    trees = drawn(training_data, 64)
    count = int(training_data.forest.get_sizes(trees).sum())
    plain = seen(objective(training_data, RECIPE.override(AS_IT_IS)), training_data, trees, step=0)[:count]
    assert plain.any(1).all()
    masked = objective(training_data, RECIPE.override({"renamed": "0", "masking": "0.3"}))
    features = [seen(masked, training_data, trees, step)[:count] for step in (0, 0, 1)]
    hidden = [~made.any(1) for made in features]
    for which, made in zip(hidden, features, strict=True):
        assert torch.equal(made[~which], plain[~which])  # the others are as they were
        assert which.float().mean() == pytest.approx(0.3, abs=0.04)
    assert torch.equal(hidden[0], hidden[1])
    assert (hidden[0] & hidden[2]).float().mean() == pytest.approx(0.09, abs=0.03)  # by chance


def test_eqkin_objective_has_no_masking_heads(training_data: TrainingData) -> None:
    made = objective(training_data, RECIPE.override({"masking": "0.3"}))
    assert {name.partition(".")[0] for name, _ in made.named_parameters()} == {"network", "words"}
    plain = objective(training_data, RECIPE.override({"masking": "0"}))
    assert [(name, p.shape) for name, p in made.named_parameters()] == [
        (name, p.shape) for name, p in plain.named_parameters()
    ]


def test_initial_weights_depend_only_on_the_seed(training_data: TrainingData) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = objective(training_data).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    other = objective(training_data, replace(RECIPE, seed=1)).state_dict()
    for name in ("network.first.weight", "words.vectors"):
        assert not torch.equal(first[name], other[name])


def test_masking_and_word_dropout_depend_on_the_seed(training_data: TrainingData) -> None:
    trees = drawn(training_data)
    made, other = (
        objective(training_data, replace(RECIPE.override({"renamed": "0"}), seed=seed)).eval() for seed in (0, 1)
    )
    hidden, others = (~seen(one, training_data, trees, step=0).any(1) for one in (made, other))
    assert not torch.equal(hidden, others)
    plain, other = (objective(training_data, replace(RECIPE.override(AS_IT_IS), seed=seed)).eval() for seed in (0, 1))
    other.load_state_dict(plain.state_dict())
    one, another = (losses(same, training_data, trees).tolist() for same in (plain, other))
    assert one[:2] == another[:2] and one[2] != another[2]


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


def test_half_precision_gives_nearly_the_same_losses(training_data: TrainingData) -> None:
    trees = drawn(training_data)
    exact = losses(objective(training_data), training_data, trees)
    half = losses(objective(training_data, dtype=torch.bfloat16), training_data, trees)
    assert half.dtype == torch.float32
    assert half.tolist() == pytest.approx(exact.tolist(), rel=0.05)


def test_training_data_of_one_paper_is_rejected(atlas_corpus: Corpus) -> None:
    one = atlas_corpus.select(np.array([0]))
    with pytest.raises(BadInput, match="only one paper"):
        build_training_data(one, Vocabulary.learn([one.forest]), RECIPE, CPU)
