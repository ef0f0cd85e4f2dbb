"""Boosted regression trees, as a few arrays: what the ranking has learned, computed with numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.storage import write_file

Floats = npt.NDArray[np.float32]
_ARRAY_NAMES = ("feature", "threshold", "left", "right", "value", "first")


@dataclass(frozen=True)
class BoostedTrees:
    """A sum of trees; node 0 is each tree's root, a leaf is its own child."""

    features: tuple[str, ...]  # names of the columns
    feature: npt.NDArray[np.int16]  # (trees, nodes) column a node asks for
    threshold: Floats  # (trees, nodes) up to which one goes left
    left: npt.NDArray[np.int16]  # (trees, nodes)
    right: npt.NDArray[np.int16]
    value: Floats  # (trees, nodes) of leaves
    first: Floats  # (1,) what the sum starts with

    def __call__(self, columns: Floats) -> Floats:
        """The sum for each row of `columns`, (rows, features)."""
        feature, threshold, children, value = self._flat
        root = np.arange(len(self.feature), dtype=np.int32) * self.feature.shape[1]
        node = np.tile(root, (len(columns), 1))
        first = (np.arange(len(columns), dtype=np.int32) * columns.shape[1])[:, None]
        given = np.ascontiguousarray(columns, np.float32).ravel()
        while True:
            higher = given.take(first + feature.take(node)) > threshold.take(node)
            further = children.take(2 * node + higher)
            if np.array_equal(further, node):
                total: Floats = (self.first[0] + value.take(node).sum(axis=1)).astype(np.float32)
                return total
            node = further

    @cached_property
    def _flat(self) -> tuple[npt.NDArray[np.int32], Floats, npt.NDArray[np.int32], Floats]:
        """Features, thresholds, children (left, right) and values of all nodes, tree after tree."""
        start = np.arange(len(self.feature), dtype=np.int32)[:, None] * self.feature.shape[1]
        children = np.stack((self.left + start, self.right + start), axis=2).astype(np.int32)
        return self.feature.astype(np.int32).ravel(), self.threshold.ravel(), children.ravel(), self.value.ravel()

    def save(self, path: Path) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAY_NAMES}
        write_file(path, safetensors.save(arrays | {"features": _encode_text("\n".join(self.features))}))

    @classmethod
    def load(cls, path: Path) -> BoostedTrees:
        """What `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            features = tuple(arrays["features"].tobytes().decode().split("\n"))
            loaded = cls(features, *(arrays[name] for name in _ARRAY_NAMES))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CorruptData(f"{path}: the ranking's weights cannot be read ({error}); install eqkin again") from error
        if not loaded._is_sound():
            raise CorruptData(f"{path}: the ranking's weights are no trees; install eqkin again")
        return loaded

    def _is_sound(self) -> bool:
        """Whether all is there and every way leads down to a leaf: children come after their parents."""
        nodes, numbers = (self.feature, self.threshold, self.left, self.right, self.value), (self.threshold, self.value)
        if self.feature.ndim != 2 or not self.feature.size or len({array.shape for array in nodes}) > 1:
            return False
        if self.first.shape != (1,) or not all(np.isfinite(array).all() for array in (*numbers, self.first)):
            return False
        own = np.arange(self.feature.shape[1])
        leaf = (self.left == own) & (self.right == own)
        inner = (self.left > own) & (self.right > own) & (np.maximum(self.left, self.right) < len(own))
        known = (self.feature >= 0) & (self.feature < len(self.features))
        return bool(((leaf | inner) & known).all())


def _encode_text(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)
