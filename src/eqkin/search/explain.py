"""Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.

`mathml/explain.js` compares the trees, in the engine that also parses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from eqkin.limits import check_cancelled
from eqkin.mathml.converter import LIMIT_ERRORS
from eqkin.mathml.operators import borrow_parser, encode_nodes, encode_operators
from eqkin.search.results import Pairing
from eqkin.trees.forest import iter_blocks
from eqkin.trees.mathml import NodeColumns, to_mathml
from eqkin.trees.normal import is_silent, normalise_text
from eqkin.trees.operators import FORM_KINDS, OperatorForest, accumulate

_SHADES = [f"kin kin-{shade}" for shade in (1, 1, 1, 2, 3)]  # classes on a page, by quarters of similarity
_NODES_PER_CALL = 5_000  # of hits


@dataclass(frozen=True)
class Explanation:
    """How a hit is related to the query, and the parts that they have in common."""

    relation: str = ""  # see `eqkin.search.results.HIT_RELATIONS`; "" if they only may be similar
    pairings: tuple[Pairing, ...] = ()  # in the order of the query's nodes
    renaming: tuple[tuple[str, str], ...] = ()  # letters of the query and their other names in the hit
    bindings: tuple[tuple[str, str], ...] = ()  # wildcards and the MathML of what they match
    marked: str = ""  # the hit's MathML, nodes numbered, matched ones marked
    changes: tuple[str, ...] = ()  # what else differs: "commuted", "sides swapped", "notation"


def explain_hits(
    query: NodeColumns,
    operators: OperatorForest,
    hits: Sequence[NodeColumns],
    theirs: OperatorForest,
    *,
    parts: bool = True,
) -> list[Explanation]:
    """Explain why each tree is related to a query.

    Args:
        query: The query's tree.
        operators: Its operator tree.
        hits: Trees of the hits.
        theirs: Their operator trees.
        parts: Whether to list matching parts; otherwise only the relation is found. Then trees are not parsed again.
    """
    same = (theirs.formula_forms == operators.formula_forms[0]).tolist()
    forms = [[kind for kind, is_same in zip(FORM_KINDS, row, strict=True) if is_same] for row in same]
    explanations: list[Explanation] = []
    offsets = accumulate(np.array([len(tree.tags) for tree in hits]))
    for some, _ in iter_blocks(offsets, _NODES_PER_CALL):
        check_cancelled()
        trees = hits[some]
        payload = encode_nodes([query, *trees]) | {"forms": forms[some]}
        payload["signs"] = [_read_sign(text) for text in payload["texts"]]
        if not parts:
            payload["operators"] = encode_operators(operators, slice(0, 1)), encode_operators(theirs, some)
        try:
            with borrow_parser() as parser:
                answers = orjson.loads(str(parser.call("explainHits", orjson.dumps(payload))))
            explanations += [_read_answer(tree, answer) for tree, answer in zip(trees, answers, strict=True)]
        except LIMIT_ERRORS:  # a list of hits is worth more than the reasons for some
            explanations += [Explanation()] * len(trees)
    return explanations


@lru_cache(10_000)
def _read_sign(text: str) -> str:
    """Return what a leaf with this text shows; "" for nothing."""
    return "" if is_silent("mi", text, exact=True) else normalise_text(text, exact=True)


def _read_answer(nodes: NodeColumns, answer: dict[str, Any]) -> Explanation:
    relation = answer["relation"]
    if "pairings" not in answer:
        return Explanation(relation)
    numbers = answer["pairings"]
    pairings = tuple(map(Pairing, numbers[::3], numbers[1::3], map(float, numbers[2::3])))
    classes = {pair.hit_node: _SHADES[int(pair.similarity * 4)] for pair in pairings}
    marked, renaming = to_mathml(nodes, classes=classes), tuple((ours, theirs) for ours, theirs in answer["renaming"])
    bindings = tuple((name, to_mathml(nodes, display=False, roots=found)) for name, found in answer["bindings"])
    return Explanation(relation, pairings, renaming, bindings, marked, tuple(answer["changes"]))
