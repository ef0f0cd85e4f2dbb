"""The network over many trees with numpy: the same function as `eqkin.network.architecture` says, rearranged for speed.

Batch normalisation and soft norm are folded into the weights. The first layer's product is taken once for each
distinct node label. A layer sums over neighbours first and multiplies after, the bias riding along as one more row of
the weights. Trees are worked on some thousand nodes at a time, siblings side by side and families of equal size
together (`Layout`), so that a sum over children is a sum over the rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eqkin.forest import Forest
from eqkin.forest.vocabulary import ATTRIBUTES, TAGS
from eqkin.network.architecture import FEATURES, NORM_EPSILON, sinusoids
from eqkin.network.model_files import Model

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_BLOCK_NODES = 65_536  # nodes whose labels are looked up together
_CHUNK_NODES = 2_048  # nodes that pass through the layers together: small enough to stay in the cache
_CHUNK_TREES = 128  # the same in trees, which bounds the pooling matrix
_PADDING = 16  # columns beside the summed vectors; the first of them carries the bias
_INFINITY = np.float32(np.inf)


@dataclass(frozen=True)
class Families:
    """Families of one size in a layout: parents with `size` children each."""

    size: int
    rows: slice  # the children, family after family
    numbers: slice  # the families, among all families of the layout


@dataclass(frozen=True)
class Layout:
    """Some trees' nodes in rows: the roots first, then families of siblings, those of equal size together."""

    order: Integers  # (rows,) which node stands in a row, counted from the first node of the first tree
    parents: Integers  # (families,) the row of each family's parent
    families: list[Families]
    neighbours: Integers  # (rows,) parent and children of each row's node, and the node itself
    sizes: Integers  # (trees,) nodes of each tree
    tree: Integers  # (rows,) the tree of each row's node

    @classmethod
    def of(cls, forest: Forest, trees: slice, first_child: Integers) -> Layout:
        """The layout of some trees of a forest, whose `first_child()` is given."""
        start, stop = int(forest.offsets[trees.start]), int(forest.offsets[trees.stop])
        children = forest.n_children[start:stop].astype(np.int64)
        roots, sizes = forest.offsets[trees] - start, forest.sizes[trees]
        parents = np.flatnonzero(children)
        parents = parents[np.argsort(children[parents], kind="stable")]
        lengths = children[parents]
        ends = np.cumsum(lengths)
        nodes = np.repeat(first_child[start:stop][parents] - start - ends + lengths, lengths)
        order = np.concatenate((roots, nodes + np.arange(len(nodes))))
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        neighbours = children[order] + 2
        neighbours[: len(roots)] -= 1
        tree = np.repeat(np.arange(len(sizes)), sizes)[order]
        return cls(order, row[parents], _families(lengths, len(roots)), neighbours, sizes, tree)

    def means(self, nodes: Floats) -> Floats:
        """Mean over the nodes of each tree."""
        pooling = np.zeros((len(self.sizes), len(nodes)), np.float32)
        pooling[self.tree, np.arange(len(nodes))] = (1.0 / self.sizes)[self.tree]
        means: Floats = pooling @ nodes
        return means


def _families(lengths: Integers, row: int) -> list[Families]:
    """Families with these sizes, in ascending order, whose children stand from `row` on."""
    sizes, starts = np.unique(lengths, return_index=True)
    families = []
    for size, (first, last) in zip(sizes.tolist(), pairwise([*starts.tolist(), len(lengths)]), strict=True):
        end = row + size * (last - first)
        families.append(Families(size, slice(row, end), slice(first, last)))
        row = end
    return families


class _Work:
    """Memory that the layers write to, used again for every chunk."""

    def __init__(self, rows: int, width: int) -> None:
        self.nodes = np.empty((rows, width), np.float32)
        self.summed = np.zeros((rows, width + _PADDING), np.float32)
        self.sums = np.empty((rows, width), np.float32)  # of each family's children
        self.parents = np.empty((rows, width), np.float32)


