"""A corpus on the device, whole: batches of trees are put together there, nothing is loaded while learning.

Most nodes look like many others: a node's features are a row of a table of the distinct labels (tag, attributes, text).
A node takes 8 bytes: its label, how many children it has, how far before it its parent stands and how far after it
its first child; 10 bytes where there are more labels than fit in two. So the paper's 29 million equations take 17 GB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.encoder.tree_ops import PADDING, ROOT, TreeBatch
from eqkin.errors import LimitReached
from eqkin.limits import LIMITS
from eqkin.training.augmentation import Renaming
from eqkin.training.masking import Mask
from eqkin.trees import Forest, Vocabulary
from eqkin.trees.forest import Array
from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, to_dense

_FIRST_CHARACTER = TAG_SLOTS + ATTRIBUTE_SLOTS
_INT16_MAX = np.iinfo(np.int16).max


@dataclass(frozen=True)
class DeviceBatch:
    """Some trees of a corpus, ready for the network."""

    trees: TreeBatch
    label: Tensor  # (nodes,) rows of the tables


class DeviceForest:
    """The trees of a corpus on a device.

    Args:
        forest: The trees.
        vocabulary: What their tags, attributes and characters mean to the network.
        device: Where to put them.

    Raises:
        LimitReached: A tree is too large.
    """

    def __init__(self, forest: Forest, vocabulary: Vocabulary, device: torch.device) -> None:
        if int(forest.sizes.max(initial=0)) > LIMITS.tree_nodes:
            raise LimitReached(f"a tree has {forest.sizes.max():,} nodes; learning takes up to {LIMITS.tree_nodes:,}")
        label, table, first, identifier = _build_labels(forest, vocabulary)
        index = np.arange(len(forest.tag))
        self.device = device
        self.offsets = torch.from_numpy(np.array(forest.offsets)).to(device)
        self.n_children = self._to_narrow(forest.n_children)
        self.to_parent = self._to_narrow(index - forest.compute_parent())  # 0 for a root
        self.to_child = self._to_narrow(forest.compute_first_child() - index)
        self.label = self._to_narrow(label)
        self.table = torch.from_numpy(table).to(device)  # (labels, 256) counts
        self.targets = torch.from_numpy(first).to(device)  # (labels, 3) classes of the masking task
        self.identifier = torch.from_numpy(identifier).to(device)  # (labels,) whether renaming applies

    def _to_narrow(self, values: Array) -> Tensor:
        most = int(values.max(initial=0))
        return torch.from_numpy(values.astype(np.int16 if most <= _INT16_MAX else np.int32)).to(self.device)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def bytes(self) -> int:
        """Bytes of the trees and of the tables of their labels."""
        tensors = (t for t in vars(self).values() if isinstance(t, Tensor))
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def get_sizes(self, trees: Tensor) -> Tensor:
        """Nodes of some trees."""
        return self.offsets[trees + 1] - self.offsets[trees]

    def collate(self, trees: Tensor, nodes: Tensor) -> DeviceBatch:
        """Trees put one after the other.

        Args:
            trees: Which ones, (trees,) int64; one may come up several times.
            nodes: 0, 1, ..., as many as there is room for; what the trees don't fill is padding.
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
        self, batch: DeviceBatch, dtype: torch.dtype, *, renaming: Renaming | None = None, mask: Mask | None = None
    ) -> Tensor:
        """Feature vectors of a batch's nodes, (nodes, 256), symbols renamed and hidden nodes zero where asked for."""
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
        """Tag, attribute and character of some nodes as classes of the masking task, (nodes, 3)."""
        label = batch.label[nodes]
        answers = self.targets[label]
        if renaming is None:
            return answers
        tag, attribute, character = answers.unbind(1)
        new = renaming.new[batch.trees.tree[nodes], character.clamp(max=CHARACTER_SLOTS - 1)].long()
        renamed = self.identifier[label] & (character < CHARACTER_SLOTS)
        return torch.stack([tag, attribute, torch.where(renamed, new, character)], dim=1)


def _build_labels(
    forest: Forest, vocabulary: Vocabulary
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Each node's label; and of each label its feature counts, its classes in the masking task, if it is `<mi>`."""
    texts, attributes = max(len(forest.texts), 1), max(len(forest.attributes), 1)
    code = (forest.tag.astype(np.int64) * attributes + forest.attribute) * texts + forest.text
    distinct, label = np.unique(code, return_inverse=True)
    tag = distinct // (texts * attributes)
    one_each = Forest(
        forest.tags, forest.attributes, forest.texts, tag, distinct // texts % attributes, distinct % texts,
        np.zeros(len(distinct), np.int64), np.arange(len(distinct) + 1),
    )  # fmt: skip
    features = vocabulary.extract_features(one_each)
    first = np.stack(
        [
            features.tag.astype(np.int64),
            _find_first_slots(features.attribute, features.attribute_offsets, none=ATTRIBUTE_SLOTS),
            _find_first_slots(features.character, features.character_offsets, none=CHARACTER_SLOTS),
        ],
        axis=1,
    )
    identifier = np.array([name == "mi" for name in forest.tags], bool)
    return label, to_dense(features), first, identifier[tag] if len(tag) else np.zeros(0, bool)


def _find_first_slots(slots: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], none: int) -> npt.NDArray[np.int64]:
    """The first slot of each run, `none` for an empty one."""
    padded = np.append(slots.astype(np.int64), none)
    return np.where(np.diff(offsets) > 0, padded[np.minimum(offsets[:-1], len(slots))], none)
