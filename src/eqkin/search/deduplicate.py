"""Choose what is shown of ranked candidates: the same statement first, each formula once, not too many of one paper.

Candidates are numbers of rows of a `CandidateSet`, best first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain

import numpy as np

from eqkin.formulas.hashing import compute_powers, compute_prefix_sums
from eqkin.formulas.operators import share_form
from eqkin.search.candidates import CandidateSet, QueryFeatures, Rows

_SAME_COSINES = (  # from which two formulas are the same
    0.8,  # that have the same LaTeX; below, a macro has two meanings
    0.95,  # that have the same operator tree; below, its notation differs
)
_MAX_COMPARED = 250  # candidates whose operator trees are compared


def put_same_first(query: QueryFeatures, ranked: Rows, candidates: CandidateSet) -> Rows:
    """Put the same statement with the same names before all others; the order is otherwise kept.

    In another notation, it may have a lower score than a formula that only looks like the query.
    """
    same = share_form(candidates.operators.formula_forms, query.operators.forms[:1], kinds=["canonical"])[ranked]
    return np.concatenate((ranked[same], ranked[~same]))


def keep_best_of_display(ranked: Rows, candidates: CandidateSet) -> Rows:
    """Return the candidates with only the best of each display and its rows."""
    columns, best = candidates.columns, dict[tuple[int, int], int]()
    displays = zip(columns.paper[ranked].tolist(), columns.display[ranked].tolist(), strict=True)
    for row, display in zip(ranked.tolist(), displays, strict=True):
        best.setdefault(display, row)
    return np.array(list(best.values()), np.int64)


def deduplicate(ranked: Rows, candidates: CandidateSet) -> tuple[Rows, dict[int, list[int]]]:
    """Drop candidates that are the same formula as an earlier one.

    Formulas are the same if their canonical operator trees are, operands in the same order, and their vectors are near;
    or if they have the same LaTeX and their vectors are not far from each other.

    Returns:
        Those that are kept; and the dropped ones, by the one that is kept of them.
    """
    forms, rows = [0] * len(ranked), ranked.tolist()
    compared = np.flatnonzero(ranked[:_MAX_COMPARED] < len(candidates.keys))
    for at, form in zip(compared.tolist(), _hash_operator_trees(candidates, ranked[compared]), strict=True):
        forms[at] = form
    hashes = list(zip(candidates.columns.latex[ranked].tolist(), forms, strict=True))
    counts = Counter(chain.from_iterable(hashes))  # no hash of LaTeX is one of an operator tree
    repeated = {key for key, count in counts.items() if count > 1} - {0}
    earlier: dict[int, list[int]] = defaultdict(list)  # places of those that are kept, by hash
    duplicates: dict[int, list[int]] = defaultdict(list)
    is_kept, vectors = np.ones(len(ranked), bool), candidates.vectors
    for at, own in enumerate(hashes):
        if repeated.isdisjoint(own):
            continue
        pairs = zip(own, _SAME_COSINES, strict=True)
        compare = [(other, least) for key, least in pairs for other in earlier.get(key, ())]
        first = next((other for other, least in compare if vectors[rows[at]] @ vectors[rows[other]] >= least), None)
        if first is None:
            for key in repeated.intersection(own):
                earlier[key].append(at)
        else:
            duplicates[rows[first]].append(rows[at])
            is_kept[at] = False
    return ranked[is_kept], duplicates


def _hash_operator_trees(candidates: CandidateSet, rows: Rows) -> list[int]:
    """Return hashes of operator trees, in which operands keep their order, from 2^63 on."""
    if not len(rows):
        return []
    known = candidates.has_operators
    operators, trees = (candidates.operators, rows) if known else (candidates.get_operators(rows), slice(None))
    offsets, nodes = operators.offsets, operators.properties[operators.label, 0] + operators.depth.astype(np.uint64)
    places = np.arange(len(nodes)) - np.repeat(offsets[:-1], np.diff(offsets))
    sums = compute_prefix_sums(nodes * compute_powers(int(places.max(initial=0)) + 1)[0][places])
    hashes = sums[offsets[1:]] - sums[offsets[:-1]] | np.uint64(1 << 63)
    found: list[int] = hashes[trees].tolist()
    return found


def limit_per_paper(
    papers: list[int], k: int, per_paper: int, first: int | None = None
) -> tuple[list[int], dict[int, int]]:
    """Choose the `k` best; those of a paper that already has `per_paper` come after the others.

    The list for a small `k` is the beginning of the list for a larger one.

    Args:
        papers: The paper of each candidate, best first.
        k: How many to choose.
        per_paper: How many of a paper come before others.
        first: So many candidates are arranged before the others are looked at; by default all.

    Returns:
        Places of those chosen. And for the last one shown of a paper, if there are any, how many of it were left out
        that are better than the last shown.
    """
    first = len(papers) if first is None else first
    count: dict[int, int] = defaultdict(int)
    order: list[int] = []
    for part in (range(first), range(first, len(papers))):
        later: list[int] = []
        for i in part:
            count[papers[i]] += 1
            (order if count[papers[i]] <= per_paper else later).append(i)
        order += later
    shown = order[:k]
    last = {papers[i]: i for i in shown}
    end, hidden = max(shown, default=0), dict[int, int]()
    for i in order[k:]:
        if i < end and papers[i] in last:
            hidden[last[papers[i]]] = hidden.get(last[papers[i]], 0) + 1
    return shown, hidden
