"""`DeviceForest`: a whole forest on the training device. Batches are assembled there, without any host transfer.

Most nodes look like many others: the features of a node are a row of a table of distinct labels (tag, attributes,
text). A node takes 8 bytes: its label, its number of children, and the distances to its parent and to its first child;
10 bytes if there are too many labels for 16 bits. So the paper's 29 million equations take 17 GB.

Augmentation renames symbols and hides nodes (paper, section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.encoder.model import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Model, Vocabulary
from eqkin.errors import LimitReached
from eqkin.formulas import Forest
from eqkin.formulas.forest import Array, iter_blocks
from eqkin.learning.sampling import RandomStream
from eqkin.learning.torch_network import TreeNetwork, build_network
from eqkin.learning.tree_ops import PADDING, ROOT, TreeBatch
from eqkin.limits import LIMITS

# Nodes per batch when embedding.
EMBEDDING_NODES = {"cuda": 1 << 18, "cpu": 4_000}
_FIRST_CHARACTER = TAG_SLOTS + ATTRIBUTE_SLOTS
_INT16_MAX = np.iinfo(np.int16).max


@dataclass(frozen=True)
class DeviceBatch:
    """Some trees of a forest, ready for the network."""

    trees: TreeBatch
    # (nodes,) rows of the tables.
    label: Tensor


class DeviceForest:
    """The trees of a forest on a device.

    Raises:
        LimitReached: A tree is too large.
    """

    def __init__(self, forest: Forest, vocabulary: Vocabulary, device: torch.device) -> None:
        largest = int(forest.sizes.max(initial=0))
        if largest > LIMITS.tree_nodes:
            raise LimitReached(f"a tree has {largest:,} nodes; training allows at most {LIMITS.tree_nodes:,}")
        label, table, targets, identifier = _build_labels(forest, vocabulary)
        index = np.arange(len(forest.tag))
        self.device = device
        self.offsets = torch.from_numpy(np.array(forest.offsets)).to(device)
        self.n_children = self._to_narrow(forest.n_children)
        # A root is its own parent.
        self.to_parent = self._to_narrow(index - forest.compute_parent())
        self.to_child = self._to_narrow(forest.compute_first_child() - index)
        self.label = self._to_narrow(label)
        # Of each label: counts of its 256 features, its three classes in the masking task, whether it can be renamed.
        self.table = torch.from_numpy(table).to(device)
        self.targets = torch.from_numpy(targets).to(device)
        self.identifier = torch.from_numpy(identifier).to(device)

    def _to_narrow(self, values: Array) -> Tensor:
        """Store integers in 16 bits if they fit, otherwise in 32."""
        fits = int(values.max(initial=0)) <= _INT16_MAX
        return torch.from_numpy(values.astype(np.int16 if fits else np.int32)).to(self.device)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def get_sizes(self, trees: Tensor) -> Tensor:
        """Return the number of nodes of some trees."""
        return self.offsets[trees + 1] - self.offsets[trees]

    def collate(self, trees: Tensor, nodes: Tensor) -> DeviceBatch:
        """Concatenate some trees.

        Args:
            trees: Numbers of the trees, (trees,) int64; repeats are allowed.
            nodes: 0, 1, ..., one per row of the batch; rows that the trees do not fill are padding.
        """
        ends = self.get_sizes(trees).cumsum(0)
        starts = ends - self.get_sizes(trees)
        tree = torch.searchsorted(ends, nodes, right=True).clamp(max=len(trees) - 1)
        real = nodes < ends[-1]
        source = torch.where(real, self.offsets[trees][tree] - starts[tree] + nodes, 0)
        to_parent = self.to_parent[source].long()
        above = source - to_parent
        position = torch.where(to_parent > 0, source - above - self.to_child[above].long(), 0)
        parent = torch.where(to_parent > 0, nodes - to_parent, ROOT)
        structure = TreeBatch(
            parent=torch.where(real, parent, PADDING).int(),
            first_child=(nodes + self.to_child[source]).int(),
            n_children=torch.where(real, self.n_children[source], 0).int(),
            position=position.int(),
            tree=tree,
            offsets=torch.cat([ends.new_zeros(1), ends]).int(),
        )
        return DeviceBatch(structure, self.label[source].long())

    def build_features(
        self, batch: DeviceBatch, dtype: torch.dtype, *, renaming: Renaming | None = None, mask: NodeMask | None = None
    ) -> Tensor:
        """Return the features of a batch, (nodes, 256), with renamed symbols and zeros for hidden nodes."""
        label = batch.label[:, None]
        if renaming is None:
            features = self.table[batch.label].to(dtype)
        else:
            own = torch.arange(CHARACTER_SLOTS, device=self.device)
            column = torch.where(self.identifier[label], renaming.old[batch.trees.tree].long(), own) + _FIRST_CHARACTER
            fixed = self.table[batch.label, :_FIRST_CHARACTER]
            features = torch.cat([fixed, self.table[label, column]], dim=1).to(dtype)
        return features if mask is None else torch.where(mask.hidden[:, None], 0.0, features)

    def build_masking_targets(self, batch: DeviceBatch, nodes: Tensor, renaming: Renaming | None = None) -> Tensor:
        """Return the tag, attribute and character of some nodes as classes of the masking task, (nodes, 3)."""
        label = batch.label[nodes]
        targets = self.targets[label]
        if renaming is None:
            return targets
        tag, attribute, character = targets.unbind(1)
        new = renaming.new[batch.trees.tree[nodes], character.clamp(max=CHARACTER_SLOTS - 1)].long()
        is_renamed = self.identifier[label] & (character < CHARACTER_SLOTS)
        return torch.stack([tag, attribute, torch.where(is_renamed, new, character)], dim=1)

    @torch.no_grad()
    def embed(self, network: TreeNetwork, trees: Tensor | None = None) -> Tensor:
        """Embed some or all trees as a search would: with running statistics, nothing hidden or renamed."""
        trees = torch.arange(len(self), device=self.device) if trees is None else trees
        offsets = np.append(0, self.get_sizes(trees).cumsum(0).cpu().numpy())
        parts = [torch.zeros(0, network.architecture.dimensions, device=self.device)]
        was_training = network.training
        network.eval()
        try:
            for part, nodes in iter_blocks(offsets, EMBEDDING_NODES[self.device.type]):
                batch = self.collate(trees[part], torch.arange(nodes.stop - nodes.start, device=self.device))
                parts.append(network(self.build_features(batch, torch.float32), batch.trees))
        finally:
            network.train(was_training)
        return torch.cat(parts)


class DeviceNetwork:
    """A model's network in torch on a device, for an `Encoder`. Float32, with TF32 products on a GPU."""

    def __init__(self, model: Model, device: torch.device) -> None:
        if device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = True
        self._vocabulary, self._device = model.vocabulary, device
        self._network = build_network(model.architecture, model.weights).to(device)
        self.block_nodes: int = EMBEDDING_NODES["cuda"]

    def embed(self, forest: Forest) -> npt.NDArray[np.float32]:
        """Return the embeddings of all trees, (trees, dimensions)."""
        vectors: npt.NDArray[np.float32] = (
            DeviceForest(forest, self._vocabulary, self._device).embed(self._network).cpu().numpy()
        )
        return vectors


