"""Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.

`mathml/explain.js` compares the trees, in the engine that also parses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from eqkin.limits import check_cancelled
from eqkin.mathml.converter import LIMIT_ERRORS
from eqkin.mathml.operators import borrow_parser
from eqkin.search.results import Pairing
from eqkin.trees.mathml import NodeColumns, to_mathml
from eqkin.trees.normal import is_silent, normalise_text
from eqkin.trees.operators import FORM_KINDS, OperatorForest

_SHADES = [f"kin kin-{shade}" for shade in (1, 1, 1, 2, 3)]  # classes on a page, by quarters of similarity
_HITS_PER_CALL = 50


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
        parts: Whether to list matching parts; otherwise only the relation is found.
    """
    same = (theirs.formula_forms == operators.formula_forms[0]).tolist()
    forms = [[kind for kind, is_same in zip(FORM_KINDS, row, strict=True) if is_same] for row in same]
    asked, explanations = _describe_tree(query, operators, 0, parts), []
    for start in range(0, len(hits), _HITS_PER_CALL):
        check_cancelled()
        some = slice(start, start + _HITS_PER_CALL)
        trees = hits[some]
        described = [_describe_tree(tree, theirs, at, parts) for at, tree in enumerate(trees, start)]
        payload = {"query": asked, "hits": described, "forms": forms[some], "complete": parts}
        try:
            with borrow_parser() as parser:
                answers = orjson.loads(str(parser.call("explainHits", orjson.dumps(payload))))
            explanations += [_read_answer(tree, answer) for tree, answer in zip(trees, answers, strict=True)]
        except LIMIT_ERRORS:  # a list of hits is worth more than the reasons for some
            explanations += [Explanation()] * len(trees)
    return explanations


def _describe_tree(nodes: NodeColumns, operators: OperatorForest, tree: int, parts: bool) -> dict[str, object]:
    """Return a presentation tree, breadth first, and one of the operator trees as columns for `explain.js`."""
    inside = slice(int(operators.offsets[tree]), int(operators.offsets[tree + 1]))
    return {
        "tags": nodes.tags,
        "texts": nodes.texts,
        "signs": list(map(_read_sign, nodes.tags, nodes.texts)),
        "counts": nodes.counts,
        "labels": [operators.labels[number] for number in operators.label[inside].tolist()],
        "depths": operators.depth[inside].tolist(),
        "origins": operators.get_origin(tree).tolist() if parts else None,
    }


@lru_cache(10_000)
def _read_sign(tag: str, text: str) -> str:
    """Return what a leaf shows; "" for nothing."""
    return "" if is_silent(tag, text, exact=True) else normalise_text(text, exact=True)


def _read_answer(nodes: NodeColumns, answer: dict[str, Any]) -> Explanation:
    relation = answer["relation"]
    if "pairings" not in answer:
        return Explanation(relation)
    pairings = tuple(Pairing(ours, theirs, float(similarity)) for ours, theirs, similarity in answer["pairings"])
    classes = {theirs: _SHADES[int(similarity * 4)] for _, theirs, similarity in answer["pairings"]}
    marked, renaming = to_mathml(nodes, classes=classes), tuple((ours, theirs) for ours, theirs in answer["renaming"])
    bindings = tuple((name, to_mathml(nodes, display=False, roots=found)) for name, found in answer["bindings"])
    return Explanation(relation, pairings, renaming, bindings, marked, tuple(answer["changes"]))
