"""Pairs of sides made ready for an experiment: one half to learn from, with a part to choose on, one half to test on.

All pairs of a work (a book, a repository) are on the same side of every split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.sets.equalities import PAIR_SIGNS, NeighbouringSides, SidePairs
from eqkin.training.data import Corpus

Integers = npt.NDArray[np.int64]

TEST_FRACTION = 0.5  # share of the pairs
VALIDATION_FRACTION = 0.1  # share of the rest, to choose on
SPLIT_SEED = 0  # of both splits


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of sides, and who is for what."""

    name: str
    pairs: SidePairs
    work: Integers  # (pairs,) number of the work each comes from
    train: Integers  # numbers of pairs
    validation: Integers
    test: Integers

    @classmethod
    def split(
        cls,
        corpus: Corpus,
        name: str,
        most: int,
        test: float = TEST_FRACTION,
        neighbours: NeighbouringSides | None = None,
    ) -> PairSet:
        """The pairs of a corpus with the signs of one of `SETS`, `most` at most.

        Args:
            corpus: Where they come from.
            name: Of the set.
            most: How many.
            test: Share of the pairs to test on.
            neighbours: Those of the corpus, if they were read before.

        Raises:
            BadInput: There is no such set, or there are pairs of fewer than three works: none could be parted.
        """
        if name not in PAIR_SIGNS:
            raise BadInput(f"there is no set {name!r} of pairs; there are {', '.join(PAIR_SIGNS)}")
        pairs = (neighbours or NeighbouringSides.read(corpus.forest)).select_pairs(PAIR_SIGNS[name])
        if len(pairs) > most:
            pairs = pairs.select(np.linspace(0, len(pairs), most, endpoint=False).astype(np.int64))
        works = [corpus.works[paper] for paper in corpus.paper[pairs.origin].tolist()]
        if len(set(works)) < 3:
            raise BadInput(
                f"{name}: {len(pairs):,} pairs from {len(set(works))} works are too few to learn from some, choose on "
                "some and test on others; add papers of more works"
            )
        testing = split_by_work(works, test, f"test:{SPLIT_SEED}")
        rest = np.flatnonzero(~testing)
        checking = split_by_work([works[pair] for pair in rest.tolist()], VALIDATION_FRACTION, f"check:{SPLIT_SEED}")
        number = np.unique(np.array(works), return_inverse=True)[1].astype(np.int64)
        return cls(name, pairs, number, rest[~checking], rest[checking], np.flatnonzero(testing))

    def get_sides(self, pairs: Integers) -> Integers:
        """(n, 2) the trees of some pairs, left and right."""
        return np.stack([pairs, len(self.pairs) + pairs], axis=1)

    @property
    def test_pairs(self) -> SidePairs:
        """Those to test on."""
        return self.pairs.select(self.test)

    @property
    def clusters(self) -> Integers:
        """The work of each side to test on, left sides first."""
        return np.tile(self.work[self.test], 2)


def split_by_work(works: Sequence[str], share: float, seed: str) -> npt.NDArray[np.bool_]:
    """Which items are set apart: about a share of them, all of a work or none; at least one work, never all.

    Works are taken in an order that depends on the seed and their names alone; one that would be too much is passed
    over.
    """
    sizes = Counter(works)
    order = sorted(sizes, key=lambda work: sha256(f"{seed}:{work}".encode("utf-8", "surrogatepass")).digest())
    room = share * len(works)
    taken: set[str] = set()
    for work in order:
        if sizes[work] <= room and len(taken) + 1 < len(sizes):
            taken.add(work)
            room -= sizes[work]
    taken = taken or {min(order, key=sizes.__getitem__)}
    return np.array([work in taken for work in works], bool)
