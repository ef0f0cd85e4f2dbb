"""Random models, and the networks computed by their formulas."""

import numpy as np

from eqkin.encoder.model import NORM_EPSILON, Architecture, Model, Vocabulary, compute_sinusoids, compute_weight_shapes
from tests.formulas.strategies import compute_position

VOCABULARY = Vocabulary(
    ("mi", "mo", "mrow", "mfrac", "x", "a=b"), ("a=b", "a=1", "mathvariant=normal"), ("x", "α", "1", "2", "=", "e", "E")
)
SMALL = Architecture(width=24, layers=3, normalised=(0, 2), dimensions=8)
SMALL_MIX = Architecture(width=24, layers=2, dimensions=8, kind="mix")


def random_model(architecture=SMALL, seed=0, vocabulary=VOCABULARY):
    """Return a model with random weights, running statistics and norms."""
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in compute_weight_shapes(architecture).items():
        spread = 0.5 / np.sqrt(shape[-1]) if name.endswith("weight") and len(shape) == 2 else 0.2
        values = generator.normal(0, spread, shape)
        if name.endswith(".mix"):
            values = generator.normal(0, 0.7, shape)
        if name.endswith(("variance", "alpha", "soft_norm.mean", "soft_norm.deviation", "norm.weight")):
            values = generator.uniform(0.5, 2, shape)
        weights[name] = np.asarray(values, np.float32)
    return Model(architecture, vocabulary, weights, {"name": "random"}, {"seed": seed})


def _norm(weights, layer, x):
    prefix = f"layers.{layer}.norm."
    centred = (x - weights[prefix + "mean"]) / np.sqrt(weights[prefix + "variance"] + NORM_EPSILON)
    return centred * weights[prefix + "weight"] + weights[prefix + "bias"]


def slow_node_vectors(model, forest):
    """Compute the last layer's vectors of each tree by the formulas, with dense matrices and loops."""
    layers = _mix_layers if model.architecture.kind == "mix" else _sum_layers
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    features, position, parent = (
        model.vocabulary.extract_features(forest),
        compute_position(forest),
        forest.compute_parent(),
    )
    result = []
    for tree in range(len(forest)):
        start, end = int(forest.offsets[tree]), int(forest.offsets[tree + 1])
        f = features[start:end].astype(np.float64)
        table = compute_sinusoids(int(position[start:end].max()) + 1, model.architecture.width)
        places = weights["first.alpha"] * table[position[start:end]]
        above = [int(up) - start for up in parent[start:end]]
        result.append(
            layers(model.architecture, weights, f @ weights["first.weight"].T + places + weights["first.bias"], above)
        )
    return result


def _sum_layers(architecture, weights, x, above):
    summing = np.eye(len(x))
    for i, up in enumerate(above):
        summing[i, up] = summing[up, i] = 1
    x = np.maximum(summing @ x, 0)
    for layer in range(architecture.layers):
        if layer in architecture.normalised:
            x = _norm(weights, layer, x)
        x = np.maximum(summing @ (x @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"]), 0)
    return x


def _mix_layers(architecture, weights, x, above):
    parent, left = np.zeros((2, len(x), len(x)))
    for i, up in enumerate(above[1:], 1):
        parent[i, up] = 1
        left[i, i - 1] = i > 1 and above[i - 1] == up
    children = parent.T / np.maximum(parent.sum(axis=0), 1)[:, None]
    x = np.maximum(x, 0)
    for layer in range(architecture.layers):
        terms = zip(weights[f"layers.{layer}.mix"], (x, parent @ x, children @ x, left @ x, left.T @ x), strict=True)
        mixed = sum(row * term for row, term in terms)
        x = x + np.maximum(_norm(weights, layer, mixed @ weights[f"layers.{layer}.weight"].T), 0)
    return x


def slow_embeddings(model, forest):
    """Compute the embeddings of trees with `slow_node_vectors`."""
    weight, bias = model.weights["output.weight"].astype(np.float64), model.weights["output.bias"]
    if model.architecture.kind == "mix":
        moments = [(x.mean(axis=0), np.sqrt((x**2).mean(axis=0) + 1e-6)) for x in slow_node_vectors(model, forest)]
        rows = [weight @ np.concatenate(pair) + bias for pair in moments]
        return np.array([y / np.linalg.norm(y) for y in rows]).reshape(len(rows), model.architecture.dimensions)
    soft_norm = float(model.weights["soft_norm.mean"]) + float(model.weights["soft_norm.deviation"])
    rows = [(weight @ x.mean(axis=0) + bias) / soft_norm for x in slow_node_vectors(model, forest)]
    return np.array(rows).reshape(len(rows), model.architecture.dimensions)