class Network:
    """Weights made ready for embedding trees."""

    def __init__(self, model: Model) -> None:
        architecture = model.architecture
        self.vocabulary, self.width = model.vocabulary, architecture.width
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self._first, self._first_bias = _single(weights["first.weight"].T), _single(weights["first.bias"])
        self._alpha = weights["first.alpha"]
        self._positions = np.empty((0, self.width), np.float32)
        self._layers = []
        for layer in range(architecture.layers):
            weight, bias = weights[f"layers.{layer}.weight"], weights[f"layers.{layer}.bias"]
            if layer in architecture.normalised:
                norm = {name: weights[f"layers.{layer}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
                scale = norm["weight"] / np.sqrt(norm["variance"] + NORM_EPSILON)
                bias = bias + weight @ (norm["bias"] - norm["mean"] * scale)
                weight = weight * scale
            self._layers.append(_single(np.vstack((weight.T, bias))))
        soft_norm = weights["soft_norm.mean"] + weights["soft_norm.deviation"]
        self._output = _single(weights["output.weight"].T / soft_norm)
        self._output_bias = _single(weights["output.bias"] / soft_norm)

    def output(self, means: Floats) -> Floats:
        """Embeddings of trees, from the means over their nodes."""
        embeddings: Floats = means @ self._output + self._output_bias
        return embeddings

    def chunks(self, forest: Forest) -> Iterator[tuple[slice, Layout, Floats]]:
        """Some trees at a time: which, their layout, and the last layer's rows (the next chunk overwrites them).

        Raises:
            CorruptData: the arrays describe no trees.
        """
        largest = int(forest.sizes.max(initial=0))
        work = _Work(max(largest, min(_CHUNK_NODES, len(forest.n_children))), self.width)
        for block in _runs(forest.sizes, _BLOCK_NODES, len(forest)):
            part = forest if block == slice(0, len(forest)) else forest.select(np.arange(block.start, block.stop))
            part.validate()
            table, label = self._labels(part)
            first_child = part.first_child()
            for trees in _runs(part.sizes, _CHUNK_NODES, _CHUNK_TREES):
                layout = Layout.of(part, trees, first_child)
                of_node = label[part.offsets[trees.start] : part.offsets[trees.stop]]
                nodes = self._run(layout, table, of_node[layout.order], work)
                yield slice(block.start + trees.start, block.start + trees.stop), layout, nodes

    def _labels(self, forest: Forest) -> tuple[Floats, Integers]:
        """The first layer's W f + b of each distinct label (tag, attributes, text), and the label of each node."""
        code = forest.tag.astype(np.int64) * len(forest.attributes) + forest.attribute
        code = code * len(forest.texts) + forest.text
        _, example, label = np.unique(code, return_index=True, return_inverse=True)
        tag, attribute, text = forest.tag[example], forest.attribute[example], forest.text[example]
        alone = np.zeros(len(example), np.uint8), np.arange(len(example) + 1)  # each label as a tree of one node
        labels = Forest(forest.tags, forest.attributes, forest.texts, tag, attribute, text, *alone)
        slots, rows = self.vocabulary.features(labels), np.arange(len(example))
        features = np.zeros((len(example), FEATURES), np.float32)
        features[rows, slots.tag] = 1
        attributes = np.repeat(rows, np.diff(slots.attribute_offsets))
        np.add.at(features, (attributes, TAGS + slots.attribute.astype(np.int64)), 1)
        characters = np.repeat(rows, np.diff(slots.character_offsets))
        np.add.at(features, (characters, TAGS + ATTRIBUTES + slots.character.astype(np.int64)), 1)
        return features @ self._first + self._first_bias, label

    def _run(self, layout: Layout, table: Floats, label: Integers, work: _Work) -> Floats:
        """All layers over one chunk; `label` is each row's row of `table`."""
        rows = len(layout.order)
        nodes, summed = work.nodes[:rows], work.summed[:rows]
        summed[:, self.width] = layout.neighbours  # the bias is inside the sum: it counts once for each term
        np.take(table, label, axis=0, out=nodes, mode="clip")
        self._add_positions(nodes, layout)
        self._sum_neighbours(layout, work)
        # clip, since numpy's maximum with a single number is four times slower
        np.clip(summed[:, : self.width], np.float32(0), _INFINITY, out=nodes)
        for layer in self._layers:
            self._sum_neighbours(layout, work)
            np.matmul(summed[:, : self.width + 1], layer, out=nodes)
            np.clip(nodes, np.float32(0), _INFINITY, out=nodes)
        return nodes

    def _add_positions(self, nodes: Floats, layout: Layout) -> None:
        largest = max((families.size for families in layout.families), default=1)
        if largest > len(self._positions):
            self._positions = _single(self._alpha * sinusoids(max(64, 2 * largest), self.width))
        positions = self._positions
        nodes[: len(layout.sizes)] += positions[0]
        for families in layout.families:
            children = nodes[families.rows].reshape(-1, families.size, self.width)
            children += positions[: families.size]

    def _sum_neighbours(self, layout: Layout, work: _Work) -> None:
        """Put the sums over each node of `work.nodes` and its neighbours into `work.summed`."""
        nodes, width, roots = work.nodes, self.width, len(layout.sizes)
        parents, sums = work.parents[: len(layout.parents)], work.sums[: len(layout.parents)]
        np.take(nodes, layout.parents, axis=0, out=parents, mode="clip")
        work.summed[:roots, :width] = nodes[:roots]
        for families in layout.families:
            children = nodes[families.rows].reshape(-1, families.size, width)
            summed = work.summed[families.rows].reshape(-1, families.size, width + _PADDING)[:, :, :width]
            np.add(children, parents[families.numbers, None], out=summed)
            np.add.reduce(children, axis=1, out=sums[families.numbers])
        work.summed[layout.parents, :width] += sums


def _single(array: npt.NDArray[np.float64] | Floats) -> Floats:
    return np.ascontiguousarray(array, np.float32)


def _runs(sizes: Integers, nodes: int, trees: int) -> Iterator[slice]:
    """Consecutive trees with at most so many nodes and trees together, or a single tree that is larger."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        limit = nodes + (int(ends[start - 1]) if start else 0)
        stop = int(np.searchsorted(ends, limit, "right"))
        stop = max(start + 1, min(stop, start + trees))
        yield slice(start, stop)
        start = stop
