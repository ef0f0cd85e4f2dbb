"""The mix network against its formulas and the numpy encoder."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.architecture import FEATURES, NORM_EPSILON, Architecture, compute_sinusoids, compute_weight_shapes
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model
from eqkin.encoder.torch_network import MixNetwork, SumNetwork, build_network
from eqkin.errors import CorruptData
from eqkin.library.parsing import parse_item
from eqkin.sources.readers import open_source
from eqkin.trees import Vocabulary
from eqkin.trees.vocabulary import to_dense
from tests.encoder.batches import SOME_FORESTS, batch_trees, padded, random, slow_mix
from tests.encoder.models import SMALL, SMALL_MIX, VOCABULARY, random_model
from tests.trees.strategies import build

LEAF = ("mi", "", "x", [])
SHAPES = [SMALL_MIX, Architecture(7, 1, dimensions=3, kind="mix"), Architecture(9, 3, dimensions=4, kind="mix")]


def features_of(forest, vocabulary=VOCABULARY) -> torch.Tensor:
    return torch.from_numpy(to_dense(vocabulary.extract_features(forest))).double()


def random_network(architecture=SMALL_MIX, seed=0) -> MixNetwork:
    """Return a network with random weights in double precision."""
    return build_network(architecture, random_model(architecture, seed).weights).double()


def reference(weights, architecture, forest, *, learning):
    """Compute embeddings by the formulas of `architecture`, node by node."""
    start = forest.offsets.tolist()
    table = torch.from_numpy(compute_sinusoids(len(forest.tag), architecture.width)).double()
    places = table[torch.from_numpy(forest.compute_position())]
    x = features_of(forest) @ weights["first.weight"].T + weights["first.alpha"] * places + weights["first.bias"]
    x = x.clamp(min=0)
    for i in range(architecture.layers):
        moved = slow_mix(forest, x, weights[f"layers.{i}.mix"]) @ weights[f"layers.{i}.weight"].T
        norm = {name: weights[f"layers.{i}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
        mean = moved.mean(0) if learning else norm["mean"]
        variance = (moved - mean).square().mean(0) if learning else norm["variance"]
        normed = (moved - mean) / (variance + NORM_EPSILON).sqrt() * norm["weight"] + norm["bias"]
        x = x + normed.clamp(min=0)
    parts = [x[a:b] for a, b in zip(start, start[1:], strict=False)]
    pooled = [torch.cat([part.mean(0), (part.square().mean(0) + 1e-6).sqrt()]) for part in parts]
    y = torch.stack(pooled) @ weights["output.weight"].T + weights["output.bias"]
    return y / y.square().sum(1, keepdim=True).sqrt()


@given(SOME_FORESTS, st.sampled_from(SHAPES), st.integers(0, 5))
def test_mix_embeddings_match_the_formulas(forest, architecture, seed):
    network = random_network(architecture, seed)
    expected = reference(network.state_dict(), architecture, forest, learning=False)
    assert torch.allclose(network(features_of(forest), batch_trees(forest)), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=12)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.sampled_from(SHAPES), st.integers(0, 5))
def test_mix_training_matches_the_formulas_and_gradients(sizes, architecture, seed):
    forest = build([LEAF, *(("mrow", "", "", [LEAF] * n + [("mo", "a=b", "=12"[:n], [LEAF])]) for n in sizes)])
    network = random_network(architecture, seed).train()
    weights = dict(network.named_parameters())
    expected = reference(network.state_dict() | weights, architecture, forest, learning=True)
    back = random(*expected.shape)
    gradients = torch.autograd.grad(expected, list(weights.values()), back)
    embeddings = network(features_of(forest), batch_trees(forest))
    assert torch.allclose(embeddings, expected, rtol=1e-6, atol=1e-6)
    for name, ours, theirs in zip(
        weights, torch.autograd.grad(embeddings, list(weights.values()), back), gradients, strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), name


@settings(max_examples=12)
@given(SOME_FORESTS, st.integers(1, 40))
def test_padding_does_not_change_mix_training(forest, padding):
    results = []
    for rows in (0, padding):
        network = random_network().train()
        trees = padded(batch_trees(forest), rows)
        features = torch.cat([features_of(forest), 9 * random(rows, FEATURES)])
        embeddings = network(features, trees)
        embeddings.backward(random(*embeddings.shape))
        gradients = [parameter.grad for parameter in network.parameters()]
        results.append(
            [embeddings, *gradients, *network.buffers(), network.encode_nodes(features, trees)[: len(forest.tag)]]
        )
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6)


def test_mix_statistics_change_only_in_training():
    forest = build([("mrow", "", "", [LEAF] * n) for n in range(4)])
    network = random_network()
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network(features_of(forest), batch_trees(forest))
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())
    network.train()(features_of(forest), batch_trees(forest))
    moved = {name for name, buffer in network.named_buffers() if not torch.equal(before[name], buffer)}
    assert moved == {f"layers.{i}.norm.{name}" for i in range(2) for name in ("mean", "variance")}


def test_mix_computes_in_the_precision_of_its_features():
    forest = build([("mrow", "", "", [LEAF] * n) for n in range(9)])
    network = random_network().float().train()
    features, trees = features_of(forest), batch_trees(forest)
    nodes = network.encode_nodes(features.bfloat16(), trees)
    assert nodes.dtype == torch.bfloat16
    embeddings = network.pool(nodes, trees)
    assert embeddings.dtype == torch.float32
    expected = network(features.float(), trees)
    assert (embeddings - expected).norm() < 0.05 * expected.norm()
    embeddings.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())


@pytest.mark.filterwarnings("ignore:<class:DeprecationWarning")  # of torch, to itself
def test_mix_network_compiles_to_one_graph_for_all_sizes():
    network, graphs = random_network().float().train(), []

    def note(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(network, backend=note, fullgraph=True, dynamic=True)
    for n in (2, 5, 9):
        forest = build([("mrow", "", "", [LEAF] * n), LEAF])
        features, trees = features_of(forest).float(), batch_trees(forest)
        assert torch.allclose(compiled(features, trees), network(features, trees), atol=1e-6)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_build_network_follows_the_kind():
    assert isinstance(build_network(SMALL), SumNetwork)
    assert isinstance(build_network(SMALL_MIX), MixNetwork)
    weights = random_model(SMALL_MIX).weights
    network = build_network(SMALL_MIX, weights)
    assert not network.training
    assert all((tensor.numpy() == weights[name]).all() for name, tensor in network.state_dict().items())
    with pytest.raises(CorruptData, match="lack layers"):
        build_network(SMALL_MIX, random_model(SMALL).weights)


@pytest.mark.parametrize("architecture", SHAPES)
def test_mix_weights_have_the_names_and_shapes_of_the_architecture(architecture):
    shapes = {name: tuple(tensor.shape) for name, tensor in build_network(architecture).state_dict().items()}
    assert shapes == compute_weight_shapes(architecture)
    assert shapes["layers.0.mix"] == (5, architecture.width)
    assert shapes["output.weight"] == (architecture.dimensions, 2 * architecture.width)
    assert "layers.0.bias" not in shapes
    assert "soft_norm.mean" not in shapes


def test_new_mix_weights_have_random_signs():
    torch.manual_seed(0)
    network = build_network(Architecture(512, 1, dimensions=4, kind="mix"))
    mix = network.layers[0].mix.detach()
    assert mix.abs().mean(1).tolist() == pytest.approx([1.0, 0.5, 0.5, 0.5, 0.5], abs=0.03)
    assert mix.mean(1).tolist() == pytest.approx([0.0] * 5, abs=0.15)
    assert network.first.alpha.item() == pytest.approx(0.3)


@pytest.mark.parametrize("architecture", [SMALL_MIX, Architecture(512, 4, dimensions=64, kind="mix")], ids=str)
def test_numpy_and_torch_mix_vectors_agree(architecture):
    items = [item for _, item in zip(range(6), open_source("atlas:"), strict=False)]
    for forest in (parse_item(item, "").forest for item in items):
        vocabulary = Vocabulary.learn([forest])
        torch.manual_seed(0)
        network = build_network(architecture)
        features, trees = features_of(forest, vocabulary).float(), batch_trees(forest)
        with torch.no_grad():
            network(features, trees)  # in training, so that the averages are of an ordinary size
            theirs = network.eval()(features, trees).numpy()
        weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
        ours = Encoder(Model(architecture, vocabulary, weights)).embed(forest)
        assert len(ours) == len(forest) > 0
        assert np.abs(ours - theirs).max() <= 1e-5
