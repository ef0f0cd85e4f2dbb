"""Networks over many trees with numpy: the same functions as `eqkin.encoder.architecture` says, rearranged for speed.

Norms are folded into the weights. The first layer's product is taken once for each distinct node label. Trees are
worked on some thousand nodes at a time, see `layout`. What both kinds share stands here, then the paper's kind: its
layers sum over neighbours first and multiply after, the bias riding along as one more row of the weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eqkin.encoder.architecture import NORM_EPSILON, compute_sinusoids
from eqkin.encoder.layout import Floats, Integers, NodeLayout, iter_tree_slices
from eqkin.encoder.model_files import Model
from eqkin.trees import Forest
from eqkin.trees.vocabulary import to_dense

PADDING_COLUMNS = 16  # columns beside the vectors that are multiplied; the first of them carries the bias
_INFINITY = np.float32(np.inf)

Weights = dict[str, npt.NDArray[np.float64]]


class Buffers:
    """Memory that the layers write to, used again for every chunk."""

    def __init__(self, rows: int, width: int) -> None:
        self.nodes = np.empty((rows, width), np.float32)
        self.summed = np.zeros((rows, width + PADDING_COLUMNS), np.float32)  # over neighbours, in some way
        self.moved = np.empty((rows, width), np.float32)  # by a layer's weights
        self.sums = np.empty((rows, width), np.float32)  # of each family's children
        self.parents = np.empty((rows, width), np.float32)  # of each family


class NumpyNetwork(ABC):
    """Weights made ready for embedding trees."""

    chunk_nodes = 2_048  # nodes that pass through the layers together: small enough to stay in the cache

    def __init__(self, model: Model) -> None:
        self.vocabulary, self.width = model.vocabulary, model.architecture.width
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self._first, self._first_bias = to_float32(weights["first.weight"].T), to_float32(weights["first.bias"])
        self._alpha = weights["first.alpha"]
        self._positions = np.empty((0, self.width), np.float32)
        self._prepare(model, weights)

    @abstractmethod
    def _prepare(self, model: Model, weights: Weights) -> None:
        """Make the weights of the layers and the output ready."""

    @abstractmethod
    def embed(self, forest: Forest) -> Floats:
        """Embeddings of all trees: (trees, dimensions)."""

    @abstractmethod
    def _run_layers(self, layout: NodeLayout, work: Buffers) -> None:
        """All layers over one chunk, in place; at first `work.nodes` holds each node's W f + alpha E(p) + b."""

    def iter_chunks(self, forest: Forest) -> Iterator[tuple[slice, NodeLayout, Floats]]:
        """Some trees at a time: which, their layout, and the last layer's rows (the next chunk overwrites them)."""
        work = Buffers(self._find_largest_chunk(forest), self.width)
        table, label = self._embed_labels(forest)
        first_child = forest.compute_first_child()
        for trees in iter_tree_slices(forest.sizes, self.chunk_nodes):
            layout = NodeLayout.from_forest(forest, trees, first_child)
            nodes = work.nodes[: len(layout.order)]
            of_node = label[forest.offsets[trees.start] : forest.offsets[trees.stop]]
            np.take(table, of_node[layout.order], axis=0, out=nodes, mode="clip")
            self._add_positions(nodes, layout)
            self._run_layers(layout, work)
            yield trees, layout, nodes

    def _iter_ordered(self, forest: Forest) -> Iterator[tuple[slice, Floats]]:
        """Some trees at a time: which, and the last layer's rows in the forest's order."""
        memory = np.empty((self._find_largest_chunk(forest), self.width), np.float32)
        for trees, layout, nodes in self.iter_chunks(forest):
            ordered = memory[: len(nodes)]
            layout.restore(nodes, ordered)
            yield trees, ordered

    def _find_largest_chunk(self, forest: Forest) -> int:
        """No chunk has more nodes than this."""
        return max(int(forest.sizes.max(initial=0)), min(self.chunk_nodes, len(forest.n_children)))

    def _embed_labels(self, forest: Forest) -> tuple[Floats, Integers]:
        """The first layer's W f + b of each distinct label (tag, attributes, text), and the label of each node."""
        code = forest.tag.astype(np.int64) * len(forest.attributes) + forest.attribute
        code = code * len(forest.texts) + forest.text
        _, example, label = np.unique(code, return_index=True, return_inverse=True)
        tag, attribute, text = forest.tag[example], forest.attribute[example], forest.text[example]
        alone = np.zeros(len(example), np.uint8), np.arange(len(example) + 1)  # each label as a tree of one node
        labels = Forest(forest.tags, forest.attributes, forest.texts, tag, attribute, text, *alone)
        features = to_dense(self.vocabulary.extract_features(labels)).astype(np.float32)
        return features @ self._first + self._first_bias, label

    def _add_positions(self, nodes: Floats, layout: NodeLayout) -> None:
        largest = max((families.size for families in layout.families), default=1)
        positions = self._positions  # another thread may put shorter ones there meanwhile
        if largest > len(positions):
            positions = self._positions = to_float32(self._alpha * compute_sinusoids(max(64, 2 * largest), self.width))
        nodes[: layout.roots] += positions[0]
        for families in layout.families:
            children = nodes[families.rows].reshape(-1, families.size, self.width)
            children += positions[: families.size]


