"""The networks in numpy: the functions defined in `eqkin.encoder.architecture`, rearranged for speed.

Norms are folded into the weights. The first layer is computed once per distinct node label. Trees pass through the
layers in chunks of about a thousand nodes, which stay in the processor's cache. Within a chunk, siblings are adjacent:
left and right are the previous and the next row, and sibling groups of equal size are contiguous, so that sums over
children are sums over the rows of a block. All other operations are passes over the contiguous rows of a chunk.

All rows have some columns after those of the vectors. The first of them is 1 and carries the bias, the others are 0.
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

_PADDING_COLUMNS = 16  # after the columns of the vectors; rows stay aligned to cache lines
_INFINITY = np.float32(np.inf)
_MIN_LENGTH = np.float32(1e-12)
_MIN_COEFFICIENT = 1e-9  # of a node in its own mix, by which the others are divided

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Weights = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Chunk:
    """Trees that pass through the layers together. Rows: the roots, then groups of siblings, ordered by group size.

    The arrays of vectors have some columns after the vectors, and are overwritten by the next chunk.
    """

    trees: slice  # of the forest
    label: Integers  # (rows,) label of each node
    position: Integers  # (rows,) among siblings, from 0
    first: Integers  # rows without a left sibling
    last: Integers  # rows without a right sibling
    group: Integers  # (rows - roots,) the group of each row after the roots
    parents: Integers  # (groups,) the row of each group's parent
    shares: Floats  # (groups, 1) 1 / size
    averages: Floats  # (trees, rows) matrix that averages over the nodes of each tree
    nodes: Floats  # (rows, columns) vectors of the nodes
    mixed: Floats  # (rows, columns) sums or mixes over neighbours
    scratch: Floats  # (rows, columns)
    per_group: Floats  # (groups, columns)
    siblings: list[tuple[Floats, Floats]]  # views of `nodes`, (groups of a size, size, columns), and of `per_group`

    def spread_parents(self, coefficients: Floats | None = None) -> Floats:
        """Return the vector of each row's parent, times some coefficients, for the rows after the roots."""
        spread = self.scratch[len(self.averages) :]
        np.take(self.nodes, self.parents, axis=0, out=self.per_group, mode="clip")
        if coefficients is not None:
            np.multiply(self.per_group, coefficients, out=self.per_group)
        np.take(self.per_group, self.group, axis=0, out=spread, mode="clip")
        return spread

    def sum_children(self) -> Floats:
        """Return the sum over the children of each group."""
        for children, sums in self.siblings:
            np.add.reduce(children, axis=1, out=sums)
        return self.per_group


def iter_chunks(forest: Forest, label: Integers, chunk_nodes: int, columns: int) -> Iterator[Chunk]:
    """Divide a forest into chunks; a tree with more nodes than `chunk_nodes` is a chunk of its own."""
    spans = list(iter_blocks(forest.offsets, chunk_nodes))
    if not spans:
        return
    roots, sizes, nodes = forest.offsets[:-1], forest.sizes, len(forest.n_children)
    first_tree = np.array([trees.start for trees, _ in spans])
    starts, lengths = np.array([(span.start, span.stop - span.start) for _, span in spans]).T
    # groups of siblings, ordered by chunk and size
    children = forest.n_children.astype(np.int64)
    key = np.repeat(np.arange(len(spans)) * (nodes + 1), lengths) + children
    parents = np.flatnonzero(children)
    parents = parents[np.argsort(key[parents], kind="stable")]
    key, size = key[parents], children[parents]
    group = np.repeat(np.arange(len(size)), size)
    place = np.arange(len(group)) - (np.cumsum(size) - size)[group]
    # rows: in each chunk the roots, then the children of the groups
    order, position, row = (np.zeros(nodes, np.int64) for _ in range(3))
    tree = np.repeat(np.arange(len(roots)), sizes)
    chunk_of_tree = np.repeat(np.arange(len(spans)), np.diff([*first_tree, len(roots)]))
    root_rows = np.arange(len(roots)) - first_tree[chunk_of_tree] + starts[chunk_of_tree]
    is_child = np.ones(nodes, bool)
    is_child[root_rows] = False
    order[root_rows], order[is_child] = roots, forest.compute_first_child()[parents][group] + place
    position[is_child] = place
    row[order] = np.arange(nodes)
    label, tree, shares, weight = label[order], tree[order], (1 / size[:, None]).astype(np.float32), 1 / sizes
    changes = np.flatnonzero(key[1:] != key[:-1]) + 1
    bounds = np.concatenate(([0], changes, [len(key)]))  # of groups of equal size in a chunk
    ends = np.searchsorted(key, np.arange(len(spans) + 1) * (nodes + 1))
    buffers = np.zeros((3, int(lengths.max()), columns), np.float32)
    memory = np.empty((int(np.diff(ends).max()), columns), np.float32)
    for number, (trees, span) in enumerate(spans):
        rows, count, groups = span.stop - span.start, trees.stop - trees.start, slice(*ends[number : number + 2])
        vectors, mixed, scratch = buffers[:, :rows]
        per_group, siblings, at = memory[: groups.stop - groups.start], [], count
        inside = bounds[np.searchsorted(bounds, groups.start) : np.searchsorted(bounds, groups.stop) + 1].tolist()
        for begin, end in pairwise(inside):
            of_size, stop = int(size[begin]), at + int(size[begin]) * (end - begin)
            block = vectors[at:stop].reshape(-1, of_size, columns)
            siblings.append((block, per_group[begin - groups.start : end - groups.start]))
            at = stop
        first = np.flatnonzero(position[span] == 0)
        averages = np.zeros((count, rows), np.float32)
        averages[tree[span] - trees.start, np.arange(rows)] = weight[tree[span]]
        yield Chunk(
            trees=trees,
            label=label[span],
            position=position[span],
            first=first,
            last=np.append(first[1:], rows) - 1,
            group=group[span.start - trees.start : span.stop - trees.stop] - groups.start,
            parents=row[parents[groups]] - span.start,
            shares=shares[groups],
            averages=averages,
            nodes=vectors,
            mixed=mixed,
            scratch=scratch,
            per_group=per_group,
            siblings=siblings,
        )


