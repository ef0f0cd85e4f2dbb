"""Trees as sequences of tokens, one a node, in depth-first order: the order in which a formula is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.forest import Numbers, order_depth_first
from eqkin.trees.normal import label_nodes


@dataclass(frozen=True)
class TokenSequences:
    """A sequence of tokens for each tree; tokens are indices into `names`."""

    names: list[str]  # distinct, not empty, without blanks
    token: Numbers  # (nodes,)
    offsets: npt.NDArray[np.int64]  # (trees + 1,) first token of each sequence

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def iter_lines(self) -> Iterator[str]:
        """Each sequence as its tokens' names with blanks between."""
        for start in range(0, len(self), 10_000):
            part = self.offsets[start : start + 10_001]
            words = [self.names[token] for token in self.token[part[0] : part[-1]].tolist()]
            ends = (part - part[0]).tolist()
            for first, last in zip(ends[:-1], ends[1:], strict=True):
                yield " ".join(words[first:last])


def serialize(forest: Forest) -> TokenSequences:
    """The labels of each tree's nodes in depth-first order."""
    names, label = label_nodes(forest)
    return TokenSequences(names, label[order_depth_first(forest)], forest.offsets)
