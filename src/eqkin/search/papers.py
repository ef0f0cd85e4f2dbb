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

from eqkin.errors import BadInput
from eqkin.forest import ForestBuilder
from eqkin.forest.storage import from_bytes
from eqkin.library.reading import Extract, read_item
from eqkin.limits import LIMITS
from eqkin.mathml.tree import node_of, to_mathml
from eqkin.network.encoder import Encoder
from eqkin.search import records
from eqkin.search.results import EquationRecord, PaperHit, PaperRecord
from eqkin.search.store import Desk, Floats, Keys
from eqkin.sources import open_source

_NEIGHBOURS = 100  # K, in a library of some size
_SHARE = 20  # in a small one, one neighbour in so many equations
_PAIRS = 10  # matches of a paper that count
_SHOWN = 5  # and are given as evidence


@dataclass(frozen=True)
class Subject:
    """The paper that others are compared with."""

    keys: frozenset[str]  # papers of the collection that are not answers
    vectors: Floats
    equations: list[int] | list[EquationRecord]  # keys in the collection, or a draft's records


@dataclass(frozen=True)
class _Match:
    worth: float
    cosine: float
    ours: int  # among the subject's equations
    theirs: int  # key


def of_collection(desk: Desk, key: str) -> Subject:
    """A paper of the collection.

    Raises:
        BadInput: it is not there, or none of its equations has a vector.
    """
    if key not in desk.papers([key]):
        raise BadInput(f"the library has no paper {key[:200]!r}")
    equations = _thinned(desk.of_papers([key]))
    if not len(equations):
        raise BadInput(f"{key}: none of its equations can be searched for; if it was added lately, run `eqkin index`")
    return Subject(frozenset({key}), desk.vectors(equations), equations.tolist())


def of_draft(source: str, encoder: Encoder) -> Subject:
    """A draft, or several files of one, read but not added.

    Raises:
        BadInput: it cannot be read, or has no equations.
    """
    builder, equations, keys, problems = ForestBuilder(), list[EquationRecord](), set[str](), list[str]()
    for item in open_source(source):
        extract = read_item(item, "")
        keys.add(extract.key)
        if extract.failure:
            problems.append(extract.message)
            continue
        builder.add_forest(from_bytes(extract.forest))
        equations.extend(_draft_records(extract))
        if len(equations) > LIMITS.draft_equations:
            break
    if not equations:
        reason = problems[0] if problems else "no equations in it that could be read"
        raise BadInput(reason if source in reason else f"{source}: {reason}")
    chosen = _thinned(np.arange(len(equations)))
    vectors = encoder.embed(builder.build().select(chosen))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return Subject(frozenset(keys), vectors, [equations[i] for i in chosen.tolist()])


def related(desk: Desk, subject: Subject, k: int) -> list[PaperHit]:
    """The papers whose equations are nearest to the subject's, best first."""
    neighbours = max(2, min(_NEIGHBOURS, len(desk) // _SHARE))
    own = desk.of_papers(subject.keys)
    wanted = min(neighbours + len(own), 2 * neighbours + 100)
    cosines, keys = desk.nearest(subject.vectors, wanted)
    cosines, keys = _without(cosines, keys, own, neighbours)
    baseline = np.array([row[t >= 0][-1] if (t >= 0).any() else 1.0 for row, t in zip(cosines, keys, strict=True)])
    places = desk.places({key for key in keys.ravel().tolist() if key >= 0})
    matches: dict[str, list[_Match]] = defaultdict(list)
    for ours, (row, found, base) in enumerate(zip(cosines.tolist(), keys.tolist(), baseline.tolist(), strict=True)):
        for cosine, key in zip(row, found, strict=True):
            if key in places and cosine > base:
                matches[places[key].paper].append(_Match(cosine - base, cosine, ours, key))
    most = float(np.sort(1 - baseline)[::-1][:_PAIRS].sum())
    ranked = sorted(((_best(found), paper) for paper, found in matches.items()), key=lambda p: (-_sum(p[0]), p[1]))
    known = desk.papers(paper for _, paper in ranked[:k])
    return _hits(desk, subject, [(known[paper], best) for best, paper in ranked[:k] if paper in known], most)


def _best(matches: Iterable[_Match]) -> list[_Match]:
    """The matches of one paper that count: each equation of either side once, those that say most first."""
    ours: set[int] = set()
    theirs: set[int] = set()
    best: list[_Match] = []
    for match in sorted(matches, key=lambda m: (-m.worth, m.ours, m.theirs)):
        if match.ours not in ours and match.theirs not in theirs:
            ours.add(match.ours)
            theirs.add(match.theirs)
            best.append(match)
            if len(best) == _PAIRS:
                break
    return best


def _sum(matches: Iterable[_Match]) -> float:
    return sum(match.worth for match in matches)


def _hits(desk: Desk, subject: Subject, ranked: list[tuple[PaperRecord, list[_Match]]], most: float) -> list[PaperHit]:
    keys = {match.theirs for _, best in ranked for match in best[:_SHOWN]}
    ours = {match.ours for _, best in ranked for match in best[:_SHOWN]}
    keys |= {key for key in (subject.equations[i] for i in ours) if isinstance(key, int)}
    found = desk.records(sorted(keys))
    hits = []
    for paper, best in ranked:
        pairs = []
        for match in best[:_SHOWN]:
            mine = subject.equations[match.ours]
            record = found.get(mine) if isinstance(mine, int) else mine
            if record is not None and match.theirs in found:
                pairs.append((record, found[match.theirs], match.cosine))
        hits.append(PaperHit(paper, min(_sum(best) / most, 1.0) if most > 0 else 0.0, tuple(pairs)))
    return hits


def _without(cosines: Floats, keys: Keys, own: Keys, keep: int) -> tuple[Floats, Keys]:
    """Neighbours without the subject's own equations, the first `keep` of each row."""
    gone = (keys < 0) | np.isin(keys, own)
    order = np.argsort(gone, axis=1, kind="stable")[:, :keep]
    keys = np.where(gone, -1, keys)
    return np.take_along_axis(cosines, order, axis=1), np.take_along_axis(keys, order, axis=1)


def _thinned(values: Keys) -> Keys:
    """At most as many as the limit says, evenly spread."""
    if len(values) <= LIMITS.draft_equations:
        return values
    return values[np.linspace(0, len(values) - 1, LIMITS.draft_equations).round().astype(np.int64)]


def _draft_records(extract: Extract) -> list[EquationRecord]:
    forest = from_bytes(extract.forest)
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
            before, after = records.prose_around(latex, equation.mark)
            mathml = to_mathml(node_of(forest, equation.tree))
            name = f"{extract.key}#{equation.number}"
            equations.append(
                EquationRecord(name, -1, equation.latex, mathml, equation.label, heading, before, after, record)
            )
    return equations
