r"""Papers related by their mathematics: every equation of one paper looks for its kin in all others.

A match of equation $i$ counts by how much nearer it is than the equation's $K$-th neighbour in the library,

$$ s_{ij} - b_i, \qquad b_i = \text{cosine to the } K\text{-th neighbour}, $$

so that an equation which looks like hundreds of others (`x = 0`) says little, however well it is matched. A paper
counts its ten best matches, each of its equations and of ours once; its score is their sum, divided by the most that
ten equations of ours could have reached, $\sum_i (1 - b_i)$.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.library import records
from eqkin.library.parsing import ParsedPaper, parse_item
from eqkin.limits import LIMITS
from eqkin.search.backend import Floats, Keys, Snapshot
from eqkin.search.results import EquationRecord, PaperHit, PaperRecord
from eqkin.sources import open_source
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.mathml import to_mathml, to_node

_MAX_NEIGHBOURS = 100  # K, in a library of some size
_EQUATIONS_PER_NEIGHBOUR = 20  # in a small one, one neighbour in so many equations
_SCORED_PAIRS = 10  # matches of a paper that count
_SHOWN_PAIRS = 5  # and are given as evidence


@dataclass(frozen=True)
class QueryPaper:
    """The paper that others are compared with."""

    keys: frozenset[str]  # papers of the collection that are not answers
    vectors: Floats
    equations: list[int] | list[EquationRecord]  # keys in the collection, or a draft's records


@dataclass(frozen=True)
class _EquationPair:
    gain: float
    cosine: float
    ours: int  # among the subject's equations
    theirs: int  # key


def load_query_paper(desk: Snapshot, key: str) -> QueryPaper:
    """A paper of the collection.

    Raises:
        BadInput: it is not there, or none of its equations has a vector.
    """
    if key not in desk.get_papers([key]):
        raise BadInput(f"the library has no paper {key[:200]!r}")
    equations = _thin_out(desk.list_keys([key]))
    if not len(equations):
        raise BadInput(f"{key}: none of its equations can be searched for; if it was added lately, run `eqkin index`")
    return QueryPaper(frozenset({key}), desk.get_vectors(equations), equations.tolist())


def read_draft(source: str, encoder: Encoder) -> QueryPaper:
    """A draft, or several files of one, read but not added.

    Raises:
        BadInput: it cannot be read, or has no equations.
    """
    builder, equations, keys, problems = ForestBuilder(), list[EquationRecord](), set[str](), list[str]()
    for item in open_source(source):
        extract = parse_item(item, "")
        keys.add(extract.key)
        if extract.forest is None:
            problems.append(extract.message)
            continue
        builder.add_forest(extract.forest)
        equations.extend(_build_draft_records(extract, extract.forest))
        if len(equations) > LIMITS.draft_equations:
            break
    if not equations:
        reason = problems[0] if problems else "no equations in it that could be read"
        raise BadInput(reason if source in reason else f"{source}: {reason}")
    chosen = _thin_out(np.arange(len(equations)))
    vectors = encoder.embed(builder.build().select(chosen))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return QueryPaper(frozenset(keys), vectors, [equations[i] for i in chosen.tolist()])


def find_related_papers(desk: Snapshot, subject: QueryPaper, k: int) -> list[PaperHit]:
    """The papers whose equations are nearest to the subject's, best first."""
    neighbours = max(2, min(_MAX_NEIGHBOURS, len(desk) // _EQUATIONS_PER_NEIGHBOUR))
    own = desk.list_keys(subject.keys)
    wanted = min(neighbours + len(own), 2 * neighbours + 100)
    cosines, keys = desk.search_vectors(subject.vectors, wanted)
    cosines, keys = _drop_own_equations(cosines, keys, own, neighbours)
    baseline = np.array([row[t >= 0][-1] if (t >= 0).any() else 1.0 for row, t in zip(cosines, keys, strict=True)])
    places = desk.get_refs({key for key in keys.ravel().tolist() if key >= 0})
    matches: dict[str, list[_EquationPair]] = defaultdict(list)
    for ours, (row, found, base) in enumerate(zip(cosines.tolist(), keys.tolist(), baseline.tolist(), strict=True)):
        for cosine, key in zip(row, found, strict=True):
            if key in places and cosine > base:
                matches[places[key].paper].append(_EquationPair(cosine - base, cosine, ours, key))
    most = float(np.sort(1 - baseline)[::-1][:_SCORED_PAIRS].sum())
    ranked = sorted(
        ((_select_pairs(found), paper) for paper, found in matches.items()), key=lambda p: (-_sum_gains(p[0]), p[1])
    )
    known = desk.get_papers(paper for _, paper in ranked[:k])
    return _build_paper_hits(
        desk, subject, [(known[paper], best) for best, paper in ranked[:k] if paper in known], most
    )


def _select_pairs(matches: Iterable[_EquationPair]) -> list[_EquationPair]:
    """The matches of one paper that count: each equation of either side once, those that say most first."""
    ours: set[int] = set()
    theirs: set[int] = set()
    best: list[_EquationPair] = []
    for match in sorted(matches, key=lambda m: (-m.gain, m.ours, m.theirs)):
        if match.ours not in ours and match.theirs not in theirs:
            ours.add(match.ours)
            theirs.add(match.theirs)
            best.append(match)
            if len(best) == _SCORED_PAIRS:
                break
    return best


def _sum_gains(matches: Iterable[_EquationPair]) -> float:
    return sum(match.gain for match in matches)


def _build_paper_hits(
    desk: Snapshot, subject: QueryPaper, ranked: list[tuple[PaperRecord, list[_EquationPair]]], most: float
) -> list[PaperHit]:
    keys = {match.theirs for _, best in ranked for match in best[:_SHOWN_PAIRS]}
    ours = {match.ours for _, best in ranked for match in best[:_SHOWN_PAIRS]}
    keys |= {key for key in (subject.equations[i] for i in ours) if isinstance(key, int)}
    found = desk.get_records(sorted(keys))
    hits = []
    for paper, best in ranked:
        pairs = []
        for match in best[:_SHOWN_PAIRS]:
            mine = subject.equations[match.ours]
            record = found.get(mine) if isinstance(mine, int) else mine
            if record is not None and match.theirs in found:
                pairs.append((record, found[match.theirs], match.cosine))
        hits.append(PaperHit(paper, min(_sum_gains(best) / most, 1.0) if most > 0 else 0.0, tuple(pairs)))
    return hits


def _drop_own_equations(cosines: Floats, keys: Keys, own: Keys, keep: int) -> tuple[Floats, Keys]:
    """Neighbours without the subject's own equations, the first `keep` of each row."""
    gone = (keys < 0) | np.isin(keys, own)
    order = np.argsort(gone, axis=1, kind="stable")[:, :keep]
    keys = np.where(gone, -1, keys)
    return np.take_along_axis(cosines, order, axis=1), np.take_along_axis(keys, order, axis=1)


def _thin_out(values: Keys) -> Keys:
    """At most as many as the limit says, evenly spread."""
    if len(values) <= LIMITS.draft_equations:
        return values
    return values[np.linspace(0, len(values) - 1, LIMITS.draft_equations).round().astype(np.int64)]


def _build_draft_records(extract: ParsedPaper, forest: Forest) -> list[EquationRecord]:
    paper = extract.paper
    record = PaperRecord(
        extract.key,
        extract.title,
        tuple(paper.authors) if paper else (),
        paper.year if paper else None,
        tuple(paper.fields) if paper else (),
        extract.origin,
    )
    equations = []
    for equation in extract.equations:
        if equation.tree >= 0:
            _, heading, latex = extract.sections[equation.section]
            before, after = records.read_context(latex, equation.mark)
            mathml = to_mathml(to_node(forest, equation.tree))
            name = f"{extract.key}#{equation.number}"
            equations.append(
                EquationRecord(name, -1, equation.latex, mathml, equation.label, heading, before, after, record)
            )
    return equations
