"""The networks in numpy: the functions defined in `eqkin.encoder.architecture`, rearranged for speed.

Norms are folded into the weights. The first layer is computed once per distinct node label. Trees pass through the
layers in chunks of a few thousand nodes, which stay in the processor's cache. Within a chunk, siblings are adjacent and
sibling groups of equal size are contiguous, so that sums over children are sums over the rows of a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.architecture import NORM_EPSILON, SQUARE_EPSILON, compute_sinusoids
from eqkin.encoder.model import Model
from eqkin.trees import Forest
from eqkin.trees.forest import iter_blocks
from eqkin.trees.vocabulary import Vocabulary, find_labels, to_dense

_PADDING_COLUMNS = 16  # after the columns of the multiplied vectors; the first one carries the bias
_INFINITY = np.float32(np.inf)
_MIN_LENGTH = np.float32(1e-12)

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Weights = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class SiblingGroups:
    """The groups of `size` siblings in a layout."""

    size: int
    rows: slice  # of the children, group after group
    numbers: slice  # of the groups among all groups of the layout


@dataclass(frozen=True)
class NodeLayout:
    """Order of the nodes of some trees: the roots first, then groups of siblings, ordered by group size."""

    order: Integers  # (rows,) the node of each row, counted from the first node of the first tree
    row: Integers  # (nodes,) the inverse
    parents: Integers  # (groups,) the row of each group's parent
    groups: list[SiblingGroups]
    neighbours: Integers  # (rows,) number of parents and children of each node, plus one for itself
    roots: int  # equals the number of trees

    @classmethod
    def from_forest(cls, forest: Forest, trees: slice, first_child: Integers) -> NodeLayout:
        """Compute the layout of some trees of a forest, given `forest.compute_first_child()`."""
        start, stop = int(forest.offsets[trees.start]), int(forest.offsets[trees.stop])
        children = forest.n_children[start:stop].astype(np.int64)
        roots = forest.offsets[trees] - start
        parents = np.flatnonzero(children)
        parents = parents[np.argsort(children[parents], kind="stable")]
        sizes = children[parents]
        ends = np.cumsum(sizes)
        nodes = np.repeat(first_child[start:stop][parents] - start - ends + sizes, sizes)
        order = np.concatenate((roots, nodes + np.arange(len(nodes))))
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        neighbours = children[order] + 2
        neighbours[: len(roots)] -= 1
        groups, begin = [], len(roots)
        distinct, starts = np.unique(sizes, return_index=True)
        for size, (first, last) in zip(distinct.tolist(), pairwise([*starts.tolist(), len(sizes)]), strict=True):
            end = begin + size * (last - first)
            groups.append(SiblingGroups(size, slice(begin, end), slice(first, last)))
            begin = end
        return cls(order, row, row[parents], groups, neighbours, len(roots))


class Buffers:
    """Memory that the layers write to, reused for every chunk."""

    def __init__(self, rows: int, width: int) -> None:
        self.nodes: Floats = np.empty((rows, width), np.float32)
        self.summed: Floats = np.zeros((rows, width + _PADDING_COLUMNS), np.float32)  # over neighbours
        self.projected: Floats = np.empty((rows, width), np.float32)  # by the weights of a layer
        self.sums: Floats = np.empty((rows, width), np.float32)  # over the children of each group
        self.parents: Floats = np.empty((rows, width), np.float32)  # of each group


class NumpyNetwork(ABC):
    """Weights prepared for embedding trees."""

    block_nodes = 65_536  # nodes whose labels and outputs are computed together
    chunk_nodes = 2_048  # nodes that pass through the layers together: few enough to stay in the cache

    def __init__(self, model: Model) -> None:
        self.vocabulary: Vocabulary = model.vocabulary
        self.width: int = model.architecture.width
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self._first, self._first_bias = _to_float32(weights["first.weight"].T), _to_float32(weights["first.bias"])
        self._alpha = weights["first.alpha"]
        self._positions = np.empty((0, self.width), np.float32)
        self._prepare(model, weights)

    @abstractmethod
    def _prepare(self, model: Model, weights: Weights) -> None:
        """Prepare the weights of the layers and of the output."""

    @abstractmethod
    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""

    @abstractmethod
    def _run_layers(self, layout: NodeLayout, buffers: Buffers) -> None:
        """Run all layers on one chunk in place; on entry `buffers.nodes` holds W f + alpha E(p) + b of each node."""

    def iter_chunks(self, forest: Forest) -> Iterator[tuple[slice, NodeLayout, Floats]]:
        """Iterate over chunks: slice of trees, layout, and last layer's rows (overwritten by the next chunk)."""
        buffers = Buffers(self._find_largest_chunk(forest), self.width)
        table, label = self._embed_labels(forest)
        first_child = forest.compute_first_child()
        for trees, _ in iter_blocks(forest.offsets, self.chunk_nodes):
            layout = NodeLayout.from_forest(forest, trees, first_child)
            nodes = buffers.nodes[: len(layout.order)]
            chunk_label = label[forest.offsets[trees.start] : forest.offsets[trees.stop]]
            np.take(table, chunk_label[layout.order], axis=0, out=nodes, mode="clip")
            self._add_positions(nodes, layout)
            self._run_layers(layout, buffers)
            yield trees, layout, nodes

    def _iter_ordered(self, forest: Forest) -> Iterator[tuple[slice, Floats]]:
        """Iterate over chunks: slice of trees, and last layer's rows in the order of the forest."""
        memory = np.empty((self._find_largest_chunk(forest), self.width), np.float32)
        for trees, layout, nodes in self.iter_chunks(forest):
            ordered = memory[: len(nodes)]
            np.take(nodes, layout.row, axis=0, out=ordered, mode="clip")
            yield trees, ordered

    def _find_largest_chunk(self, forest: Forest) -> int:
        """Return an upper bound for the number of nodes in a chunk."""
        return max(int(forest.sizes.max(initial=0)), min(self.chunk_nodes, len(forest.n_children)))

    def _embed_labels(self, forest: Forest) -> tuple[Floats, Integers]:
        """Return the first layer's W f + b of each distinct label (tag, attributes, text), and each node's label."""
        labels, label = find_labels(forest)
        features = to_dense(self.vocabulary.extract_features(labels)).astype(np.float32)
        return features @ self._first + self._first_bias, label

    def _add_positions(self, nodes: Floats, layout: NodeLayout) -> None:
        largest = max((group.size for group in layout.groups), default=1)
        positions = self._positions  # another thread may replace the attribute by a shorter table
        if largest > len(positions):
            positions = self._positions = _to_float32(self._alpha * compute_sinusoids(max(64, 2 * largest), self.width))
        nodes[: layout.roots] += positions[0]
        for group in layout.groups:
            children = nodes[group.rows].reshape(-1, group.size, self.width)
            children += positions[: group.size]


