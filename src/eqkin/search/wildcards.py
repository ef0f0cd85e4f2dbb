r"""Queries with wildcards: which formulas have the form of `?a^2 + ?b^2 = ?c^2`, or contain it?

Wildcards are leaves of the query's tree (`<mi>?x</mi>`). Their names mean nothing but identity: a pattern is matched by
operator trees, and for all else each wildcard is replaced by a letter that only depends on its place.
"""

from __future__ import annotations

import re
from itertools import chain, count

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.converter import LIMIT_ERRORS
from eqkin.formulas.forest import iter_blocks
from eqkin.formulas.mathml import Node, list_nodes, to_forest, to_node
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.parser import borrow_parser, encode_columns
from eqkin.limits import check_cancelled

_FREE_LETTERS = "xyzabcnmkstuvwfghpqrijABCXYZFGHMNKPQRSTUVWdeloDEIJLO"
_WILDCARD_NAME = re.compile(r"\?\w+")
_NODES_PER_CALL = 20_000  # of trees that are matched in one call
_MAX_STEPS = 3_000  # of the search for a match in one tree

Scores = npt.NDArray[np.float32]


class Pattern:
    """A formula with wildcards, which `mathml/matching.js` matches with others."""

    def __init__(self, operators: OperatorForest) -> None:
        labels = [operators.labels[number] for number in operators.label.tolist()]
        self._tree = {"labels": labels, "depths": operators.depth.tolist()}

    def match(self, operators: OperatorForest, max_steps: int = _MAX_STEPS) -> npt.NDArray[np.uint8]:
        """Return for each tree 2 if all of it matches, 1 if a part does, 0 if none is found within some steps."""
        found = b""
        for trees, nodes in iter_blocks(operators.offsets, _NODES_PER_CALL):
            check_cancelled()
            used, label = np.unique(operators.label[nodes], return_inverse=True)
            payload = {
                "pattern": self._tree,
                "labels": [operators.labels[number] for number in used.tolist()],
                "sizes": np.diff(operators.offsets[trees.start : trees.stop + 1]).tolist(),
                "nodes": encode_columns([label, operators.depth[nodes]]),
                "limit": max_steps,
            }
            try:
                with borrow_parser() as parser:
                    found += str(parser.call("matchPattern", orjson.dumps(payload))).encode()
            except LIMIT_ERRORS:
                found += b"0" * (trees.stop - trees.start)
        return np.frombuffer(found, np.uint8) - np.uint8(ord("0"))


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


def rank_matches_first(scores: Scores, matches: npt.NDArray[np.uint8]) -> Scores:
    """Change scores in [0, 1] so that what `Pattern.match` found comes first: whole formulas, then parts."""
    raised = (scores / 3).astype(np.float32)
    raised += matches / np.float32(3)
    return raised
