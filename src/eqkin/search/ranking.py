r"""From candidates to a list: one score of formula and words, near-identical formulas folded, papers kept apart.

With formula and words, an equation's score is

$$ \tfrac34 \text{kinship} + \tfrac14\, \text{words}, $$

with either alone it is that part alone: words move an equation among those whose mathematics fits, they do not replace
it. Kinship is what `ranker` says; the weight of words is a choice, not learned.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eqkin.search.store import EquationRef
from eqkin.trees.mathml import Node

TEXT_WEIGHT = 0.25
_SAME_LATEX_COSINE = 0.8  # cosine from which the same LaTeX means the same formula; below, a macro has two meanings
_SAME_TREE_COSINE = 0.98  # cosine from which trees are compared; a tree with fewer attributes is not farther away
_SPACING = re.compile(
    r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag|displaystyle|quad|qquad|left|right|[Bb]igg?[lr]?)(?![A-Za-z])"
    r"|\\[,;:!>\s]|~|\s"
)
_PUNCTUATION = ",.;:"
_ROW_TAGS = frozenset({"mrow", "mstyle", "mpadded"})


@dataclass
class Candidate:
    """An equation that may be shown."""

    ref: EquationRef
    similarity: float = 0.0
    text_score: float = 0.0
    score: float = 0.0
    duplicates: list[EquationRef] = field(default_factory=list)
    hidden: int = 0


def combine_scores(kinship: float, words: float, *, formula: bool, text: bool) -> float:
    """What the list is sorted by, in [0, 1], for a query with a formula, words, or both."""
    if formula and text:
        return (1 - TEXT_WEIGHT) * kinship + TEXT_WEIGHT * words
    return kinship if formula else words


def deduplicate(
    candidates: Sequence[Candidate], vectors: npt.NDArray[np.float32], tree: Callable[[int], Node], closely: int = 50
) -> list[Candidate]:
    """Candidates in order, without those that say the same as an earlier one; that one lists them as `same`.

    Args:
        candidates: best first.
        vectors: their unit vectors.
        tree: gives the tree with a key; asked only for formulas with very near vectors.
        closely: how many, from the best on, are also compared by their trees; the others by their LaTeX alone.
    """
    shapes: dict[int, str] = {}

    def shape_of(i: int) -> str:
        if i not in shapes:
            shapes[i] = compute_shape(tree(candidates[i].ref.key))
        return shapes[i]

    first = vectors[:closely]
    near = np.tril(first @ first.T >= _SAME_TREE_COSINE, -1)
    written: dict[str, list[int]] = defaultdict(list)  # those kept, by their LaTeX
    kept: dict[int, Candidate] = {}
    for i, candidate in enumerate(candidates):
        latex = normalise_latex(candidate.ref.latex)
        same = (j for j in written[latex] if latex and vectors[i] @ vectors[j] >= _SAME_LATEX_COSINE)
        alike = (j for j in np.flatnonzero(near[i]).tolist() if j in kept) if i < closely else iter(())
        found = next(same, None)
        if found is None:
            found = next((j for j in alike if shape_of(j) == shape_of(i)), None)
        if found is None:
            kept[i] = candidate
            written[latex].append(i)
        else:
            kept[found].duplicates.append(candidate.ref)
    return list(kept.values())


def limit_per_paper(candidates: Sequence[Candidate], k: int, per_paper: int) -> list[Candidate]:
    """The `k` to show, best first: at most `per_paper` of a paper, unless there are not enough others.

    The last one shown of a paper says as `more` how many of it were left out that are better than the last of the list.
    """
    shown: list[int] = []
    spare: list[int] = []
    count: dict[str, int] = defaultdict(int)
    for i, candidate in enumerate(candidates):
        paper = candidate.ref.paper
        if count[paper] < per_paper:
            count[paper] += 1
            shown.append(i)
        else:
            spare.append(i)
        if len(shown) == k:
            break
    shown = sorted(shown + spare[: k - len(shown)])
    chosen = set(shown)
    last = {candidates[i].ref.paper: candidates[i] for i in shown}
    for i in spare:
        if i not in chosen:
            last[candidates[i].ref.paper].hidden += 1
    return [candidates[i] for i in shown]


def normalise_latex(latex: str) -> str:
    """LaTeX without what only spaces it out, and without the sentence's punctuation at its end."""
    return _SPACING.sub("", latex).rstrip(_PUNCTUATION)


def compute_shape(root: Node) -> str:
    """A tree without attributes, spaces, needless rows and the sentence's punctuation: equal for the same formula."""
    members = _flatten_row(root)
    while members and not members[-1].children and members[-1].text and not members[-1].text.strip(_PUNCTUATION):
        members.pop()
    return "".join(_serialise(node) for node in members)


def _flatten_row(node: Node) -> list[Node]:
    """What stands in a row, blanks left out; a row of one thing is that thing."""
    members = node.children if node.tag in _ROW_TAGS else [node]
    members = [child for child in members if not _is_blank(child)]
    if len(members) == 1 and members[0].tag in _ROW_TAGS:
        return _flatten_row(members[0])
    return members


def _is_blank(node: Node) -> bool:
    return not node.children and node.tag not in ("none", "mprescripts") and not node.text.strip()


def _serialise(node: Node) -> str:
    if node.tag in _ROW_TAGS:
        members = _flatten_row(node)
        inner = "".join(_serialise(member) for member in members)
        return inner if len(members) == 1 else f"({inner})"
    if not node.children:
        return f"<{node.text.strip()}>"
    inner = "".join(
        _serialise(child) if child.tag in _ROW_TAGS or not _is_blank(child) else "()" for child in node.children
    )
    return f"{node.tag}[{inner}]"
