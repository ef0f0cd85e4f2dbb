"""A search, stage by stage: features of the query, candidates, ranking, choice, records, explanations, facets.

Each stage is a function that takes values and returns values; the types between them are in `candidates`,
`deduplicate` and here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.formulas.engine import LIMIT_ERRORS, borrow_engine, parse_operators
from eqkin.formulas.mathml import NodeColumns, join_columns, to_mathml, write_parts
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.limits import check_cancelled
from eqkin.search.backend import Snapshot
from eqkin.search.candidates import QueryFeatures, QueryTerms, RankedCandidates, RetrievalSettings, rank, retrieve
from eqkin.search.deduplicate import ChosenCandidates, choose_hits
from eqkin.search.facets import add_facets
from eqkin.search.names import name_forms
from eqkin.search.query import Formula
from eqkin.search.reader import ReadQuery
from eqkin.search.results import WEAK_SCORE, EquationRecord, Hit, Pairing, Results, SearchOptions
from eqkin.search.wildcards import replace_wildcards

# Relations of a hit to a query with wildcards, by what `match_pattern` returns.
_PATTERN_RELATIONS = ("", "contains", "same")
_SHADES = [f"kin kin-{shade}" for shade in (1, 1, 1, 2, 3)]  # classes on a page, by quarters of similarity
_HITS_PER_CALL = 50


class Stopwatch:
    """Measures the stages of a search."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    def record(self, stage: str) -> None:
        """Record the time since the last stage ended; stop the search if nobody waits for it any more."""
        check_cancelled()
        now = time.perf_counter()
        self.seconds[stage] = now - self._start
        self._start = now


@dataclass(frozen=True, kw_only=True)
class ShownEquations:
    """What is read of the candidates that are shown: those that are gone are left out."""

    rows: list[int]  # of the ranked candidates
    records: Mapping[int, EquationRecord]  # by key
    nodes: list[NodeColumns]
    operators: OperatorForest


@dataclass(frozen=True)
class Explanation:
    """How a hit is related to the query, and the parts that they have in common."""

    relation: str = ""  # see `eqkin.search.results.HIT_RELATIONS`; "" if they only may be similar
    pairings: tuple[Pairing, ...] = ()  # in the order of the query's nodes
    renaming: tuple[tuple[str, str], ...] = ()  # letters of the query and their other names in the hit
    bindings: tuple[tuple[str, str], ...] = ()  # wildcards and the MathML of what they match
    marked: str = ""  # the hit's MathML, nodes numbered, matched ones marked
    changes: tuple[str, ...] = ()  # what else differs: "commuted", "sides swapped", "notation"


def extract_features(encoder: Encoder, formula: Formula, mathml: str) -> QueryFeatures:
    """Compute all that a search needs of the query's formula, once.

    Raises:
        BadInput: the network has no vector for it.
    """
    plain = replace_wildcards(formula.forest) if formula.wildcards else formula.forest
    (vector,) = encoder.embed(plain)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        raise BadInput("the network has no vector for this formula; is the model damaged?")
    operators = formula.operators
    if formula.wildcards:
        terms = QueryTerms.extract(parse_operators(plain), pattern=operators)
    else:
        terms = QueryTerms.extract(operators)
    return QueryFeatures(
        latex=formula.latex,
        mathml=mathml,
        nodes=formula.nodes,
        vector=vector / np.float32(length),
        terms=terms,
        operators=operators,
        pattern=operators if formula.wildcards else None,
    )