class NumpySumNetwork(NumpyNetwork):
    """The paper's network, "sum": each layer sums over neighbours, then multiplies; the bias is one more weight row."""

    def _prepare(self, model: Model, weights: Weights) -> None:
        self._layers = []
        for layer in range(model.architecture.layers):
            weight, bias = weights[f"layers.{layer}.weight"], weights[f"layers.{layer}.bias"]
            if layer in model.architecture.normalised:
                scale, shift = fold_norm(weights, layer)
                weight, bias = weight * scale, bias + weight @ shift
            self._layers.append(_to_float32(np.vstack((weight.T, bias))))
        soft_norm = weights["soft_norm.mean"] + weights["soft_norm.deviation"]
        self._output = _to_float32(weights["output.weight"].T / soft_norm)
        self._output_bias = _to_float32(weights["output.bias"] / soft_norm)

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""
        means = np.empty((len(forest), self.width), np.float32)
        for trees, nodes in self._iter_ordered(forest):
            _sum_trees(nodes, forest.offsets[trees.start : trees.stop + 1], means[trees])
        means /= forest.sizes[:, None].astype(np.float32)
        embeddings: Floats = means @ self._output + self._output_bias
        return embeddings

    def _run_layers(self, layout: NodeLayout, buffers: Buffers) -> None:
        rows = len(layout.order)
        nodes, summed = buffers.nodes[:rows], buffers.summed[:rows]
        summed[:, self.width] = layout.neighbours  # the bias is inside the sum: it counts once per term
        self._sum_neighbours(layout, buffers)
        _rectify(summed[:, : self.width], out=nodes)
        for layer in self._layers:
            self._sum_neighbours(layout, buffers)
            np.matmul(summed[:, : self.width + 1], layer, out=nodes)
            _rectify(nodes, out=nodes)

    def _sum_neighbours(self, layout: NodeLayout, buffers: Buffers) -> None:
        """Write the sum over each node of `buffers.nodes` and its neighbours to `buffers.summed`."""
        nodes, width, roots = buffers.nodes, self.width, layout.roots
        parents, sums = buffers.parents[: len(layout.parents)], buffers.sums[: len(layout.parents)]
        np.take(nodes, layout.parents, axis=0, out=parents, mode="clip")
        buffers.summed[:roots, :width] = nodes[:roots]
        for group in layout.groups:
            children = nodes[group.rows].reshape(-1, group.size, width)
            summed = buffers.summed[group.rows].reshape(-1, group.size, width + _PADDING_COLUMNS)[:, :, :width]
            np.add(children, parents[group.numbers, None], out=summed)
            np.add.reduce(children, axis=1, out=sums[group.numbers])
        buffers.summed[layout.parents, :width] += sums


