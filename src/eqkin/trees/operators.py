"""Operator trees: what a formula says instead of how it is set, in flat arrays.

`eqkin.mathml.operators` parses them from presentation trees. A label is an operator (`+`, `frac`, `D`, `f:sin`, `app`)
or a leaf with its kind: variable `v:x`, number `n:2`, constant `c:∞`, name `fn:sin`, text, sign `o:→`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
VARIABLE_PREFIX = "v:"
# operators whose operands have no order, symmetric relations among them
UNORDERED = frozenset("+ * = ≠ ≈ ~ ∪ ∩ ⊕ chain rows list set with cases inner".split())


@dataclass(frozen=True)
class OperatorForest:
    """Operator trees, tree after tree, each in depth-first order."""

    labels: list[str]
    label: Integers  # (nodes,) index into labels
    n_children: Integers  # (nodes,)
    origin: Integers  # (nodes,) presentation node it was parsed from, counted within its tree
    offsets: Integers  # (trees + 1,) first node of each tree
    unparsed: Integers  # (trees,) presentation nodes without a meaning here, which keep their structure

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def parent(self) -> Integers:
        """(nodes,) the parent of each node over the whole forest; -1 for a root."""
        parents = np.full(len(self.label), -1, np.int64)
        stack: list[list[int]] = []  # [node, children still to come]
        for node, count in enumerate(self.n_children.tolist()):
            if stack:
                parents[node] = stack[-1][0]
                stack[-1][1] -= 1
            if count:
                stack.append([node, count])
            while stack and stack[-1][1] == 0:
                stack.pop()
        return parents

    def to_json(self, tree: int) -> Any:
        """Return a tree as nested lists: `["=", "v:E", ["*", "v:m", ["pow", "v:c", "n:2"]]]`."""
        done: list[Any] = []  # subtrees that wait for their parent, last one first
        for node in range(self.offsets[tree + 1] - 1, self.offsets[tree] - 1, -1):
            name, count = self.labels[self.label[node]], int(self.n_children[node])
            children = [done.pop() for _ in range(count)]
            done.append([name, *children] if count else name)
        return done[0]
