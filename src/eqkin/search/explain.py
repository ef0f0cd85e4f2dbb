"""Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.

`formulas/js/explain.mjs` compares the trees, in the engine that also parses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqkin.formulas.engine import LIMIT_ERRORS, borrow_engine
from eqkin.formulas.mathml import NodeColumns, join_columns, to_mathml, write_parts
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
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
    # Forms of whole formulas are known; the engine need not compute them again.
    same = (theirs.formula_forms == operators.formula_forms[0]).tolist()
    forms = [[kind for kind, is_same in zip(FORM_KINDS, row, strict=True) if is_same] for row in same]
    asked = join_columns([query])

    def explain(first: int, last: int) -> list[Explanation]:
        check_cancelled()
        trees = hits[first:last]
        known = None if parts else (operators, theirs.select(np.arange(first, last)))
        try:
            with borrow_engine() as engine:
                answers = engine.explain(asked, join_columns(trees), forms[first:last], known)
        except LIMIT_ERRORS:
            # A list of hits is worth more than the reasons for one: halve it until only that one goes without.
            if len(trees) == 1:
                return [Explanation()]
            middle = (first + last) // 2
            return explain(first, middle) + explain(middle, last)
        return [_read_answer(tree, answer) for tree, answer in zip(trees, answers, strict=True)]

    starts = range(0, len(hits), _HITS_PER_CALL)
    return [one for start in starts for one in explain(start, min(start + _HITS_PER_CALL, len(hits)))]


def _read_answer(nodes: NodeColumns, answer: dict[str, Any]) -> Explanation:
    relation = answer["relation"]
    if "pairings" not in answer:
        return Explanation(relation)
    # Triples in one list: node of the query, node of the hit, similarity.
    numbers = answer["pairings"]
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    pairings = tuple(Pairing(query_node=ours, hit_node=theirs, similarity=float(how)) for ours, theirs, how in triples)
    classes = {pair.hit_node: _SHADES[int(pair.similarity * 4)] for pair in pairings}
    names = [name for name, _ in answer["bindings"]]
    parts = write_parts(nodes, [part for _, part in answer["bindings"]])
    return Explanation(
        relation=relation,
        pairings=pairings,
        renaming=tuple((ours, theirs) for ours, theirs in answer["renaming"]),
        bindings=tuple(zip(names, parts, strict=True)),
        marked=to_mathml(nodes, classes=classes),
        changes=tuple(answer["changes"]),
    )
