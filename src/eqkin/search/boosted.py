"""Boosted regression trees, as a few arrays: what the ranking has learned, computed with numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.library.durable import write_file

Floats = npt.NDArray[np.float32]
_ARRAYS = ("feature", "threshold", "left", "right", "value", "first")


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
        trees = np.arange(len(self.feature))[None, :]
        rows = np.arange(len(columns))[:, None]
        node = np.zeros((len(columns), len(self.feature)), np.int64)
        while True:
            lower = columns[rows, self.feature[trees, node]] <= self.threshold[trees, node]
            further = np.where(lower, self.left[trees, node], self.right[trees, node])
            if np.array_equal(further, node):
                total: Floats = (self.first[0] + self.value[trees, node].sum(axis=1)).astype(np.float32)
                return total
            node = further

    def save(self, path: Path) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}
        write_file(path, safetensors.save(arrays | {"features": _bytes("\n".join(self.features))}))

    @classmethod
    def load(cls, path: Path) -> BoostedTrees:
        """What `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            features = tuple(arrays["features"].tobytes().decode().split("\n"))
            return cls(features, *(arrays[name] for name in _ARRAYS))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CorruptData(f"{path}: the ranking's weights cannot be read ({error}); install eqkin again") from error


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)
