"""Choose what is shown of ranked candidates: the same statement first, each formula once, not too many of one paper."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from eqkin.search.candidates import Candidate, CandidateSet, QueryFeatures
from eqkin.trees.operators import share_form

_SAME_COSINES = (  # from which two formulas are the same
    0.8,  # that have the same LaTeX; below, a macro has two meanings
    0.95,  # that have the same operator tree; below, its notation differs
)
_MAX_COMPARED = 250  # candidates whose operator trees are compared
_SPACING = re.compile(
    r"\\(?:[,;:!>\s]|label\s*\{[^{}\0]*\}"
    r"|(?:nonumber|notag|displaystyle|quad|qquad|left|right|[Bb]igg?[lr]?)(?![A-Za-z]))"
)
_PUNCTUATION = ",.;:"


def put_same_first(query: QueryFeatures, ranked: Sequence[Candidate], candidates: CandidateSet) -> list[Candidate]:
    """Put the same statement with the same names before all others; the order is otherwise kept.

    In another notation, it may have a lower score than a formula that only looks like the query.
    """
    operators = candidates.operators
    same = share_form(operators.formula_forms, query.operators.forms[:1], kinds=["canonical"])
    return sorted(ranked, key=lambda candidate: not same[candidate.row])


def keep_best_of_display(ranked: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates with only the best of each display and its rows."""
    best: dict[tuple[str, int], Candidate] = {}
    for candidate in ranked:
        best.setdefault((candidate.ref.paper, candidate.ref.family), candidate)
    return list(best.values())


def deduplicate(ranked: Sequence[Candidate], candidates: CandidateSet) -> list[Candidate]:
    """Drop candidates that are the same formula as an earlier one, which lists them as `duplicates`.

    Formulas are the same if their canonical operator trees are, operands in the same order, and their vectors are near;
    or if they have the same LaTeX and their vectors are not far from each other.
    """
    rows = [candidate.row for candidate in ranked]
    compared = [row for row in rows[:_MAX_COMPARED] if row < len(candidates.keys)]
    forms = dict(zip(compared, _hash_forms(candidates, compared), strict=True)) if compared else {}
    formulas = normalise_latex([candidate.ref.latex for candidate in ranked])
    repeated = {key for key, count in Counter[str | int]([*formulas, *forms.values()]).items() if count > 1} - {""}
    keys = [(latex, forms.get(row, "")) for latex, row in zip(formulas, rows, strict=True)]
    alike = [at for at, (latex, form) in enumerate(keys) if latex in repeated or form in repeated]
    vectors = candidates.vectors[[rows[at] for at in alike]]
    cosines, place = vectors @ vectors.T, {at: number for number, at in enumerate(alike)}
    earlier: dict[str | int, list[int]] = defaultdict(list)  # which are kept, by form and by LaTeX
    kept: dict[int, Candidate] = dict(enumerate(ranked))
    for at in alike:
        own = [pair for pair in zip(keys[at], _SAME_COSINES, strict=True) if pair[0] in repeated]
        compare = [(other, least) for key, least in own for other in earlier[key]]
        first = next((other for other, least in compare if cosines[place[at], place[other]] >= least), None)
        if first is None:
            for key, _ in own:
                earlier[key].append(at)
        else:
            kept[first].duplicates.append(kept.pop(at).ref)
    return list(kept.values())


def _hash_forms(candidates: CandidateSet, rows: Sequence[int]) -> list[int]:
    """Return hashes of operator trees, in which operands keep their order."""
    if candidates.has_operators:
        operators, trees = candidates.operators, rows
    else:
        operators, trees = candidates.get_operators(rows), range(len(rows))
    nodes, offsets = operators.properties[operators.label, 0], operators.offsets.tolist()
    nodes += operators.depth.astype(np.uint64)
    return [hash(nodes[offsets[tree] : offsets[tree + 1]].tobytes()) for tree in trees]


def limit_per_paper(
    candidates: Sequence[Candidate], k: int, per_paper: int, first: int | None = None
) -> list[Candidate]:
    """Choose the `k` best; those of a paper that already has `per_paper` come after the others.

    The list for a small `k` is the beginning of the list for a larger one. The last one shown of a paper counts as
    `hidden` how many of it were left out that are better than the last shown.

    Args:
        candidates: Best first.
        k: How many to choose.
        per_paper: How many of a paper come before others.
        first: So many candidates are arranged before the others are looked at; by default all.
    """
    first = len(candidates) if first is None else first
    count: dict[str, int] = defaultdict(int)
    order: list[int] = []
    for part in (range(first), range(first, len(candidates))):
        later: list[int] = []
        for i in part:
            count[candidates[i].ref.paper] += 1
            (order if count[candidates[i].ref.paper] <= per_paper else later).append(i)
        order += later
    shown = order[:k]
    last = {candidates[i].ref.paper: candidates[i] for i in shown}
    end = max(shown, default=0)
    for i in order[k:]:
        if i < end and candidates[i].ref.paper in last:
            last[candidates[i].ref.paper].hidden += 1
    return [candidates[i] for i in shown]


def normalise_latex(formulas: Sequence[str]) -> list[str]:
    """Remove spacing commands, labels, and the sentence's punctuation at the end of each formula."""
    joined = "\0".join(latex.replace("\0", "") for latex in formulas)  # one substitution is faster than many
    words = _SPACING.sub("", joined).replace("~", " ").split()
    return [latex.rstrip(_PUNCTUATION) for latex in "".join(words).split("\0")] if formulas else []
