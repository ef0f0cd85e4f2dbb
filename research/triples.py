r"""Held-out triples of equations, how networks rank them, and how sure the score is (paper, section 5).

A triple is an anchor, a partner of its section or paper or along a citation, and a negative of any paper, or of a paper
of the anchor's field. It is correct if the anchor is more similar to its partner. The histogram loss is a U-statistic
of the same triples:

$$ V_{hist} = \sum_{r} \sum_{r' \le r} \delta_{r'}(s^+) \delta_r(s^-) $$

Equations of one work (a book, a repository) depend on each other: works are coloured and resampled, not papers.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.errors import BadInput
from eqkin.learning.config import CONTEXT_KINDS
from eqkin.learning.data import Corpus
from eqkin.learning.losses import HISTOGRAM_NODES
from eqkin.learning.randomness import make_step_column
from eqkin.learning.sampling import Triplets, TripletSampler
from eqkin.statistics import (
    Score,
    compute_incomplete_interval,
    compute_percentile_interval,
    count_colours,
    draw_bootstrap_weights,
)

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]

TRIPLE_SEED = 0


class FieldSampler(TripletSampler):
    """Draws negatives from papers of the anchor's field; `fields` has the number of each paper's field."""

    def __init__(self, corpus: Corpus, fields: Integers, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        order = np.argsort(fields, kind="stable")
        self._field, self._by_field = self._put_on_device(fields), self._put_on_device(order)
        starts = np.searchsorted(fields[order], np.arange(int(fields.max(initial=0)) + 2))
        self._field_start = self._put_on_device(starts)

    def draw(self, steps: Tensor, batch: int) -> Triplets:
        """Draw the triplets of some steps, given as a column of step numbers."""
        drawn = super().draw(steps, batch)
        index = torch.arange(batch, device=self.device)[None, :]
        field = self._field[self._paper[drawn.anchor].long()]
        start, end = self._field_start[field], self._field_start[field + 1]
        paper = self._by_field[start + self._streams["paper"].draw_below(end - start, steps, index)]
        return replace(drawn, negative=self._draw_from_papers(paper, "negative", steps, index))


class FixedSampler:
    """Draws the same `count` triplets in every epoch, each time in another order."""

    def __init__(self, sampler: TripletSampler, count: int, epochs: int, seed: int) -> None:
        drawn = sampler.draw(make_step_column(0, 1, sampler.device), count)
        self.shares = sampler.shares
        self._triplets = Triplets(*(part[0] for part in (drawn.anchor, drawn.partner, drawn.negative, drawn.kind)))
        orders = [np.random.default_rng([seed, epoch]).permutation(count).astype(np.int32) for epoch in range(epochs)]
        self._order = torch.from_numpy(np.concatenate(orders)).to(sampler.device)

    def draw(self, steps: Tensor, batch: int) -> Triplets:
        """Draw the triplets of some steps, given as a column of step numbers."""
        place = steps * batch + torch.arange(batch, device=self._order.device)
        chosen = self._order[place.clamp(max=len(self._order) - 1)].long()
        parts = (self._triplets.anchor, self._triplets.partner, self._triplets.negative, self._triplets.kind)
        return Triplets(*(part[chosen] for part in parts))


class HeldOutTriples:
    """`count` triples of a corpus, always the same; raises `BadInput` without any.

    Args:
        corpus: The held-out papers.
        count: Number of triples.
        fields: The number of each paper's field, if negatives are to be of the anchor's field.
        contexts: The kinds of context.
        papers: The papers to draw from; by default all.
    """

    def __init__(
        self,
        corpus: Corpus,
        count: int,
        fields: Integers | None = None,
        contexts: tuple[str, ...] = CONTEXT_KINDS,
        papers: Flags | None = None,
    ) -> None:
        if count < 1 or not len(corpus):
            raise BadInput("there are no held-out triples to rank: add more papers")
        settings: dict[str, Any] = {"kinds": contexts, "seed": TRIPLE_SEED, "device": torch.device("cpu")}
        rows, some = np.arange(len(corpus)), corpus
        if papers is not None:
            rows, some = np.flatnonzero(papers[corpus.paper]), corpus.select(np.flatnonzero(papers))
            fields = fields if fields is None else fields[papers]
        sampler = TripletSampler(some, **settings) if fields is None else FieldSampler(some, fields, **settings)
        drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), count)
        self.trees: Integers = rows[drawn.concatenate().view(3, count).numpy()]
        self.kind: Integers = drawn.kind[0].numpy()
        self.papers: Integers = corpus.paper[self.trees].T.astype(np.int64)  # (count, 3)
        works = np.unique(np.array(corpus.works, object), return_inverse=True)[1][self.papers]
        self.works = np.unique(works, return_inverse=True)[1].reshape(count, 3)  # numbered without gaps
        self.work_count, self.paper_count = int(self.works.max()) + 1, len(np.unique(self.papers))
        self.shares_identifier = find_shared_identifiers(corpus, self.trees[0], self.trees[1])
        self.key = {
            "corpus": some.digest, "triples": count, "seed": TRIPLE_SEED, "contexts": list(contexts),
            "negatives": "any" if fields is None else "field",
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self.papers)

    def compute_similarities(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Compute the inner products of anchors with partners and with negatives, given vectors of all trees."""
        anchor, partner, negative = (vectors[trees].astype(np.float32) for trees in self.trees)
        return (anchor * partner).sum(axis=1), (anchor * negative).sum(axis=1)

    def find_correct(self, vectors: Floats) -> Flags:
        """Return which triples are ranked correctly; ties are wrong."""
        positive, negative = self.compute_similarities(vectors)
        return np.asarray(positive > negative)

    def compute_histogram_kernel(self, vectors: Floats) -> npt.NDArray[np.float64]:
        """Compute V_hist of each triple, in [0, 1]."""
        nodes, total = [], np.zeros(len(self))
        for similarity in self.compute_similarities(vectors):
            place = (np.clip(similarity.astype(np.float64), -1, 1) + 1) * (HISTOGRAM_NODES - 1) / 2
            left = np.minimum(np.floor(place), HISTOGRAM_NODES - 2)
            nodes.append([(left, 1 - (place - left)), (left + 1, place - left)])
        for below, mass in nodes[0]:
            for node, other in nodes[1]:
                total += mass * other * (below <= node)
        return total

    def compute_bound(self, share: float, *, by_work: bool = True) -> tuple[Score, int]:
        """Compute the interval of an incomplete U-statistic around a share, and the colours it needs."""
        colours = count_colours(self.works if by_work else self.papers)
        return compute_incomplete_interval(share, colours, len(self)), colours

    def compute_score(self, values: Floats, resamples: int, chosen: Flags | None = None) -> Score:
        """Compute the mean over the triples, or the chosen ones, with its interval by bootstrap over works."""
        chosen = np.ones(len(self), bool) if chosen is None else chosen
        if not chosen.any():
            return Score(math.nan)
        mean = float(values[chosen].mean())
        if self.work_count < 2:
            return Score(mean)
        weights = draw_bootstrap_weights(self.work_count, resamples, 0)
        return Score(mean, *compute_percentile_interval(self.resample(values, weights, chosen)))

    def resample(self, values: Floats, weights: Floats, chosen: Flags | None = None) -> npt.NDArray[np.float64]:
        """Compute means of values over the triples, one for each row of weights of works, (resamples, works).

        A triple counts as often as its works were drawn together. NaN if no triple counts.
        """
        anchor, partner, negative = (self.works if chosen is None else self.works[chosen]).T
        values = values if chosen is None else values[chosen]
        size = self.work_count
        if (partner != anchor).any():
            cited, other = partner != anchor, (negative != anchor) & (negative != partner)
            means = []
            for row in weights:
                weight = row[anchor] * np.where(cited, row[partner], 1) * np.where(other, row[negative], 1)
                total = float(weight.sum())
                means.append(float(weight @ values) / total if total else math.nan)
            return np.array(means)
        pair = anchor * size + negative

        def compute_sums(numbers: Floats) -> npt.NDArray[np.float64]:
            table = np.bincount(pair, numbers, size * size).reshape(size, size)
            own = np.diag(table).copy()  # anchor and negative of one work count once
            np.fill_diagonal(table, 0)
            return np.asarray(((weights @ table) * weights).sum(axis=1) + weights @ own, np.float64)

        totals = compute_sums(np.ones(len(pair)))
        return np.where(totals > 0, compute_sums(values.astype(np.float64)) / np.maximum(totals, 1e-9), math.nan)


def find_shared_identifiers(corpus: Corpus, trees: Integers, others: Integers) -> Flags:
    """Return which pairs of trees have an identifier (`<mi>`) in common."""
    forest = corpus.forest
    identifier = np.array([tag == "mi" for tag in forest.tags], bool)[forest.tag]
    texts, ends = np.where(identifier, forest.text.astype(np.int64), -1), forest.offsets

    def collect(tree: int) -> set[int]:
        return set(texts[ends[tree] : ends[tree + 1]].tolist()) - {-1}

    sets = {tree: collect(tree) for tree in np.unique(np.concatenate([trees, others])).tolist()}
    return np.array([not sets[a].isdisjoint(sets[b]) for a, b in zip(trees.tolist(), others.tolist(), strict=True)])


def pack_bits(flags: Flags | Sequence[bool]) -> str:
    """Pack booleans into text."""
    return base64.b85encode(np.packbits(flags).tobytes()).decode()


def unpack_bits(text: str, count: int) -> Flags:
    """Unpack the text of `pack_bits`."""
    return np.unpackbits(np.frombuffer(base64.b85decode(text), np.uint8), count=count).astype(bool)