def search(
    snapshot: Snapshot,
    query: QueryFeatures | None,
    options: SearchOptions,
    *,
    settings: RetrievalSettings,
    per_paper: int,
    clock: Stopwatch,
    read: ReadQuery | None = None,
) -> Results:
    """Find the equations most related to a query.

    Args:
        snapshot: The collection.
        query: The formula; None for a search by text alone.
        options: How to search; their text is searched for.
        settings: How many candidates are retrieved.
        per_paper: Hits of one paper, if there are enough others.
        clock: Measures the stages.
        read: How the query was read.

    Raises:
        NoSuchEquation: an equation was removed between two stages.
    """
    named = snapshot.find_named(read.name, options.filters) if read is not None and read.name else set()
    candidates = retrieve(snapshot, query, options, settings=settings, named=named)
    clock.record("candidates")
    ranked = rank(snapshot, query, candidates, text=bool(options.text), named=named)
    chosen = choose_hits(ranked, options, per_paper)
    clock.record("ranking")
    shown = _read_shown(snapshot, ranked, chosen)
    clock.record("records")
    explanations = _explain(query, ranked, shown, parts=options.explain)
    hits = _build_hits(snapshot, ranked, chosen, shown=shown, explanations=explanations, named=named)
    clock.record("explaining")
    results = Results(
        latex=query.latex if query is not None else "",
        mathml=query.mathml if query is not None else "",
        text=options.text,
        hits=hits,
        offset=options.offset,
        more=chosen.more,
        nothing_close=query is not None
        and all(hit.relation == "weak" for hit in hits)
        and bool((ranked.score[chosen.skipped] < WEAK_SCORE).all()),
        seconds=clock.seconds,
        marked=to_mathml(query.nodes, classes={}) if query is not None and hits and options.explain else "",
        missing=snapshot.missing,
        query=read,
    )
    if options.facets and len(snapshot):
        results = add_facets(snapshot, query, options, settings=settings, ranked=ranked, results=results)
        clock.record("facets")
    return results


def _read_shown(snapshot: Snapshot, ranked: RankedCandidates, chosen: ChosenCandidates) -> ShownEquations:
    keys = ranked.columns.keys[chosen.rows]
    nodes = dict(zip(keys.tolist(), snapshot.get_nodes(keys.tolist()), strict=True))
    records = snapshot.get_records(nodes, nodes)
    rows = [row for row, key in zip(chosen.rows.tolist(), keys.tolist(), strict=True) if key in records]
    shown = ranked.columns.keys[rows]
    return ShownEquations(
        rows=rows,
        records=records,
        nodes=[nodes[key] for key in shown.tolist()],
        # A search by text alone has read the trees of the first candidates only.
        operators=ranked.operators.select(rows)
        if max(rows, default=-1) < len(ranked.operators)
        else snapshot.get_operators(shown),
    )


def _explain(
    query: QueryFeatures | None, ranked: RankedCandidates, shown: ShownEquations, *, parts: bool
) -> list[Explanation]:
    """Return how hits are related to the query; with `parts`, also what matches."""
    if query is None:
        return [Explanation()] * len(shown.rows)
    if query.pattern is not None and not parts:
        found = [Explanation(_PATTERN_RELATIONS[match]) for match in ranked.matches[shown.rows].tolist()]
    else:
        found = explain_hits(query.nodes, query.operators, shown.nodes, shown.operators, parts=parts)
    explanations = []
    for explanation, score in zip(found, ranked.score[shown.rows].tolist(), strict=True):
        similar = "weak" if score < WEAK_SCORE else "similar"
        explanations.append(explanation if explanation.relation else replace(explanation, relation=similar))
    return explanations


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


def _build_hits(
    snapshot: Snapshot,
    ranked: RankedCandidates,
    chosen: ChosenCandidates,
    *,
    shown: ShownEquations,
    explanations: list[Explanation],
    named: Collection[int],
) -> tuple[Hit, ...]:
    """Build hits with their names; one without a name gets that of a law of the atlas with the same form."""
    keys = ranked.columns.keys.tolist()
    folded = {keys[other] for row in shown.rows for other in chosen.duplicates.get(row, ())}
    duplicates = snapshot.get_refs(folded) if folded else {}
    names = snapshot.get_names(keys[row] for row in shown.rows)
    forms = name_forms(shown.operators)
    hits = []
    for row, explanation, form in zip(shown.rows, explanations, forms, strict=True):
        key = keys[row]
        others = [keys[other] for other in chosen.duplicates.get(row, ())]
        hit = Hit(
            equation=shown.records[key],
            score=float(ranked.score[row]),
            similarity=float(ranked.similarity[row]),
            text_score=float(ranked.text_score[row]),
            duplicates=tuple(duplicates[other].name for other in others if other in duplicates),
            hidden=chosen.hidden.get(row, 0),
            pairings=explanation.pairings,
            marked=explanation.marked,
            renaming=explanation.renaming,
            bindings=explanation.bindings,
            # A name that was asked for outranks every structural relation.
            relation="named" if key in named else explanation.relation,
            changes=explanation.changes,
            name=names.get(key) or form,
        )
        hits.append(hit)
    return tuple(hits)
