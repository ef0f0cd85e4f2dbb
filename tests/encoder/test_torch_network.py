"""The networks against their formulas, torch's batch norm and the numpy encoder."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import NORM_EPSILON, Architecture, Model, Vocabulary, compute_sinusoids
from eqkin.learning.batches import DeviceNetwork
from eqkin.learning.torch_network import NodeNorm, SoftNorm, TreeNetwork, build_network
from eqkin.library.parsing import parse_item
from eqkin.sources.readers import open_source
from tests.encoder.batches import SOME_FORESTS, batch_trees, random, slow_mix
from tests.encoder.models import SMALL, SMALL_MIX, VOCABULARY, random_model
from tests.formulas.strategies import build, compute_position

CPU = torch.device("cpu")
LEAF = ("mi", "", "x", [])
SUM_SHAPES = [SMALL, Architecture(7, 1, (), 3), Architecture(9, 2, (0, 1), 4)]
MIX_SHAPES = [SMALL_MIX, Architecture(7, 1, dimensions=3, kind="mix"), Architecture(9, 3, dimensions=4, kind="mix")]
SHAPES = SUM_SHAPES + MIX_SHAPES
BOTH_KINDS = pytest.mark.parametrize("architecture", [SMALL, SMALL_MIX], ids=["sum", "mix"])


def features_of(forest, vocabulary=VOCABULARY) -> torch.Tensor:
    return torch.from_numpy(vocabulary.extract_features(forest)).double()


def network_of(architecture=SMALL, seed=0) -> TreeNetwork:
    """Return a network with random weights in double precision."""
    return build_network(architecture, random_model(architecture, seed).weights).double()


def compute_sum(weights, architecture, forest, *, learning):
    """Compute embeddings by the formulas of `eqkin.encoder.model`, with an adjacency matrix."""
    n, start = len(forest.tag), forest.offsets.tolist()
    around = torch.eye(n, dtype=torch.float64)
    for child, parent in enumerate(forest.compute_parent().tolist()):
        around[child, parent] = around[parent, child] = 1.0
    places = torch.from_numpy(compute_sinusoids(n, architecture.width)).double()[
        torch.from_numpy(compute_position(forest))
    ]
    x = features_of(forest) @ weights["first.weight"].T + weights["first.alpha"] * places + weights["first.bias"]
    x = (around @ x).clamp(min=0)
    for i in range(architecture.layers):
        if i in architecture.normalised:
            norm = {name: weights[f"layers.{i}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
            mean = x.mean(0) if learning else norm["mean"]
            variance = (x - mean).square().mean(0) if learning else norm["variance"]
            x = (x - mean) / (variance + NORM_EPSILON).sqrt() * norm["weight"] + norm["bias"]
        x = (around @ (x @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"])).clamp(min=0)
    means = torch.stack([x[a:b].mean(0) for a, b in zip(start, start[1:], strict=False)])
    y = means @ weights["output.weight"].T + weights["output.bias"]
    norms = y.square().sum(1).sqrt()
    mean = norms.mean() if learning else weights["soft_norm.mean"]
    deviation = (norms - mean).square().mean().sqrt() if learning else weights["soft_norm.deviation"]
    return y / (mean + deviation)


def compute_mix(weights, architecture, forest, *, learning):
    """Compute embeddings by the formulas of `eqkin.encoder.model`, node by node."""
    start = forest.offsets.tolist()
    table = torch.from_numpy(compute_sinusoids(len(forest.tag), architecture.width)).double()
    places = table[torch.from_numpy(compute_position(forest))]
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


def reference(weights, architecture, forest, *, learning):
    compute = compute_mix if architecture.kind == "mix" else compute_sum
    return compute(weights, architecture, forest, learning=learning)


@given(SOME_FORESTS, st.sampled_from(SHAPES), st.integers(0, 5))
def test_embeddings_match_the_formulas(forest, architecture, seed):
    network = network_of(architecture, seed)
    expected = reference(network.state_dict(), architecture, forest, learning=False)
    embeddings = network(features_of(forest), batch_trees(forest))
    assert torch.allclose(embeddings, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.sampled_from(SHAPES), st.integers(0, 5))
def test_training_matches_the_formulas_and_gradients(sizes, architecture, seed):
    forest = build([LEAF, *(("mrow", "", "", [LEAF] * n + [("mo", "a=b", "=12"[:n], [LEAF])]) for n in sizes)])
    network = network_of(architecture, seed).train()
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


def test_node_norm_agrees_with_torch_batch_norm():
    x, back = random(50, 6).requires_grad_(), random(50, 6, seed=1)
    theirs = torch.nn.BatchNorm1d(6, eps=NORM_EPSILON, dtype=torch.float64)
    ours = NodeNorm(6).double()
    for norm in (theirs, ours):
        with torch.no_grad():
            norm.weight.copy_(random(1, 6, seed=2)[0])
            norm.bias.copy_(random(1, 6, seed=3)[0])
    results = []
    for norm in (theirs, ours):
        y = norm(x) if norm is theirs else _applied(norm, x)
        results.append((y, *torch.autograd.grad(y, [x, norm.weight, norm.bias], back)))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert torch.allclose(ours.mean, theirs.running_mean)
    assert torch.allclose(ours.variance, 0.9 + 0.1 * x.var(0, correction=0))  # torch averages n / (n - 1) of that
    theirs.eval(), ours.eval()
    theirs.running_var.copy_(ours.variance)
    assert torch.allclose(_applied(ours, x), theirs(x))


def _applied(norm, x):
    moments = (x.sum(0), x.square().sum(0)) if norm.training else None
    scale, shift = norm(moments, torch.tensor(len(x)))
    return x * scale + shift


def test_soft_norm_divides_by_mean_plus_deviation():
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0]])  # norms 5 and 1: mean 3, deviation 2
    norm = SoftNorm()
    assert torch.allclose(norm(x), x / 5.0)
    assert norm.mean.item() == pytest.approx(0.99 * 1 + 0.01 * 3)
    assert norm.deviation.item() == pytest.approx(0.99 * 0 + 0.01 * 2)
    norm(x)
    assert norm.mean.item() == pytest.approx(0.99 * 1.02 + 0.01 * 3)
    norm.eval()
    before = norm.mean.item(), norm.deviation.item()
    assert torch.allclose(norm(10 * x), 10 * x / sum(before))
    assert (norm.mean.item(), norm.deviation.item()) == before


@BOTH_KINDS
def test_statistics_change_only_in_training(architecture):
    forest = build([("mrow", "", "", [LEAF] * n) for n in range(4)])
    network = network_of(architecture)
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network(features_of(forest), batch_trees(forest))
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())
    network.train()(features_of(forest), batch_trees(forest))
    moved = {name for name, buffer in network.named_buffers() if not torch.equal(before[name], buffer)}
    assert moved == {name for name in before if name.endswith((".mean", ".variance", ".deviation"))}
    assert len(moved) == (6 if architecture is SMALL else 4)


def assert_same_vectors(model, forest) -> None:
    """Assert that the numpy encoder and the torch network agree on a forest."""
    theirs = Encoder(model, DeviceNetwork(model, CPU)).embed(forest)
    ours = Encoder(model).embed(forest)
    assert (np.abs(ours - theirs).max(axis=1) <= 3e-5 * np.maximum(np.linalg.norm(theirs, axis=1), 1)).all()


@settings(max_examples=20)
@given(SOME_FORESTS, st.sampled_from(SHAPES), st.integers(0, 5))
def test_numpy_and_torch_vectors_agree(forest, architecture, seed):
    assert_same_vectors(random_model(architecture, seed), forest)


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
