r"""Related papers: every equation of one paper searches for its nearest neighbours in all others.

A match of equation $i$ counts by how much nearer it is than the equation's $K$-th neighbour in the library,

$$ s_{ij} - b_i, \qquad b_i = \text{cosine to the } K\text{-th neighbour}, $$

so that an equation which looks like hundreds of others (`x = 0`) counts little, however well it matches. Of a paper the
ten best matches count, each equation of either side once; its score is their sum, divided by the largest sum that ten
equations of the query could have reached, $\sum_i (1 - b_i)$.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import NodeColumns, to_mathml
from eqkin.library.records import SectionProse
from eqkin.limits import LIMITS, check_cancelled
from eqkin.search.backend import EquationRef, Floats, Keys, Snapshot
from eqkin.search.results import EquationRecord, PaperHit, PaperRecord

if TYPE_CHECKING:
    from eqkin.library.parsing import ParsedPaper

_MAX_NEIGHBOURS = 100  # K, in a large library
_EQUATIONS_PER_NEIGHBOUR = 20  # in a small library: K is one neighbour per this many equations
_SCORED_PAIRS = 10  # of a paper
_SHOWN_PAIRS = 5  # of them, as evidence
LARGEST_GAINS = 2_000  # pairs by which papers are chosen
CHOSEN_PAPERS = 50  # whose other pairs count as well


@dataclass(frozen=True, kw_only=True)
class QueryPaper:
    """The paper that others are compared with."""

    keys: frozenset[str]  # papers of the collection that are not hits
    vectors: Floats
    equations: list[int] | list[EquationRecord]  # keys in the collection, or a draft's records


@dataclass(frozen=True)
class _EquationPair:
    gain: float  # cosine above the baseline
    cosine: float
    ours: int  # number of the query's equation
    theirs: int  # key


def load_query_paper(snapshot: Snapshot, key: str, most: int = LIMITS.draft_equations) -> QueryPaper:
    """Return a paper of the collection, with at most `most` of its equations.

    Raises:
        BadInput: it does not exist, or none of its equations has a vector.
    """
    if key not in snapshot.get_papers([key]):
        raise BadInput(f"the library has no paper {key[:200]!r}")
    equations = _thin_out(snapshot.list_keys([key]), most)
    if not len(equations):
        raise BadInput(f"{key}: none of its equations can be searched for; if it was added recently, run `eqkin index`")
    return QueryPaper(keys=frozenset({key}), vectors=snapshot.get_vectors(equations), equations=equations.tolist())


def read_draft(source: str, encoder: Encoder) -> QueryPaper:
    """Read a draft, of one or several files, without adding it.

    Raises:
        BadInput: it cannot be read, or has no equations.
    """
    # Readers are slow to import, and a search needs none.
    from eqkin.library.parsing import parse_item
    from eqkin.sources.readers import open_source

    forests: list[Forest] = []
    equations: list[EquationRecord] = []
    keys: set[str] = set()
    problems: list[str] = []
    for item in open_source(source):
        parsed = parse_item(item, "", "displays")
        # A draft that was given up looks like one that cannot be read.
        check_cancelled()
        keys.add(parsed.key)
        if parsed.forest is None:
            problems.append(parsed.message)
            continue
        trees, records = _build_draft_records(parsed, parsed.forest, LIMITS.draft_equations)
        forests.append(parsed.forest.select(trees))
        equations.extend(records)
        if len(equations) >= LIMITS.draft_equations:
            break
    if not equations:
        reason = problems[0] if problems else "it has no equations that can be read"
        raise BadInput(reason if source in reason else f"{source}: {reason}")
    chosen = _thin_out(np.arange(len(equations)), LIMITS.draft_equations)
    vectors = encoder.embed(Forest.concatenate(forests).select(chosen))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return QueryPaper(keys=frozenset(keys), vectors=vectors, equations=[equations[at] for at in chosen.tolist()])


def find_related_papers(snapshot: Snapshot, query: QueryPaper, k: int) -> list[PaperHit]:
    """Find the papers whose equations are nearest to those of the query, best first."""
    neighbours = max(2, min(_MAX_NEIGHBOURS, len(snapshot) // _EQUATIONS_PER_NEIGHBOUR))
    own = snapshot.list_keys(query.keys)
    # The query's own equations are among its neighbours: ask for so many that enough others remain.
    wanted = min(neighbours + len(own), 2 * neighbours + 100)
    cosines, keys = snapshot.search_vectors(query.vectors, wanted)
    is_own = (keys < 0) | np.isin(keys, own)
    others_first = np.argsort(is_own, axis=1, kind="stable")[:, :neighbours]
    cosines = np.take_along_axis(cosines, others_first, axis=1)
    keys = np.take_along_axis(np.where(is_own, -1, keys), others_first, axis=1)
    # The last neighbour of each equation is its baseline; without neighbours, nothing gains.
    baseline = np.array([row[t >= 0][-1] if (t >= 0).any() else 1.0 for row, t in zip(cosines, keys, strict=True)])
    gains = np.where(keys >= 0, cosines - baseline[:, None], 0)
    pairs = _collect_pairs(snapshot, cosines, keys, gains, k)
    best = {paper: _select_pairs(found) for paper, found in pairs.items()}
    scores = {paper: sum(pair.gain for pair in chosen) for paper, chosen in best.items()}
    most = float(np.sort(1 - baseline)[::-1][:_SCORED_PAIRS].sum())
    ranked = sorted(best, key=lambda paper: (-scores[paper], paper))[:k]
    papers = snapshot.get_papers(ranked)
    shown = [(papers[paper], best[paper][:_SHOWN_PAIRS]) for paper in ranked if paper in papers]
    evidence = _load_evidence(snapshot, query, shown)
    return [
        PaperHit(paper=paper, score=min(scores[paper.key] / most, 1.0) if most > 0 else 0.0, pairs=found)
        for (paper, _), found in zip(shown, evidence, strict=True)
    ]


def _collect_pairs(
    snapshot: Snapshot, cosines: Floats, keys: Keys, gains: Floats, k: int
) -> dict[str, list[_EquationPair]]:
    """Collect the pairs of the papers that may be among the best k.

    Most pairs gain next to nothing, and it takes time to look up the paper of an equation. So papers are chosen by the
    pairs with the largest gains; then all pairs of these papers count.
    """
    refs: dict[int, EquationRef] = {}

    def group(places: Keys) -> dict[str, list[_EquationPair]]:
        pairs: dict[str, list[_EquationPair]] = defaultdict(list)
        values = [column.ravel()[places].tolist() for column in (gains, cosines, keys)]
        refs.update(snapshot.get_refs(set(values[2]) - refs.keys()))
        for gain, cosine, ours, key in zip(*values[:2], (places // keys.shape[1]).tolist(), values[2], strict=True):
            if key in refs:
                pairs[refs[key].paper].append(_EquationPair(gain=gain, cosine=cosine, ours=ours, theirs=key))
        return pairs

    places = np.flatnonzero(gains > 0)
    largest = places[np.argsort(-gains.ravel()[places], kind="stable")[:LARGEST_GAINS]]
    pairs = group(largest)
    if len(largest) == len(places):
        return pairs
    sums = {paper: sum(pair.gain for pair in _select_pairs(found)) for paper, found in pairs.items()}
    chosen = sorted(sums, key=lambda paper: (-sums[paper], paper))[: max(k, CHOSEN_PAPERS)]
    return group(places[np.isin(keys.ravel()[places], snapshot.list_keys(chosen))])


def _select_pairs(pairs: Iterable[_EquationPair]) -> list[_EquationPair]:
    """Choose the pairs of one paper that count: each equation of either side once, largest gain first."""
    ours: set[int] = set()
    theirs: set[int] = set()
    best: list[_EquationPair] = []
    for pair in sorted(pairs, key=lambda p: (-p.gain, p.ours, p.theirs)):
        if pair.ours not in ours and pair.theirs not in theirs:
            ours.add(pair.ours)
            theirs.add(pair.theirs)
            best.append(pair)
            if len(best) == _SCORED_PAIRS:
                break
    return best


def _load_evidence(
    snapshot: Snapshot, query: QueryPaper, shown: Sequence[tuple[PaperRecord, list[_EquationPair]]]
) -> list[tuple[tuple[EquationRecord, EquationRecord, float], ...]]:
    """Read the equations of pairs that are shown; pairs of equations that are gone are left out."""
    every = [pair for _, pairs in shown for pair in pairs]
    # A draft's own equations are records already; those of a stored paper are keys.
    mine = {pair.ours: query.equations[pair.ours] for pair in every}
    keys = {pair.theirs for pair in every} | {key for key in mine.values() if isinstance(key, int)}
    records = snapshot.get_records(sorted(keys))
    evidence = []
    for _, pairs in shown:
        found = []
        for pair in pairs:
            own = mine[pair.ours]
            record = records.get(own) if isinstance(own, int) else own
            if record is not None and pair.theirs in records:
                found.append((record, records[pair.theirs], pair.cosine))
        evidence.append(tuple(found))
    return evidence


def _thin_out(values: Keys, most: int) -> Keys:
    """Return at most `most` values, evenly spaced."""
    return values if len(values) <= most else values[np.linspace(0, len(values) - 1, most).round().astype(np.int64)]


def _build_draft_records(parsed: ParsedPaper, forest: Forest, most: int) -> tuple[list[int], list[EquationRecord]]:
    """Return the trees and records of at most `most` equations of a draft, evenly spaced."""
    paper = parsed.paper
    record = PaperRecord(
        key=parsed.key,
        title=parsed.title,
        authors=tuple(paper.authors) if paper else (),
        year=paper.year if paper else None,
        fields=tuple(paper.fields) if paper else (),
        origin=parsed.origin,
    )
    sections = [(heading, SectionProse(latex)) for _, heading, latex in parsed.sections]
    readable = [equation for equation in parsed.equations if equation.tree >= 0]
    chosen = [readable[at] for at in _thin_out(np.arange(len(readable)), most).tolist()]
    equations = []
    for equation in chosen:
        heading, prose = sections[equation.section]
        before, after = prose.read_context(equation.mark)
        mathml = to_mathml(NodeColumns.read(forest, equation.tree))
        draft = EquationRecord(
            id=f"{parsed.key}#{equation.number}",
            tree=-1,
            latex=equation.latex,
            mathml=mathml,
            label=equation.label,
            section=heading,
            before=before,
            after=after,
            paper=record,
        )
        equations.append(draft)
    return [equation.tree for equation in chosen], equations