class NumpyNetwork(ABC):
    """Weights prepared for embedding trees."""

    block_nodes = 65_536  # nodes whose labels and outputs are computed together
    chunk_nodes = 1_024  # nodes that pass through the layers together: few enough to stay in the cache

    def __init__(self, model: Model) -> None:
        self.vocabulary: Vocabulary = model.vocabulary
        self.width: int = model.architecture.width
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self._first, self._first_bias = _to_float32(weights["first.weight"].T), _to_float32(weights["first.bias"])
        self._alpha = weights["first.alpha"]
        self._positions = self._pad(np.empty((0, self.width), np.float32))
        self._output, self._output_bias = _to_float32(weights["output.weight"].T), _to_float32(weights["output.bias"])
        self._layers: list[tuple[Floats, Floats]] = []  # coefficients of the neighbours ("mix" only), weights and bias
        for layer in range(model.architecture.layers):
            self._layers.append(self._prepare_layer(model, weights, layer))

    @abstractmethod
    def _prepare_layer(self, model: Model, weights: Weights, layer: int) -> tuple[Floats, Floats]:
        """Prepare the weights of a layer."""

    @abstractmethod
    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""

    @abstractmethod
    def _run_layers(self, chunk: Chunk) -> None:
        """Run all layers in place; on entry `chunk.nodes` holds W f + alpha E(p) + b of each node."""

    def _iter_encoded(self, forest: Forest) -> Iterator[tuple[slice, Floats, Floats]]:
        """Iterate over chunks: slice of trees, matrix of averages, last layer's rows, which the next one overwrites."""
        table, label = self._embed_labels(forest)
        for chunk in iter_chunks(forest, label, self.chunk_nodes, self.width + _PADDING_COLUMNS):
            np.take(table, chunk.label, axis=0, out=chunk.nodes, mode="clip")
            np.take(self._get_positions(chunk.position), chunk.position, axis=0, out=chunk.scratch, mode="clip")
            np.add(chunk.nodes, chunk.scratch, out=chunk.nodes)
            self._run_layers(chunk)
            yield chunk.trees, chunk.averages, chunk.nodes[:, : self.width]

    def _pad(self, vectors: Floats) -> Floats:
        """Append the columns after the vectors as zeros."""
        padded = np.zeros((len(vectors), self.width + _PADDING_COLUMNS), np.float32)
        padded[:, : self.width] = vectors
        return padded

    def _embed_labels(self, forest: Forest) -> tuple[Floats, Integers]:
        """Return the first layer's W f + b of each distinct label (tag, attributes, text), and each node's label."""
        labels, label = find_labels(forest)
        features = to_dense(self.vocabulary.extract_features(labels)).astype(np.float32)
        table = self._pad(features @ self._first + self._first_bias)
        table[:, self.width] = 1
        return table, label

    def _get_positions(self, position: Integers) -> Floats:
        """Return a table of alpha E(p) that is long enough."""
        most = int(position.max(initial=0)) + 1
        positions = self._positions  # another thread may replace the attribute by a shorter table
        if most > len(positions):
            sinusoids = compute_sinusoids(max(64, 2 * most), self.width)
            positions = self._positions = self._pad(_to_float32(self._alpha * sinusoids))
        return positions


