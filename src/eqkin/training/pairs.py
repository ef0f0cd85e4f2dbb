"""Which equations are called related (paper, section 4.2).

Draw a paper, then one of its equations, the anchor. Draw one of three kinds of context with equal chance and from it a
partner, never the anchor itself:

    section    another equation of the anchor's section
    paper      another equation of its paper
    citation   an equation of a paper that cites or is cited by the anchor's paper, that paper drawn first

Where there is none, everything is drawn anew. So an anchor i of a paper with n equations and a kind k come up with
probability proportional to 1 / n, if i has a partner of kind k, and 0 if not: drawing from that distribution directly
needs no loop. The negative is any equation of any paper, the paper drawn first.

Works may be balanced: a paper then comes up with a probability proportional to (papers of its work)^-balance, so that
a few large repositories or books are not most of what is learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.errors import BadInput
from eqkin.training.corpus import Corpus
from eqkin.training.randomness import RandomStream
from eqkin.trees.forest import Array

CONTEXT_KINDS = ("section", "paper", "citation")


@dataclass(frozen=True)
class Triplets:
    """Drawn equations, as indices of trees; one row a step."""

    anchor: Tensor
    partner: Tensor
    negative: Tensor
    kind: Tensor  # index into KINDS

    def concatenate(self) -> Tensor:
        """(steps, 3 x batch): anchors, then partners, then negatives."""
        return torch.cat([self.anchor, self.partner, self.negative], dim=1)


class TripletSampler:
    """Draws triplets from a corpus, on the device where its tables lie.

    Args:
        corpus: What to draw from.
        kinds: The kinds of context to use.
        seed: Same seed, same step: same triplets.
        device: Where to draw.
        balance: 0 for papers with equal chance, 1 for works with equal chance.

    Raises:
        BadInput: No equation has a partner of any of these kinds.
    """

    def __init__(
        self, corpus: Corpus, *, kinds: tuple[str, ...], seed: int, device: torch.device, balance: float = 0.0
    ) -> None:
        self.device = device
        papers, trees = len(corpus.papers), len(corpus)
        paper_start = np.searchsorted(corpus.paper, np.arange(papers + 1))
        section_start = np.searchsorted(corpus.section, np.arange(int(corpus.section.max(initial=-1)) + 2))
        in_paper = np.diff(paper_start)[corpus.paper]
        in_section = np.diff(section_start)[corpus.section]
        neighbours, neighbour_start = _find_citation_neighbours(corpus.citations, papers)
        possible = np.stack([in_section > 1, in_paper > 1, np.diff(neighbour_start)[corpus.paper] > 0])
        possible &= np.array([kind in kinds for kind in CONTEXT_KINDS])[:, None]
        if not possible.any():
            raise BadInput(
                f"no equation has a partner by {', '.join(kinds) or 'any kind of context'}: "
                "learning needs papers with two or more equations"
            )
        weight = possible / in_paper
        if balance:
            _, work, size = np.unique(np.array(corpus.works, object), return_inverse=True, return_counts=True)
            weight *= (size[work].astype(np.float64) ** -balance)[corpus.paper]
        self.shares = dict(zip(CONTEXT_KINDS, (weight.sum(1) / weight.sum()).tolist(), strict=True))
        self.trees, self.papers = trees, papers
        self._chance = self._put_on_device(np.cumsum(weight.ravel()))
        self._paper, self._section = self._put_on_device(corpus.paper), self._put_on_device(corpus.section)
        self._paper_start, self._section_start = self._put_on_device(paper_start), self._put_on_device(section_start)
        self._neighbours, self._neighbour_start = self._put_on_device(neighbours), self._put_on_device(neighbour_start)
        names = ("anchor", "partner", "cited", "paper", "negative")
        self._streams = {name: RandomStream(seed, name) for name in names}

    @property
    def bytes(self) -> int:
        """Bytes of the tables."""
        tables = (t for t in vars(self).values() if isinstance(t, Tensor))
        return sum(table.numel() * table.element_size() for table in tables)

    def _put_on_device(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def draw(self, steps: Tensor, batch: int) -> Triplets:
        """Triplets of some steps, given as a column of step numbers."""
        index = torch.arange(batch, device=self.device)[None, :]
        target = self._streams["anchor"].draw_uniform(steps, index) * self._chance[-1]
        drawn = torch.searchsorted(self._chance, target, right=True).clamp(max=len(self._chance) - 1)
        kind, anchor = drawn // self.trees, drawn % self.trees
        paper, section = self._paper[anchor].long(), self._section[anchor].long()
        start = torch.where(kind == 0, self._section_start[section], self._paper_start[paper])
        end = torch.where(kind == 0, self._section_start[section + 1], self._paper_start[paper + 1])
        partner = start + self._streams["partner"].draw_below((end - start - 1).clamp(min=1), steps, index)
        partner += (partner >= anchor).long()
        if len(self._neighbours):
            partner = torch.where(kind == 2, self._draw_cited(paper, steps, index), partner)
        elsewhere = self._streams["paper"].draw_below(self.papers, steps, index)
        return Triplets(anchor, partner, self._draw_from_papers(elsewhere, "negative", steps, index), kind)

    def _draw_cited(self, paper: Tensor, steps: Tensor, index: Tensor) -> Tensor:
        start, end = self._neighbour_start[paper], self._neighbour_start[paper + 1]
        chosen = start + self._streams["cited"].draw_below((end - start).clamp(min=1), steps, index)
        return self._draw_from_papers(
            self._neighbours[chosen.clamp(max=len(self._neighbours) - 1)], "partner", steps, index
        )

    def _draw_from_papers(self, paper: Tensor, name: str, steps: Tensor, index: Tensor) -> Tensor:
        """Any equation of each paper."""
        start, end = self._paper_start[paper], self._paper_start[paper + 1]
        return start + self._streams[name].draw_below(end - start, steps, index)


def _find_citation_neighbours(citations: Array, papers: int) -> tuple[Array, Array]:
    """Papers that cite or are cited by each paper, one after the other, and where each paper's begin."""
    both = np.concatenate([citations, citations[:, ::-1]]).astype(np.int64).reshape(-1, 2)
    both = np.unique(both, axis=0)
    return both[:, 1], np.searchsorted(both[:, 0], np.arange(papers + 1))
