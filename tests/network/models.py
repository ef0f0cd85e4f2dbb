"""Random models, and the network computed the slow way."""

import numpy as np

from eqkin.forest import Vocabulary
from eqkin.network.architecture import NORM_EPSILON, Architecture, sinusoids
from eqkin.network.model_files import Model, weight_shapes

VOCABULARY = Vocabulary(
    ("mi", "mo", "mrow", "mfrac", "x", "a=b"), ("a=b", "a=1", "mathvariant=normal"), ("x", "α", "1", "2", "=", "e", "E")
)
SMALL = Architecture(width=24, layers=3, normalised=(0, 2), dimensions=8)


def random_model(architecture=SMALL, seed=0, vocabulary=VOCABULARY):
    """A model with weights, running statistics and norms of an ordinary size."""
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(architecture).items():
        spread = 0.5 / np.sqrt(shape[-1]) if name.endswith("weight") and len(shape) == 2 else 0.2
        values = generator.normal(0, spread, shape)
        if name.endswith(("variance", "alpha", "soft_norm.mean", "soft_norm.deviation", "norm.weight")):
            values = generator.uniform(0.5, 2, shape)
        weights[name] = np.asarray(values, np.float32)
    return Model(architecture, vocabulary, weights, {"name": "random"}, {"seed": seed})


def _norm(weights, layer, x):
    prefix = f"layers.{layer}.norm."
    centred = (x - weights[prefix + "mean"]) / np.sqrt(weights[prefix + "variance"] + NORM_EPSILON)
    return centred * weights[prefix + "weight"] + weights[prefix + "bias"]


def slow_node_vectors(model, forest):
    """The last layer's vectors of each tree's nodes: dense matrices and loops, as the formulas are written."""
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    features, position, parent = model.vocabulary.features(forest), forest.position(), forest.parent()
    result = []
    for tree in range(len(forest)):
        start, end = int(forest.offsets[tree]), int(forest.offsets[tree + 1])
        summing = np.eye(end - start)
        f = np.zeros((end - start, 256))
        for i in range(end - start):
            up = int(parent[start + i]) - start
            if up != i:
                summing[i, up] = summing[up, i] = 1
            f[i, features.tag[start + i]] += 1
            for slot in features.attribute[slice(*features.attribute_offsets[start + i : start + i + 2])].tolist():
                f[i, 32 + slot] += 1
            for slot in features.character[slice(*features.character_offsets[start + i : start + i + 2])].tolist():
                f[i, 64 + slot] += 1
        table = sinusoids(int(position[start:end].max()) + 1, model.architecture.width)
        places = weights["first.alpha"] * table[position[start:end]]
        x = np.maximum(summing @ (f @ weights["first.weight"].T + places + weights["first.bias"]), 0)
        for layer in range(model.architecture.layers):
            if layer in model.architecture.normalised:
                x = _norm(weights, layer, x)
            x = np.maximum(summing @ (x @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"]), 0)
        result.append(x)
    return result


def slow_embeddings(model, forest):
    """The embeddings of a forest's trees, from `slow_node_vectors`."""
    weight, bias = model.weights["output.weight"].astype(np.float64), model.weights["output.bias"]
    soft_norm = float(model.weights["soft_norm.mean"]) + float(model.weights["soft_norm.deviation"])
    rows = [(weight @ x.mean(axis=0) + bias) / soft_norm for x in slow_node_vectors(model, forest)]
    return np.array(rows).reshape(len(rows), model.architecture.dimensions)
