r"""Queries with wildcards: which formulas have the form of `?a^2 + ?b^2 = ?c^2`, or contain it?

Wildcards are leaves of the query's tree (`<mi>?x</mi>`). Their names mean nothing but identity: a pattern is matched by
operator trees (`eqkin.trees.matching`), and for all else each wildcard is replaced by a letter that only depends on its
place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, count

import numpy as np
import numpy.typing as npt

from eqkin.limits import check_cancelled
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.matching import OperatorMatch, OperatorTree, match_trees
from eqkin.trees.mathml import Node, list_nodes, to_forest, to_node
from eqkin.trees.operators import OperatorForest

_FREE_LETTERS = "xyzabcnmkstuvwfghpqrijABCXYZFGHMNKPQRSTUVWdeloDEIJLO"
_WILDCARD_NAME = re.compile(r"\?\w+")
# labels that match others, too: a product may be an application, an index or an accent may be part of a name
_FLEXIBLE_LABELS = frozenset({"app", "*", "any", "idx", "hat", "tilde", "check", "breve"})

Scores = npt.NDArray[np.float32]


class Pattern:
    """A formula with wildcards, prepared for matching many trees."""

    def __init__(self, operators: OperatorForest) -> None:
        self._tree = OperatorTree(operators)
        labels = set(self._tree.labels) - _FLEXIBLE_LABELS
        self._needed = {label for label in labels if label[:2] not in ("v:", "n:")}  # which may be parts of names

    def match(self, operators: OperatorForest, tree: int = 0) -> OperatorMatch | None:
        """Return the first match of a tree or a part of it; None if there is none within a number of steps."""
        present = set(operators.label[operators.offsets[tree] : operators.offsets[tree + 1]].tolist())
        if not self._needed <= {operators.labels[label] for label in present}:
            return None
        return match_trees(self._tree, OperatorTree(operators, tree))


def is_wildcard(node: Node) -> bool:
    """Return whether a leaf of a query's tree is a wildcard."""
    return node.tag == "mi" and _WILDCARD_NAME.fullmatch(node.text) is not None


def find_wildcards(root: Node) -> tuple[str, ...]:
    """Return the names of the wildcards in a query's tree (`?x`), in reading order."""
    found: dict[str, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if is_wildcard(node):
            found[node.text] = None
        stack.extend(reversed(node.children))
    return tuple(found)


def replace_wildcards(forest: Forest) -> Forest:
    """Replace each wildcard by a letter that does not occur otherwise, whatever its name is."""
    if not any(text.startswith("?") for text in forest.texts):
        return forest
    roots = [to_node(forest, index) for index in range(len(forest))]
    nodes = [node for root in roots for node in list_nodes(root)]
    wild = [node for node in nodes if is_wildcard(node)]
    taken = {node.text for node in nodes}
    names = dict.fromkeys(name for root in roots for name in find_wildcards(root))
    free = (letter for letter in chain(_FREE_LETTERS, (f"x{number}" for number in count())) if letter not in taken)
    letters = dict(zip(names, free, strict=False))
    for node in wild:
        node.text, node.attributes = letters[node.text], {}
    builder = ForestBuilder()
    for root in roots:
        builder.add_forest(to_forest(root))
    return builder.build()


def rank_matches_first(scores: Scores, pattern: Pattern, operators: OperatorForest, chosen: Iterable[int]) -> Scores:
    """Change scores in [0, 1] so that matches come first: of whole formulas, then of parts, then the rest.

    Args:
        scores: Of all formulas.
        pattern: Of a query with wildcards.
        operators: Operator trees of the chosen formulas.
        chosen: Numbers of the formulas to match, in the order of their trees; the others count as not matching.
    """
    raised = (scores / 3).astype(np.float32)
    for tree, at in enumerate(chosen):
        check_cancelled()
        match = pattern.match(operators, tree)
        if match is not None:
            raised[at] += np.float32((2 if match.whole else 1) / 3)
    return raised
