"""Choose what is shown of ranked candidates: the same statement first, each formula once, not too many of one paper."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from eqkin.search.candidates import Candidate, CandidateSet, QueryFeatures
from eqkin.trees.operators import share_form

_SAME_LATEX_COSINE = 0.8  # from which the same LaTeX means the same formula; below, a macro has two meanings
_SAME_FORM_COSINE = 0.95  # from which the same operator tree means the same formula; below, its notation differs
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
    same = share_form(operators.forms[operators.form_offsets[:-1]], query.operators.forms[:1], kinds=1)
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
    compared = [candidate.row for candidate in ranked[:_MAX_COMPARED] if candidate.row < len(candidates.keys)]
    forms = dict(zip(compared, _hash_forms(candidates, compared), strict=True)) if compared else {}
    earlier: dict[str | int, list[int]] = defaultdict(list)  # rows kept, by form and by LaTeX
    vectors = candidates.vectors
    kept: dict[int, Candidate] = {}  # by row
    formulas = normalise_latex([candidate.ref.latex for candidate in ranked])
    repeated = {key for key, count in Counter[str | int]([*formulas, *forms.values()]).items() if count > 1} - {""}
    for candidate, latex in zip(ranked, formulas, strict=True):
        row = candidate.row
        keys: list[tuple[str | int, float]] = [(latex, _SAME_LATEX_COSINE)] if latex in repeated else []
        keys += [(forms[row], _SAME_FORM_COSINE)] if forms.get(row) in repeated else []
        compare = [(other, least) for key, least in keys for other in earlier[key]]
        first = next((other for other, least in compare if float(vectors[row] @ vectors[other]) >= least), None)
        if first is None:
            kept[row] = candidate
            for key, _ in keys:
                earlier[key].append(row)
        else:
            kept[first].duplicates.append(candidate.ref)
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