def _build_labels(
    forest: Forest, vocabulary: Vocabulary
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the label of each node, and for each label its features, masking classes, and whether it is an `<mi>`."""
    labels, label = _find_labels(forest)
    slots, ends = vocabulary.assign_slots(labels)
    starts = np.append(0, ends[:-1])
    padded, targets, before = np.append(slots.astype(np.int64), 0), [], 0
    for strings, column, first, width in (
        (forest.tags, labels.tag, 0, TAG_SLOTS),
        (forest.attributes, labels.attribute, TAG_SLOTS, ATTRIBUTE_SLOTS),
        (forest.texts, labels.text, _FIRST_CHARACTER, CHARACTER_SLOTS),
    ):
        string = before + column.astype(np.int64)
        targets.append(np.where(ends[string] > starts[string], padded[starts[string]] - first, width))
        before += len(strings)
    identifier = np.array([name == "mi" for name in forest.tags], bool)
    is_identifier = identifier[labels.tag] if len(labels) else np.zeros(0, bool)
    return label, vocabulary.extract_features(labels), np.stack(targets, axis=1), is_identifier


def _find_labels(forest: Forest) -> tuple[Forest, npt.NDArray[np.int64]]:
    """Return the distinct labels of nodes (tag, attributes, text) as trees of one node each, and each node's label."""
    texts = max(len(forest.texts), 1)
    attributes = max(len(forest.attributes), 1)
    code = (forest.tag.astype(np.int64) * attributes + forest.attribute) * texts + forest.text
    distinct, label = np.unique(code, return_inverse=True)
    labels = Forest(
        tags=forest.tags,
        attributes=forest.attributes,
        texts=forest.texts,
        tag=distinct // texts // attributes,
        attribute=distinct // texts % attributes,
        text=distinct % texts,
        n_children=np.zeros(len(distinct), np.uint8),
        offsets=np.arange(len(distinct) + 1),
    )
    return labels, label


@dataclass(frozen=True)
class Renaming:
    """A permutation of the characters per equation, and its inverse: (equations, 192), uint8."""

    # new[e, c] is the new character for c.
    new: Tensor
    # old[e, new[e, c]] = c.
    old: Tensor


class Augmentation:
    """Draws renamings of symbols: what an equation says rarely depends on its letters.

    Each equation has its own permutation of the 192 characters, a product of Poisson(32) random transpositions, which
    applies only to the characters of identifiers (`<mi>`).

    Args:
        transpositions: Mean number per equation.
        share: Fraction of the equations that are renamed.
    """

    def __init__(self, transpositions: float, *, seed: int, device: torch.device, share: float = 1.0) -> None:
        self._share, self._renamed = share, RandomStream(seed, "renamed")
        self._cdf = torch.tensor(_compute_poisson_cdf(transpositions), dtype=torch.float64, device=device)
        self._number = RandomStream(seed, "flips")
        self._first = RandomStream(seed, "flip-one")
        self._second = RandomStream(seed, "flip-two")

    def draw(self, step: Tensor, equations: int) -> Renaming:
        """Draw the renamings of a step, one per equation of its batch."""
        device = self._cdf.device
        index = torch.arange(equations, device=device)
        flips = torch.searchsorted(self._cdf, self._number.draw_uniform(step, index), right=True)
        if self._share < 1:
            flips = torch.where(self._renamed.draw_uniform(step, index) < self._share, flips, 0)
        max_flips = len(self._cdf)
        pair = (index[:, None] * max_flips + torch.arange(max_flips, device=device)).flatten()
        one = self._first.draw_below(CHARACTER_SLOTS, step, pair)
        other = (one + 1 + self._second.draw_below(CHARACTER_SLOTS - 1, step, pair)) % CHARACTER_SLOTS
        return Renaming(*_compose(flips, one.view(equations, max_flips), other.view(equations, max_flips)))


def _compute_poisson_cdf(mean: float) -> list[float]:
    """Return P(number <= k) for k = 0, 1, ..., until less than 1e-12 remains."""
    probabilities: list[float] = []
    k, probability = 0, math.exp(-mean)
    while 1 - math.fsum(probabilities) > 1e-12 and len(probabilities) < 4 * mean + 50:
        probabilities.append(probability)
        k += 1
        probability *= mean / k
    return torch.tensor(probabilities, dtype=torch.float64).cumsum(0).tolist()


@torch.library.custom_op("eqkin::compose_transpositions", mutates_args=())
def _compose(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Compose the first `flips` transpositions of each row; returns the permutation and its inverse."""
    if flips.device.type == "cuda":
        from eqkin.learning.kernels import launch_compose_transpositions

        return launch_compose_transpositions(flips, one, other)
    new = torch.arange(CHARACTER_SLOTS, device=flips.device).repeat(len(flips), 1)
    for k in range(int(flips.max()) if len(flips) else 0):
        active = (k < flips)[:, None]
        a, b = one[:, k, None], other[:, k, None]
        new = torch.where(active & (new == a), b, torch.where(active & (new == b), a, new))
    return new.byte(), torch.argsort(new, dim=1).byte()


@_compose.register_fake
def _(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    shape = (flips.shape[0], CHARACTER_SLOTS)
    return flips.new_empty(shape, dtype=torch.uint8), flips.new_empty(shape, dtype=torch.uint8)


@dataclass(frozen=True)
class NodeMask:
    """The hidden nodes of a batch, with some spare room, so that shapes depend only on the number of nodes."""

    # (nodes,) bool.
    hidden: Tensor
    # (room,) int64, the hidden nodes, then padding.
    nodes: Tensor
    # (nodes,) int64, index of each hidden node in `nodes`; -1 for the others.
    room: Tensor
    # () hidden nodes in `nodes`.
    count: Tensor


class Masking:
    """Draws the nodes to hide, each with probability `share`: features become zero, the position stays."""

    def __init__(self, share: float, *, seed: int) -> None:
        self._share = share
        self._room_per_mille = math.ceil(1_200 * share)
        self._stream = RandomStream(seed, "mask")

    def draw(self, step: Tensor, nodes: Tensor, count: Tensor) -> NodeMask:
        """Draw the mask of a step.

        Args:
            step: Number of the step.
            nodes: 0, 1, ...; those from `count` on are padding.
            count: Number of nodes without padding.
        """
        # 20 % more than expected, plus 32: exceeded once in 10^7 batches, and then the rest does not count.
        room = nodes.shape[0] * self._room_per_mille // 1_000 + 32
        hidden = (self._stream.draw_uniform(step, nodes) < self._share) & (nodes < count)
        index = hidden.cumsum(0) - 1
        index = torch.where(hidden & (index < room), index, -1)
        chosen = nodes.new_zeros(room + 1)
        chosen.scatter_(0, torch.where(index >= 0, index, room), nodes)
        return NodeMask(hidden, chosen[:room], index, hidden.sum().clamp(max=room))
