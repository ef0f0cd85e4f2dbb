"""Held-out triples and the ranking score on them (paper, sections 5 and 6), for any system that gives vectors.

Triples are drawn from papers nobody learned from, as they are for learning: an anchor, a partner of its section or
paper or along a citation, and a negative. One is ranked right if the anchor is more similar to its partner.
"""

from __future__ import annotations

import base64
import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.results import Score
from eqkin.evaluation.systems.base import FormulaSet, Matrix, compute_row_products
from eqkin.statistics import compute_incomplete_interval, count_colours
from eqkin.training.data import Corpus

SEED = 0


class HeldOutTriples:
    """Triples of a corpus, always the same.

    Args:
        corpus: Papers that were kept apart.
        count: How many triples.

    Raises:
        BadInput: None can be drawn.
    """

    def __init__(self, corpus: Corpus, count: int) -> None:
        import torch

        from eqkin.training.config import CONTEXT_KINDS
        from eqkin.training.sampling import TripletSampler

        if count < 1 or not len(corpus):
            raise BadInput("there are no held-out triples to rank: add more papers")
        device = torch.device("cpu")
        sampler = TripletSampler(corpus, kinds=CONTEXT_KINDS, seed=SEED, device=device)
        drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), count).concatenate().view(3, count).numpy()
        self.trees, place = np.unique(drawn, return_inverse=True)
        self._place = place.reshape(3, count)
        self.papers: npt.NDArray[np.int64] = corpus.paper[drawn].T.astype(np.int64)  # (count, 3)
        works = np.unique(np.array(corpus.works, object), return_inverse=True)[1][self.papers]
        self.works = np.unique(works, return_inverse=True)[1].reshape(count, 3)  # numbers, of those that occur
        self.formulas = FormulaSet(corpus.forest.select(self.trees))  # those that occur, each once
        self.key = {"corpus": corpus.digest, "triples": count, "seed": SEED}

    def __len__(self) -> int:
        return len(self.papers)

    @cached_property
    def colours(self) -> int:
        """Colours that the triples need, so that no two of one colour share a paper."""
        return count_colours(self.papers)

    def find_correct(self, vectors: Matrix) -> npt.NDArray[np.bool_]:
        """Which triples are ranked right by the inner products of the formulas' vectors; ties are wrong."""
        anchor, partner, negative = (vectors[place] for place in self._place)
        return compute_row_products(anchor, partner) > compute_row_products(anchor, negative)

    def make_score(self, share: float) -> Score:
        """A share of triples that is right, with the interval of an incomplete U-statistic."""
        interval = compute_incomplete_interval(share, self.colours, len(self))
        return Score(interval.score, interval.low, interval.high)

    def resample(
        self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.floating[Any]]
    ) -> npt.NDArray[np.float64]:
        """Means of values over the triples, works weighted: one for each row of `weights` (resamples, works).

        Papers of one work (a book, a repository) depend on each other, so works are drawn again, not papers. A triple
        counts as often as the works it comes from were drawn together. NaN where no triple does.
        """
        anchor, partner, negative = self.works.T
        along = partner != anchor  # a citation
        across = (negative != anchor) & (negative != partner)
        means = []
        for row in weights:
            weight = row[anchor] * np.where(along, row[partner], 1) * np.where(across, row[negative], 1)
            total = float(weight.sum())
            means.append(float(weight @ values) / total if total else math.nan)
        return np.array(means)

    @property
    def work_count(self) -> int:
        """Works that occur."""
        return int(self.works.max()) + 1

    @property
    def paper_count(self) -> int:
        """Papers that occur."""
        return len(np.unique(self.papers))


def pack_bits(correct: npt.NDArray[np.bool_]) -> str:
    """Booleans as text."""
    return base64.b85encode(np.packbits(correct).tobytes()).decode()


def unpack_bits(text: str, count: int) -> npt.NDArray[np.bool_]:
    """What `packed` made text of."""
    return np.unpackbits(np.frombuffer(base64.b85decode(text), np.uint8), count=count).astype(bool)
