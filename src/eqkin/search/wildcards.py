r"""Queries with wildcards: which formulas have the form of `?a^2 + ?b^2 = ?c^2`, or contain it?

Wildcards are leaves of the query's tree (`<mi>?x</mi>`). Their names mean nothing but identity: a pattern is matched by
operator trees, and for all else each wildcard is replaced by a letter that only depends on its place.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain, count

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.formulas.engine import LIMIT_ERRORS, borrow_engine
from eqkin.formulas.forest import iter_blocks
from eqkin.formulas.mathml import Node, list_nodes, to_forest, to_node
from eqkin.formulas.operators import OperatorForest
from eqkin.limits import check_cancelled

_FREE_LETTERS = "xyzabcnmkstuvwfghpqrijABCXYZFGHMNKPQRSTUVWdeloDEIJLO"
_WILDCARD_NAME = re.compile(r"\?\w+")
_NODES_PER_CALL = 20_000  # of trees that are matched in one call
_MAX_STEPS = 3_000  # of the search for a match in one tree

Scores = npt.NDArray[np.float32]


def match_pattern(
    pattern: OperatorForest, operators: OperatorForest, max_steps: int = _MAX_STEPS
) -> npt.NDArray[np.uint8]:
    """Match a formula with wildcards with others (`formulas/js/matching.mjs`).

    Returns:
        For each tree 2 if all of it matches, 1 if a part does, 0 if none is found within some steps.
    """
    found = np.zeros(len(operators), np.uint8)
    for trees, _ in iter_blocks(operators.offsets, _NODES_PER_CALL):
        check_cancelled()
        some = operators.select(np.arange(trees.start, trees.stop))
        # Trees that take too long are taken not to match.
        with borrow_engine() as engine, suppress(*LIMIT_ERRORS):
            found[trees] = engine.match(pattern, some, max_steps)
    return found


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
    """Replace each wildcard of a tree by a letter that does not occur otherwise, whatever its name is."""
    root = to_node(forest, 0)
    nodes = list_nodes(root)
    taken = {node.text for node in nodes}
    free = (letter for letter in chain(_FREE_LETTERS, (f"x{number}" for number in count())) if letter not in taken)
    letters = dict(zip(find_wildcards(root), free, strict=False))
    for node in nodes:
        if is_wildcard(node):
            node.text = letters[node.text]
            node.attributes = {}
    return to_forest(root)


def rank_matches_first(scores: Scores, matches: npt.NDArray[np.uint8]) -> Scores:
    """Change scores in [0, 1] so that what `match_pattern` found comes first: whole formulas, then parts."""
    raised = (scores / 3).astype(np.float32)
    raised += matches / np.float32(3)
    return raised
