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
from eqkin.forest.vocabulary import dense
from eqkin.network.architecture import NORM_EPSILON, sinusoids
from eqkin.network.model_files import Model

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_BLOCK_NODES = 65_536  # nodes whose labels are looked up together, and their trees' outputs
_CHUNK_NODES = 2_048  # nodes that pass through the layers together: small enough to stay in the cache
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
    row: Integers  # (nodes,) the other way round
    parents: Integers  # (families,) the row of each family's parent
    families: list[Families]
    neighbours: Integers  # (rows,) parent and children of each row's node, and the node itself
    roots: int  # that is, trees

    @classmethod
    def of(cls, forest: Forest, trees: slice, first_child: Integers) -> Layout:
        """The layout of some trees of a forest, whose `first_child()` is given."""
        start, stop = int(forest.offsets[trees.start]), int(forest.offsets[trees.stop])
        children = forest.n_children[start:stop].astype(np.int64)
        roots = forest.offsets[trees] - start
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
        return cls(order, row, row[parents], _families(lengths, len(roots)), neighbours, len(roots))

    def restore(self, nodes: Floats, out: Floats) -> None:
        """Put rows back into the order of the forest."""
        np.take(nodes, self.row, axis=0, out=out, mode="clip")


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

    def embed(self, forest: Forest) -> Floats:
        """Embeddings of all trees: (trees, dimensions)."""
        means = np.empty((len(forest), self.width), np.float32)
        ordered = np.empty((_largest_chunk(forest), self.width), np.float32)
        for trees, layout, nodes in self.chunks(forest):
            layout.restore(nodes, ordered[: len(nodes)])
            offsets = (forest.offsets[trees.start : trees.stop + 1] - forest.offsets[trees.start]).tolist()
            for mean, (start, stop) in zip(means[trees], pairwise(offsets), strict=True):
                np.add.reduce(ordered[start:stop], axis=0, out=mean)
        means /= forest.sizes[:, None].astype(np.float32)
        embeddings: Floats = means @ self._output + self._output_bias
        return embeddings

    def chunks(self, forest: Forest) -> Iterator[tuple[slice, Layout, Floats]]:
        """Some trees at a time: which, their layout, and the last layer's rows (the next chunk overwrites them)."""
        work = _Work(_largest_chunk(forest), self.width)
        table, label = self._labels(forest)
        first_child = forest.first_child()
        for trees in _runs(forest.sizes, _CHUNK_NODES):
            layout = Layout.of(forest, trees, first_child)
            of_node = label[forest.offsets[trees.start] : forest.offsets[trees.stop]]
            yield trees, layout, self._run(layout, table, of_node[layout.order], work)

    def _labels(self, forest: Forest) -> tuple[Floats, Integers]:
        """The first layer's W f + b of each distinct label (tag, attributes, text), and the label of each node."""
        code = forest.tag.astype(np.int64) * len(forest.attributes) + forest.attribute
        code = code * len(forest.texts) + forest.text
        _, example, label = np.unique(code, return_index=True, return_inverse=True)
        tag, attribute, text = forest.tag[example], forest.attribute[example], forest.text[example]
        alone = np.zeros(len(example), np.uint8), np.arange(len(example) + 1)  # each label as a tree of one node
        labels = Forest(forest.tags, forest.attributes, forest.texts, tag, attribute, text, *alone)
        features = dense(self.vocabulary.features(labels)).astype(np.float32)
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
        positions = self._positions  # another thread may put shorter ones there meanwhile
        if largest > len(positions):
            positions = self._positions = _single(self._alpha * sinusoids(max(64, 2 * largest), self.width))
        nodes[: layout.roots] += positions[0]
        for families in layout.families:
            children = nodes[families.rows].reshape(-1, families.size, self.width)
            children += positions[: families.size]

    def _sum_neighbours(self, layout: Layout, work: _Work) -> None:
        """Put the sums over each node of `work.nodes` and its neighbours into `work.summed`."""
        nodes, width, roots = work.nodes, self.width, layout.roots
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


def blocks(forest: Forest) -> Iterator[tuple[slice, Forest]]:
    """A forest in parts that fit into memory with the vectors of their nodes: which trees, and a forest of them.

    Raises:
        CorruptData: the arrays describe no trees.
    """
    for trees in _runs(forest.sizes, _BLOCK_NODES):
        whole = trees == slice(0, len(forest))
        part = forest if whole else forest.select(np.arange(trees.start, trees.stop))
        part.validate()
        yield trees, part


def _largest_chunk(forest: Forest) -> int:
    """No chunk has more nodes than this."""
    return max(int(forest.sizes.max(initial=0)), min(_CHUNK_NODES, len(forest.n_children)))


def _runs(sizes: Integers, nodes: int) -> Iterator[slice]:
    """Consecutive trees with at most so many nodes together, or a single tree that is larger."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        limit = nodes + (int(ends[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(ends, limit, "right")))
        yield slice(start, stop)
        start = stop
