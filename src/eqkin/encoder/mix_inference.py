"""The network that tells a node's neighbours apart, "mix", over many trees with numpy; see `inference`.

Siblings stand side by side in a layout, so that left and right are the row before and the row after.
"""

from __future__ import annotations

import numpy as np

from eqkin.encoder.architecture import SQUARE_EPSILON
from eqkin.encoder.inference import (
    PADDING_COLUMNS,
    Buffers,
    NumpyNetwork,
    Weights,
    fold_norm,
    rectify,
    sum_trees,
    to_float32,
)
from eqkin.encoder.layout import Floats, NodeLayout
from eqkin.encoder.model_files import Model
from eqkin.trees import Forest

_MIN_LENGTH = np.float32(1e-12)


class NumpyMixNetwork(NumpyNetwork):
    """Weights of the kind "mix" made ready for embedding trees."""

    def _prepare(self, model: Model, weights: Weights) -> None:
        self._layers = []
        for layer in range(model.architecture.layers):
            scale, shift = fold_norm(weights, layer)
            weight = weights[f"layers.{layer}.weight"].T * scale
            self._layers.append((to_float32(weights[f"layers.{layer}.mix"]), to_float32(np.vstack((weight, shift)))))
        self._output, self._output_bias = to_float32(weights["output.weight"].T), to_float32(weights["output.bias"])

    def embed(self, forest: Forest) -> Floats:
        """Embeddings of all trees: (trees, dimensions), of length 1."""
        pooled = np.empty((len(forest), 2 * self.width), np.float32)
        means, squares = pooled[:, : self.width], pooled[:, self.width :]
        for trees, nodes in self._iter_ordered(forest):
            offsets = forest.offsets[trees.start : trees.stop + 1]
            sum_trees(nodes, offsets, means[trees])
            np.square(nodes, out=nodes)
            sum_trees(nodes, offsets, squares[trees])
        pooled /= forest.sizes[:, None].astype(np.float32)
        np.sqrt(squares + np.float32(SQUARE_EPSILON), out=squares)
        embeddings: Floats = pooled @ self._output + self._output_bias
        embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), _MIN_LENGTH)
        return embeddings

    def _run_layers(self, layout: NodeLayout, work: Buffers) -> None:
        rows = len(layout.order)
        nodes, mixed, moved = work.nodes[:rows], work.summed[:rows], work.moved[:rows]
        mixed[:, self.width] = 1.0
        rectify(nodes, out=nodes)
        for terms, weight in self._layers:
            self._mix(terms, layout, work)
            np.matmul(mixed[:, : self.width + 1], weight, out=moved)
            rectify(moved, out=moved)
            nodes += moved

    def _mix(self, terms: Floats, layout: NodeLayout, work: Buffers) -> None:
        """Put the mixes of each node of `work.nodes` and its neighbours into `work.summed`."""
        own, from_parent, from_children, from_left, from_right = terms
        width, roots = self.width, layout.roots
        parents, sums = work.parents[: len(layout.parents)], work.sums[: len(layout.parents)]
        np.take(work.nodes, layout.parents, axis=0, out=parents, mode="clip")
        parents *= from_parent
        np.multiply(work.nodes[:roots], own, out=work.summed[:roots, :width])
        for families in layout.families:
            children = work.nodes[families.rows].reshape(-1, families.size, width)
            mixed = work.summed[families.rows].reshape(-1, families.size, width + PADDING_COLUMNS)[:, :, :width]
            scratch = work.moved[families.rows].reshape(children.shape)[:, 1:]
            np.multiply(children, own, out=mixed)
            mixed += parents[families.numbers, None]
            mixed[:, 1:] += np.multiply(children[:, :-1], from_left, out=scratch)
            mixed[:, :-1] += np.multiply(children[:, 1:], from_right, out=scratch)
            np.add.reduce(children, axis=1, out=sums[families.numbers])
            sums[families.numbers] *= from_children / np.float32(families.size)
        work.summed[layout.parents, :width] += sums