class NumpyMixNetwork(NumpyNetwork):
    """The network "mix". Siblings are adjacent in a layout, so that left and right are the previous and next row."""

    def _prepare(self, model: Model, weights: Weights) -> None:
        self._layers = []
        for layer in range(model.architecture.layers):
            scale, shift = fold_norm(weights, layer)
            weight = weights[f"layers.{layer}.weight"].T * scale
            self._layers.append((_to_float32(weights[f"layers.{layer}.mix"]), _to_float32(np.vstack((weight, shift)))))
        self._output, self._output_bias = _to_float32(weights["output.weight"].T), _to_float32(weights["output.bias"])

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions), of length 1."""
        pooled = np.empty((len(forest), 2 * self.width), np.float32)
        means, squares = pooled[:, : self.width], pooled[:, self.width :]
        for trees, nodes in self._iter_ordered(forest):
            offsets = forest.offsets[trees.start : trees.stop + 1]
            _sum_trees(nodes, offsets, means[trees])
            np.square(nodes, out=nodes)
            _sum_trees(nodes, offsets, squares[trees])
        pooled /= forest.sizes[:, None].astype(np.float32)
        np.sqrt(squares + np.float32(SQUARE_EPSILON), out=squares)
        embeddings: Floats = pooled @ self._output + self._output_bias
        embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), _MIN_LENGTH)
        return embeddings

    def _run_layers(self, layout: NodeLayout, buffers: Buffers) -> None:
        rows = len(layout.order)
        nodes, mixed, projected = buffers.nodes[:rows], buffers.summed[:rows], buffers.projected[:rows]
        mixed[:, self.width] = 1.0
        _rectify(nodes, out=nodes)
        for terms, weight in self._layers:
            self._mix_neighbours(terms, layout, buffers)
            np.matmul(mixed[:, : self.width + 1], weight, out=projected)
            _rectify(projected, out=projected)
            nodes += projected

    def _mix_neighbours(self, terms: Floats, layout: NodeLayout, buffers: Buffers) -> None:
        """Write the mix of each node of `buffers.nodes` and its neighbours to `buffers.summed`."""
        own, from_parent, from_children, from_left, from_right = terms
        width, roots = self.width, layout.roots
        parents, sums = buffers.parents[: len(layout.parents)], buffers.sums[: len(layout.parents)]
        np.take(buffers.nodes, layout.parents, axis=0, out=parents, mode="clip")
        parents *= from_parent
        np.multiply(buffers.nodes[:roots], own, out=buffers.summed[:roots, :width])
        for group in layout.groups:
            children = buffers.nodes[group.rows].reshape(-1, group.size, width)
            mixed = buffers.summed[group.rows].reshape(-1, group.size, width + _PADDING_COLUMNS)[:, :, :width]
            scratch = buffers.projected[group.rows].reshape(children.shape)[:, 1:]
            np.multiply(children, own, out=mixed)
            mixed += parents[group.numbers, None]
            mixed[:, 1:] += np.multiply(children[:, :-1], from_left, out=scratch)
            mixed[:, :-1] += np.multiply(children[:, 1:], from_right, out=scratch)
            np.add.reduce(children, axis=1, out=sums[group.numbers])
            sums[group.numbers] *= from_children / np.float32(group.size)
        buffers.summed[layout.parents, :width] += sums


def _to_float32(array: npt.NDArray[np.float64] | Floats) -> Floats:
    return np.ascontiguousarray(array, np.float32)


def _rectify(array: Floats, out: Floats) -> None:
    """Replace negative numbers by 0. Uses clip, because numpy's maximum with a scalar is four times slower."""
    np.clip(array, np.float32(0), _INFINITY, out=out)


def fold_norm(weights: Mapping[str, npt.NDArray[Any]], layer: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the scale and the shift that are equivalent to the batch normalisation of a layer."""
    norm = {name: weights[f"layers.{layer}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
    scale = norm["weight"] / np.sqrt(norm["variance"] + NORM_EPSILON)
    return scale, norm["bias"] - norm["mean"] * scale


def _sum_trees(nodes: Floats, offsets: Integers, out: Floats) -> None:
    """Write the sum over the nodes of each tree to a row of `out`; row 0 of `nodes` is the node `offsets[0]`."""
    for total, (start, stop) in zip(out, pairwise((offsets - offsets[0]).tolist()), strict=True):
        np.add.reduce(nodes[start:stop], axis=0, out=total)