class NumpySumNetwork(NumpyNetwork):
    """The paper's network, "sum": each layer sums over neighbours, then multiplies; the bias is one more weight row."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        soft_norm = np.float32(model.weights["soft_norm.mean"] + model.weights["soft_norm.deviation"])
        self._output, self._output_bias = self._output / soft_norm, self._output_bias / soft_norm

    def _prepare_layer(self, model: Model, weights: Weights, layer: int) -> tuple[Floats, Floats]:
        weight, bias = weights[f"layers.{layer}.weight"], weights[f"layers.{layer}.bias"]
        if layer in model.architecture.normalised:
            scale, shift = fold_norm(weights, layer)
            weight, bias = weight * scale, bias + weight @ shift
        return np.empty((0, self.width), np.float32), _to_float32(np.vstack((weight.T, bias)))

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""
        means = np.empty((len(forest), self.width), np.float32)
        for trees, averages, nodes in self._iter_encoded(forest):
            np.matmul(averages, nodes, out=means[trees])
        embeddings: Floats = means @ self._output + self._output_bias
        return embeddings

    def _run_layers(self, chunk: Chunk) -> None:
        nodes, summed, width = chunk.nodes, chunk.mixed, self.width
        self._sum_neighbours(chunk)
        _rectify(summed, out=nodes)
        nodes[:, width] = 1
        for _, weight in self._layers:
            self._sum_neighbours(chunk)  # the bias is inside the sum: it counts once per term
            np.matmul(summed[:, : width + 1], weight, out=nodes[:, :width])
            _rectify(nodes, out=nodes)

    def _sum_neighbours(self, chunk: Chunk) -> None:
        """Write the sum over each node of `chunk.nodes` and its neighbours to `chunk.mixed`."""
        roots = len(chunk.averages)
        chunk.mixed[:roots] = chunk.nodes[:roots]
        np.add(chunk.nodes[roots:], chunk.spread_parents(), out=chunk.mixed[roots:])
        chunk.mixed[chunk.parents] += chunk.sum_children()


class NumpyMixNetwork(NumpyNetwork):
    """The network "mix". The node's own coefficients are folded into the weights and the other coefficients."""

    def _prepare_layer(self, model: Model, weights: Weights, layer: int) -> tuple[Floats, Floats]:
        scale, shift = fold_norm(weights, layer)
        own, *others = weights[f"layers.{layer}.mix"]
        own = np.where(np.abs(own) < _MIN_COEFFICIENT, _MIN_COEFFICIENT, own)
        weight = weights[f"layers.{layer}.weight"].T * scale * own[:, None]
        return self._pad(_to_float32(np.array(others) / own)), _to_float32(np.vstack((weight, shift)))

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions), of length 1."""
        pooled = np.empty((len(forest), 2 * self.width), np.float32)
        means, squares = pooled[:, : self.width], pooled[:, self.width :]
        for trees, averages, nodes in self._iter_encoded(forest):
            np.matmul(averages, nodes, out=means[trees])
            np.square(nodes, out=nodes)
            np.matmul(averages, nodes, out=squares[trees])
        np.sqrt(squares + np.float32(SQUARE_EPSILON), out=squares)
        embeddings: Floats = pooled @ self._output + self._output_bias
        embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), _MIN_LENGTH)
        return embeddings

    def _run_layers(self, chunk: Chunk) -> None:
        nodes, mixed, projected, width = chunk.nodes, chunk.mixed, chunk.scratch, self.width
        _rectify(nodes, out=nodes)
        for terms, weight in self._layers:
            self._mix_neighbours(terms, chunk)
            np.matmul(mixed[:, : width + 1], weight, out=projected[:, :width])  # the columns after it are 0
            np.add(nodes, projected, out=projected)
            np.maximum(nodes, projected, out=nodes)  # x + relu(y) = max(x, x + y)

    def _mix_neighbours(self, terms: Floats, chunk: Chunk) -> None:
        """Write the mix of each node of `chunk.nodes` and its neighbours to `chunk.mixed`; leaves 0 after `scratch`."""
        from_parent, from_children, from_left, from_right = terms
        nodes, mixed, scratch, inner = chunk.nodes, chunk.mixed, chunk.scratch, chunk.mixed[len(chunk.averages) :]
        np.multiply(nodes, from_left, out=scratch)
        scratch[chunk.last] = 0
        mixed[0] = nodes[0]
        np.add(nodes[1:], scratch[:-1], out=mixed[1:])
        np.multiply(nodes, from_right, out=scratch)
        scratch[chunk.first] = 0
        np.add(mixed[:-1], scratch[1:], out=mixed[:-1])
        np.add(inner, chunk.spread_parents(from_parent), out=inner)
        sums = chunk.sum_children()
        np.multiply(sums, chunk.shares, out=sums)
        np.multiply(sums, from_children, out=sums)
        mixed[chunk.parents] += sums


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
