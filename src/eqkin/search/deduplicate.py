"""Choose what is shown of ranked candidates: each formula once, and not too many of one paper."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np

from eqkin.search.candidates import Candidate, CandidateSet
from eqkin.trees.rows import RowReader

_SAME_LATEX_COSINE = 0.8  # from which the same LaTeX means the same formula; below, a macro has two meanings
_SAME_TREE_COSINE = 0.98  # from which trees are compared; a tree with fewer attributes is not farther away
_SPACING = re.compile(
    r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag|displaystyle|quad|qquad|left|right|[Bb]igg?[lr]?)(?![A-Za-z])"
    r"|\\[,;:!>\s]|~|\s"
)
_PUNCTUATION = ",.;:"


def deduplicate(ranked: Sequence[Candidate], candidates: CandidateSet, depth: int) -> list[Candidate]:
    """Drop candidates that are the same formula as an earlier one, which lists them as `duplicates`.

    Args:
        ranked: Best first.
        candidates: The set they belong to.
        depth: How many, from the best on, are also compared by their trees; the others by their LaTeX alone.
    """
    vectors = candidates.vectors[[candidate.row for candidate in ranked]]
    candidates.load_trees(candidate.row for candidate in ranked[:depth])
    near = np.tril(vectors[:depth] @ vectors[:depth].T >= _SAME_TREE_COSINE, -1)
    reader = RowReader(variants=False)  # a vector may be bold in one paper and not in another

    @cache
    def get_normal_form(i: int) -> tuple[int, ...]:
        return reader.read(candidates.get_node(ranked[i].row)).codes

    by_latex: dict[str, list[int]] = defaultdict(list)
    kept: dict[int, Candidate] = {}
    for i, candidate in enumerate(ranked):
        latex = normalise_latex(candidate.ref.latex)
        same_latex = (j for j in by_latex[latex] if latex and vectors[i] @ vectors[j] >= _SAME_LATEX_COSINE)
        first = next(same_latex, None)
        if first is None and i < depth:
            alike = (j for j in np.flatnonzero(near[i]).tolist() if j in kept)
            first = next((j for j in alike if get_normal_form(j) == get_normal_form(i)), None)
        if first is None:
            kept[i] = candidate
            by_latex[latex].append(i)
        else:
            kept[first].duplicates.append(candidate.ref)
    return list(kept.values())


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
    for i in order[k:]:
        if i < max(shown) and candidates[i].ref.paper in last:
            last[candidates[i].ref.paper].hidden += 1
    return [candidates[i] for i in shown]


def normalise_latex(latex: str) -> str:
    """Remove spacing commands, labels, and the sentence's punctuation at the end."""
    return _SPACING.sub("", latex).rstrip(_PUNCTUATION)
