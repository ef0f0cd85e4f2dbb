"""The networks on a CPU: the functions defined in `eqkin.encoder.architecture`, rearranged for speed.

Norms are folded into the weights. The first layer adds a vector per string (tag, attributes, text) and position. Trees
pass through the layers in chunks of a few hundred nodes, which stay in the processor's cache: matrix products by numpy,
everything between them by `eqkin.encoder.cpu_kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eqkin.encoder import cpu_kernels
from eqkin.encoder.architecture import MIX, NORM_EPSILON, SQUARE_EPSILON, compute_sinusoids
from eqkin.encoder.model import Model
from eqkin.formulas import Forest
from eqkin.formulas.forest import iter_blocks

_MIN_LENGTH = np.float32(1e-12)
# The coefficients of a node's neighbours are divided by its own one.
_MIN_COEFFICIENT = 1e-9
_NEIGHBOURS = 4
# Vectors of so many positions among siblings are computed at least.
_MIN_POSITIONS = 64

Floats = npt.NDArray[np.float32]


class _Layer(NamedTuple):
    coefficients: Floats  # (4, width) of the neighbours
    weight: Floats | None  # (width, width); None: there is no product
    bias: Floats  # (width,)


class NumpyNetwork:
    """Weights prepared for embedding trees."""

    # Nodes whose strings and outputs are computed together.
    block_nodes = 65_536
    # Nodes that pass through the layers together: few enough to stay in the processor's cache.
    chunk_nodes = 512

    def __init__(self, model: Model) -> None:
        self._vocabulary, self.width = model.vocabulary, model.architecture.width
        self.is_mix = model.architecture.kind == MIX
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self.first, self.first_bias = _to_float32(weights["first.weight"].T), weights["first.bias"]
        self.alpha = weights["first.alpha"]
        self._positions = np.empty((0, self.width), np.float32)
        soft_norm = 1.0 if self.is_mix else weights["soft_norm.mean"] + weights["soft_norm.deviation"]
        self.output = _to_float32(weights["output.weight"].T / soft_norm)
        self.output_bias = _to_float32(weights["output.bias"] / soft_norm)
        # The network "sum" adds up parents and children.
        summing = np.zeros((_NEIGHBOURS, self.width), np.float32)
        summing[[cpu_kernels.PARENT, cpu_kernels.CHILDREN]] = 1
        self.layers = [] if self.is_mix else [_Layer(summing, None, np.zeros(self.width, np.float32))]
        for layer in range(model.architecture.layers):
            weight, coefficients = weights[f"layers.{layer}.weight"], summing
            # The node's own coefficients and the norms are folded into the weights and the other coefficients.
            if self.is_mix:
                own, *others = weights[f"layers.{layer}.mix"]
                own = np.where(np.abs(own) < _MIN_COEFFICIENT, _MIN_COEFFICIENT, own)
                scale, bias = _fold_norm(weights, layer)
                coefficients, weight = _to_float32(np.array(others) / own), weight * own * scale[:, None]
            else:
                bias = weights[f"layers.{layer}.bias"]
                if layer in model.architecture.normalised:
                    scale, shift = _fold_norm(weights, layer)
                    weight, bias = weight * scale, bias + weight @ shift
            self.layers.append(_Layer(coefficients, _to_float32(weight.T), _to_float32(bias)))

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions); those of "mix" have length 1."""
        width, is_mix, positions = self.width, self.is_mix, self._get_positions(forest)
        slots, ends = self._vocabulary.assign_slots(forest)
        strings = np.empty((len(ends), width), np.float32)
        cpu_kernels.embed_strings(self.first, slots, ends, strings)
        tag, attribute, text, n_children = (
            column.astype(np.int64) for column in (forest.tag, forest.attribute, forest.text, forest.n_children)
        )
        attribute += len(forest.tags)
        text += len(forest.tags) + len(forest.attributes)
        lowest = np.float32(0 if is_mix else -np.inf)
        pooled = np.empty((len(forest), 2 * width), np.float32)
        spans = list(iter_blocks(forest.offsets, self.chunk_nodes))
        longest = max((span.stop - span.start for _, span in spans), default=0)
        buffers = np.empty((3, longest + 1, width), np.float32)
        for trees, span in spans:
            offsets = forest.offsets[trees.start : trees.stop + 1] - span.start
            count, shape = span.stop - span.start, (n_children[span], offsets)
            nodes, mixed, products = buffers[0, : count + 1], buffers[1, :count], buffers[2, :count]
            nodes[count] = 0
            cpu_kernels.embed_nodes(strings, tag[span], attribute[span], text[span], positions, *shape, lowest, nodes)
            for coefficients, weight, bias in self.layers:
                cpu_kernels.mix_neighbours(nodes, coefficients, *shape, is_mix, mixed)
                results = mixed if weight is None else np.matmul(mixed, weight, out=products)
                cpu_kernels.rectify(results, bias, *shape, is_mix, nodes)
            cpu_kernels.pool_trees(nodes, offsets, pooled[trees])
        if is_mix:
            np.sqrt(pooled[:, width:] + np.float32(SQUARE_EPSILON), out=pooled[:, width:])
        embeddings: Floats = pooled[:, : len(self.output)] @ self.output + self.output_bias
        if is_mix:
            embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), _MIN_LENGTH)
        return embeddings

    def _get_positions(self, forest: Forest) -> Floats:
        """Return alpha E(p) + b of the first layer for as many positions as the forest has siblings."""
        most, positions = int(forest.n_children.max(initial=1)), self._positions
        # Another thread may replace the attribute by a shorter table: only the local one is used.
        if most > len(positions):
            sinusoids = compute_sinusoids(max(_MIN_POSITIONS, 2 * most), self.width)
            positions = self._positions = _to_float32(self.alpha * sinusoids + self.first_bias)
        return positions


def _to_float32(array: npt.NDArray[np.float64]) -> Floats:
    return np.ascontiguousarray(array, np.float32)


def _fold_norm(weights: Mapping[str, npt.NDArray[Any]], layer: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the scale and the shift that are equivalent to the batch normalisation of a layer."""
    norm = {name: weights[f"layers.{layer}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
    scale = norm["weight"] / np.sqrt(norm["variance"] + NORM_EPSILON)
    return scale, norm["bias"] - norm["mean"] * scale
