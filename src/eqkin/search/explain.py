"""Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.

`mathml/explain.js` compares the trees, in the engine that also parses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from eqkin.formulas.converter import LIMIT_ERRORS
from eqkin.formulas.mathml import NodeColumns, to_mathml, write_parts
from eqkin.formulas.normal import is_silent, normalise_text
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.formulas.parser import borrow_parser
from eqkin.limits import check_cancelled
from eqkin.search.results import Pairing

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
        parts: Whether to list matching parts; otherwise only the relation is found. Then trees are not parsed again.
    """
    same = (theirs.formula_forms == operators.formula_forms[0]).tolist()
    forms = [[kind for kind, is_same in zip(FORM_KINDS, row, strict=True) if is_same] for row in same]
    asked = _describe_tree(query, operators, 0, parts)

    def explain(first: int, last: int) -> list[Explanation]:
        check_cancelled()
        trees = hits[first:last]
        described = [_describe_tree(tree, theirs, at, parts) for at, tree in enumerate(trees, first)]
        texts = set(chain(query.texts, *(tree.texts for tree in trees)))
        signs = {text: sign for text in texts if (sign := _read_sign(text)) != text}
        payload = {"query": asked, "hits": described, "forms": forms[first:last], "signs": signs}
        try:
            with borrow_parser() as parser:
                answers = orjson.loads(str(parser.call("explainHits", orjson.dumps(payload))))
        except LIMIT_ERRORS:  # a list of hits is worth more than the reasons for one
            if len(trees) == 1:
                return [Explanation()]
            middle = (first + last) // 2
            return explain(first, middle) + explain(middle, last)
        return [_read_answer(tree, answer) for tree, answer in zip(trees, answers, strict=True)]

    starts = range(0, len(hits), _HITS_PER_CALL)
    return [one for start in starts for one in explain(start, min(start + _HITS_PER_CALL, len(hits)))]


def _describe_tree(nodes: NodeColumns, operators: OperatorForest, tree: int, parts: bool) -> dict[str, object]:
    """Return a tree for `explain.js`, which parses it, or with its operator tree if no parts are wanted."""
    described: dict[str, object] = {"tags": nodes.tags, "texts": nodes.texts, "counts": nodes.counts}
    if parts:
        return described | {"attributes": nodes.attributes}
    inside = slice(int(operators.offsets[tree]), int(operators.offsets[tree + 1]))
    labels = [operators.labels[number] for number in operators.label[inside].tolist()]
    return described | {"labels": labels, "depths": operators.depth[inside].tolist()}


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
    names, parts = [name for name, _ in answer["bindings"]], [part for _, part in answer["bindings"]]
    bindings = tuple(zip(names, write_parts(nodes, parts), strict=True))
    return Explanation(relation, pairings, renaming, bindings, marked, tuple(answer["changes"]))