def to_float32(array: npt.NDArray[np.float64] | Floats) -> Floats:
    """In single precision, row after row."""
    return np.ascontiguousarray(array, np.float32)


def rectify(array: Floats, out: Floats) -> None:
    """Negative numbers become 0: with clip, since numpy's maximum with a single number is four times slower."""
    np.clip(array, np.float32(0), _INFINITY, out=out)


def fold_norm(weights: Weights, layer: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The scale and the shift that a layer's batch normalisation amounts to."""
    norm = {name: weights[f"layers.{layer}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
    scale = norm["weight"] / np.sqrt(norm["variance"] + NORM_EPSILON)
    return scale, norm["bias"] - norm["mean"] * scale


def sum_trees(nodes: Floats, offsets: Integers, out: Floats) -> None:
    """Sums over the nodes of each tree, which stand from `offsets[0]` on, into a row each."""
    for total, (start, stop) in zip(out, pairwise((offsets - offsets[0]).tolist()), strict=True):
        np.add.reduce(nodes[start:stop], axis=0, out=total)


class NumpySumNetwork(NumpyNetwork):
    """The paper's kind."""

    def _prepare(self, model: Model, weights: Weights) -> None:
        self._layers = []
        for layer in range(model.architecture.layers):
            weight, bias = weights[f"layers.{layer}.weight"], weights[f"layers.{layer}.bias"]
            if layer in model.architecture.normalised:
                scale, shift = fold_norm(weights, layer)
                weight, bias = weight * scale, bias + weight @ shift
            self._layers.append(to_float32(np.vstack((weight.T, bias))))
        soft_norm = weights["soft_norm.mean"] + weights["soft_norm.deviation"]
        self._output = to_float32(weights["output.weight"].T / soft_norm)
        self._output_bias = to_float32(weights["output.bias"] / soft_norm)

    def embed(self, forest: Forest) -> Floats:
        """Embeddings of all trees: (trees, dimensions)."""
        means = np.empty((len(forest), self.width), np.float32)
        for trees, nodes in self._iter_ordered(forest):
            sum_trees(nodes, forest.offsets[trees.start : trees.stop + 1], means[trees])
        means /= forest.sizes[:, None].astype(np.float32)
        embeddings: Floats = means @ self._output + self._output_bias
        return embeddings

    def _run_layers(self, layout: NodeLayout, work: Buffers) -> None:
        rows = len(layout.order)
        nodes, summed = work.nodes[:rows], work.summed[:rows]
        summed[:, self.width] = layout.neighbours  # the bias is inside the sum: it counts once for each term
        self._sum_neighbours(layout, work)
        rectify(summed[:, : self.width], out=nodes)
        for layer in self._layers:
            self._sum_neighbours(layout, work)
            np.matmul(summed[:, : self.width + 1], layer, out=nodes)
            rectify(nodes, out=nodes)

    def _sum_neighbours(self, layout: NodeLayout, work: Buffers) -> None:
        """Put the sums over each node of `work.nodes` and its neighbours into `work.summed`."""
        nodes, width, roots = work.nodes, self.width, layout.roots
        parents, sums = work.parents[: len(layout.parents)], work.sums[: len(layout.parents)]
        np.take(nodes, layout.parents, axis=0, out=parents, mode="clip")
        work.summed[:roots, :width] = nodes[:roots]
        for families in layout.families:
            children = nodes[families.rows].reshape(-1, families.size, width)
            summed = work.summed[families.rows].reshape(-1, families.size, width + PADDING_COLUMNS)[:, :, :width]
            np.add(children, parents[families.numbers, None], out=summed)
            np.add.reduce(children, axis=1, out=sums[families.numbers])
        work.summed[layout.parents, :width] += sums
