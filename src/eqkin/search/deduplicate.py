"""Choose what is shown of ranked candidates: each formula once, and not too many of one paper.

Candidates are numbers of rows of `RankedCandidates`, best first.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eqkin.formulas.hashing import combine_hashes
from eqkin.limits import LIMITS
from eqkin.search.candidates import MAX_COMPARED, RankedCandidates, Rows
from eqkin.search.results import SearchOptions

# Two formulas with the same LaTeX are the same from this cosine on; below, a macro has two meanings.
_SAME_LATEX_COSINE = 0.8
# Two formulas with the same operator tree are the same from this cosine on; below, their notation differs.
_SAME_TREE_COSINE = 0.95
# Hashes of operator trees are larger than those of LaTeX, which have 32 bits.
_FIRST_TREE_HASH = 1 << 32


@dataclass(frozen=True, kw_only=True)
class ChosenCandidates:
    """Candidates that are shown, and why others are not."""

    rows: Rows
    skipped: Rows  # those before the first one that is shown
    duplicates: dict[int, list[int]]  # by row: others that are the same formula
    hidden: dict[int, int]  # by row: how many others of the same paper are left out
    more: bool  # whether there are more


def choose_hits(ranked: RankedCandidates, options: SearchOptions, per_paper: int) -> ChosenCandidates:
    """Choose what is shown: each formula once, of a display and its rows the best, not too many of one paper."""
    # A display and its rows are several equations: only the best of them is listed.
    columns = ranked.columns
    displays = combine_hashes(columns.paper.astype(np.uint64), columns.display.astype(np.uint64))
    rows = np.sort(np.unique(displays, return_index=True)[1])
    duplicates: dict[int, list[int]] = {}
    if options.fold:
        rows, duplicates = deduplicate(ranked, rows)
    end = options.offset + options.k
    papers = columns.paper[rows].tolist()
    places, hidden = limit_per_paper(papers, end, per_paper if options.group else len(rows))
    listed = rows[places]
    return ChosenCandidates(
        rows=listed[options.offset :],
        skipped=listed[: options.offset],
        duplicates=duplicates,
        hidden={int(rows[place]): count for place, count in hidden.items()},
        more=min(len(rows), LIMITS.results) > end,
    )


def deduplicate(ranked: RankedCandidates, rows: Rows) -> tuple[Rows, dict[int, list[int]]]:
    """Drop candidates that are the same formula as an earlier one.

    Formulas are the same if their canonical operator trees are, operands in the same order, and their vectors are near;
    or if they have the same LaTeX and their vectors are not far from each other.

    Returns:
        Those that are kept; and the dropped ones, by the one that is kept of them.
    """
    forms = np.zeros(len(ranked.score), np.uint64)
    compared = rows[:MAX_COMPARED]
    compared = compared[compared < len(ranked.operators)]
    operators = ranked.operators.select(compared)
    # A node is its label and its depth, and operands keep their order.
    nodes = operators.properties[operators.label, 0] + operators.depth.astype(np.uint64)
    for row, (start, end) in zip(compared.tolist(), pairwise(operators.offsets.tolist()), strict=True):
        forms[row] = _FIRST_TREE_HASH + zlib.crc32(nodes[start:end].tobytes())
    # Most formulas occur once. The others are looked at one by one.
    hashes = np.stack((ranked.columns.latex[rows].astype(np.uint64), forms[rows]), axis=1)
    codes, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    is_repeated = ((counts > 1) & (codes != 0))[numbers].reshape(hashes.shape)
    kept_by_hash: dict[int, list[int]] = defaultdict(list)
    duplicates: dict[int, list[int]] = defaultdict(list)
    is_kept = np.ones(len(rows), bool)
    for place in np.flatnonzero(is_repeated.any(axis=1)).tolist():
        row = int(rows[place])
        own = hashes[place].tolist()
        others = [(other, _SAME_LATEX_COSINE) for other in kept_by_hash.get(own[0], ())]
        others += [(other, _SAME_TREE_COSINE) for other in kept_by_hash.get(own[1], ())]
        vector = ranked.vectors[row]
        first = next((other for other, least in others if vector @ ranked.vectors[other] >= least), None)
        if first is not None:
            duplicates[first].append(row)
            is_kept[place] = False
            continue
        for code, is_also_elsewhere in zip(own, is_repeated[place].tolist(), strict=True):
            if is_also_elsewhere:
                kept_by_hash[code].append(row)
    return rows[is_kept], duplicates


def limit_per_paper(papers: list[int], k: int, per_paper: int) -> tuple[list[int], dict[int, int]]:
    """Choose the `k` best; those of a paper that already has `per_paper` come after the others.

    The list for a small `k` is the beginning of the list for a larger one.

    Args:
        papers: The paper of each candidate, best first.
        k: How many to choose.
        per_paper: How many of a paper come before others.

    Returns:
        Places of those chosen. For the last hit of each paper, also the number of better hits of that paper that were
        left out.
    """
    count: dict[int, int] = defaultdict(int)
    first: list[int] = []
    later: list[int] = []
    for place, paper in enumerate(papers):
        count[paper] += 1
        (first if count[paper] <= per_paper else later).append(place)
    order = first + later
    shown = order[:k]
    last_of_paper = {papers[place]: place for place in shown}
    last_shown = max(shown, default=0)
    hidden: dict[int, int] = defaultdict(int)
    for place in order[k:]:
        if place < last_shown and papers[place] in last_of_paper:
            hidden[last_of_paper[papers[place]]] += 1
    return shown, hidden
