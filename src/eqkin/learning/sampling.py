"""Sampling of triplets: which equations count as related (paper, section 4.2).

Draw a paper, then one of its equations, the anchor. Draw one of three kinds of context with equal probability, and from
it a partner other than the anchor:

    section    another equation of the anchor's section
    paper      another equation of its paper
    citation   an equation of a paper that cites or is cited by the anchor's paper; this paper is drawn first

If there is none, draw everything again. So an anchor i of a paper with n equations and a kind k are drawn with
probability proportional to 1 / n if i has a partner of kind k, and 0 otherwise; drawing from this distribution directly
needs no loop. The negative is any equation of any paper, where the paper is drawn first.

Works may be balanced: then a paper is drawn with probability proportional to (papers of its work)^-balance, so that a
few large repositories or books do not dominate.

The recipe "eqkin" replaces negatives by structural neighbours: for each tree one of the nearest trees of other papers.
Random batches hardly contain two trees with much in common; with neighbours in them there is more to distinguish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.errors import BadInput
from eqkin.learning.config import CONTEXT_KINDS
from eqkin.learning.data import Corpus
from eqkin.learning.distributed import SINGLE_PROCESS, ProcessGroup
from eqkin.learning.losses import TERM_COLUMNS, TermTables
from eqkin.learning.randomness import RandomStream

STRUCTURAL_NEIGHBOURS = 16  # per tree
PROJECTION_DIMENSIONS = 512  # of a random projection that nearly preserves cosines
_DUPLICATE_COSINE = 0.97  # trees above it are nearly equal: nothing can be learned from the pair
_NOISE_COSINE = 0.15  # below it, the cosine may be an artefact of the projection
_MAX_CANDIDATES = {"cuda": 1 << 19, "cpu": 1 << 16}  # trees among which neighbours are searched
_BLOCK_TREES, _BLOCK_CANDIDATES = 2_048, 1 << 17  # compared at a time


@dataclass(frozen=True)
class Triplets:
    """Drawn equations as indices of trees, one row per step."""

    anchor: Tensor
    partner: Tensor
    negative: Tensor
    kind: Tensor  # index into CONTEXT_KINDS

    def concatenate(self) -> Tensor:
        """Return anchors, then partners, then negatives: (steps, 3 x batch)."""
        return torch.cat([self.anchor, self.partner, self.negative], dim=1)


class TripletSampler:
    """Draws triplets from a corpus, on the device that stores its tables.

    Args:
        kinds: The kinds of context to use.
        balance: 0: papers are equally likely; 1: works are equally likely.
        shares: Fraction of the triplets from each of some works, if it is in the corpus.

    Attributes:
        structural_neighbours: (trees, any number) those of each tree, which replace random negatives; or None.

    Raises:
        BadInput: No equation has a partner of any of these kinds.
    """

    structural_neighbours: Tensor | None = None

    def __init__(
        self,
        corpus: Corpus,
        *,
        kinds: tuple[str, ...],
        seed: int,
        device: torch.device,
        balance: float = 0.0,
        shares: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.device = device
        papers, trees = len(corpus.papers), len(corpus)
        paper_start = np.searchsorted(corpus.paper, np.arange(papers + 1))
        section_start = np.searchsorted(corpus.section, np.arange(int(corpus.section.max(initial=-1)) + 2))
        in_paper = np.diff(paper_start)[corpus.paper]
        in_section = np.diff(section_start)[corpus.section]
        # the papers that cite or are cited by each paper, one after the other, and where each paper's begin
        both = np.concatenate([corpus.citations, corpus.citations[:, ::-1]]).astype(np.int64).reshape(-1, 2)
        both = np.unique(both, axis=0)
        neighbours, neighbour_start = both[:, 1], np.searchsorted(both[:, 0], np.arange(papers + 1))
        possible = np.stack([in_section > 1, in_paper > 1, np.diff(neighbour_start)[corpus.paper] > 0])
        possible &= np.array([kind in kinds for kind in CONTEXT_KINDS])[:, None]
        if not possible.any():
            raise BadInput(
                f"no equation has a partner by {', '.join(kinds) or 'any kind of context'}: "
                "training needs papers with two or more equations"
            )
        weight = possible / in_paper
        if balance:
            _, work, size = np.unique(np.array(corpus.works, object), return_inverse=True, return_counts=True)
            weight *= (size[work].astype(np.float64) ** -balance)[corpus.paper]
        kinds_of_work = [*shares]  # and all other works
        group = np.array([kinds_of_work.index(w) if w in shares else len(shares) for w in corpus.works])[corpus.paper]
        total = np.bincount(group, weight.sum(0), minlength=len(shares) + 1)
        wanted = np.where(total[:-1] > 0, [*shares.values()], 0.0)
        weight *= (np.append(wanted, 1 - wanted.sum()) / np.maximum(total, 1e-300))[group]
        self.shares = dict(zip(CONTEXT_KINDS, (weight.sum(1) / weight.sum()).tolist(), strict=True))
        self.trees, self.papers = trees, papers
        self._cumulative_weight = self._put_on_device(np.cumsum(weight.ravel()))
        self._paper, self._section = self._put_on_device(corpus.paper), self._put_on_device(corpus.section)
        self._paper_start, self._section_start = self._put_on_device(paper_start), self._put_on_device(section_start)
        self._neighbours, self._neighbour_start = self._put_on_device(neighbours), self._put_on_device(neighbour_start)
        names = ("anchor", "partner", "cited", "paper", "negative", "kin")
        self._streams = {name: RandomStream(seed, name) for name in names}

    def _put_on_device(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)  # a copy: arrays of a file cannot be written

    def draw(self, steps: Tensor, batch: int) -> Triplets:
        """Draw the triplets of some steps, given as a column of step numbers."""
        index = torch.arange(batch, device=self.device)[None, :]
        target = self._streams["anchor"].draw_uniform(steps, index) * self._cumulative_weight[-1]
        drawn = torch.searchsorted(self._cumulative_weight, target, right=True)
        drawn = drawn.clamp(max=len(self._cumulative_weight) - 1)
        kind, anchor = drawn // self.trees, drawn % self.trees
        paper, section = self._paper[anchor].long(), self._section[anchor].long()
        start = torch.where(kind == 0, self._section_start[section], self._paper_start[paper])
        end = torch.where(kind == 0, self._section_start[section + 1], self._paper_start[paper + 1])
        partner = start + self._streams["partner"].draw_below((end - start - 1).clamp(min=1), steps, index)
        partner += (partner >= anchor).long()
        if len(self._neighbours):
            first, last = self._neighbour_start[paper], self._neighbour_start[paper + 1]
            chosen = first + self._streams["cited"].draw_below((last - first).clamp(min=1), steps, index)
            cited = self._neighbours[chosen.clamp(max=len(self._neighbours) - 1)]
            partner = torch.where(kind == 2, self._draw_from_papers(cited, "partner", steps, index), partner)
        if self.structural_neighbours is not None:
            chosen = self._streams["kin"].draw_below(self.structural_neighbours.shape[1], steps, index)
            return Triplets(anchor, partner, self.structural_neighbours[anchor, chosen].long(), kind)
        other_paper = self._streams["paper"].draw_below(self.papers, steps, index)
        return Triplets(anchor, partner, self._draw_from_papers(other_paper, "negative", steps, index), kind)

    def _draw_from_papers(self, paper: Tensor, stream: str, steps: Tensor, index: Tensor) -> Tensor:
        """Draw an equation of each paper."""
        start, end = self._paper_start[paper], self._paper_start[paper + 1]
        return start + self._streams[stream].draw_below(end - start, steps, index)


def find_structural_neighbours(
    terms: TermTables,
    paper: Tensor,
    group: ProcessGroup = SINGLE_PROCESS,
    block: tuple[int, int] = (_BLOCK_TREES, _BLOCK_CANDIDATES),
) -> Tensor:
    """Return the 16 nearest trees of each tree by the cosine of their terms, (trees, 16) int32.

    Trees of the same paper, near-duplicates and trees with nothing in common are excluded. If fewer than 16 remain, the
    nearest one is repeated; if none remains, the tree itself. The processes of the group divide the work; each gets the
    whole result.
    """
    device, count = paper.device, len(paper)
    vectors = _project(terms, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    stride = -(-count // _MAX_CANDIDATES[device.type])
    candidates = torch.arange(0, count, max(stride, 1), device=device)
    found = torch.zeros(count, STRUCTURAL_NEIGHBOURS, dtype=torch.int32, device=device)
    for start in range(group.rank * block[0], count, group.size * block[0]):
        here = torch.arange(start, min(start + block[0], count), device=device)
        best, neighbour = _find_nearest(vectors, paper, here, candidates.split(block[1]))
        neighbour = torch.where(best > _NOISE_COSINE, neighbour, neighbour[:, :1])
        found[here] = torch.where(best[:, :1] > _NOISE_COSINE, neighbour, here[:, None]).int()
    return group.all_reduce(found)


def _find_nearest(
    vectors: Tensor, paper: Tensor, here: Tensor, candidates: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Return cosines and numbers of the nearest candidates of some trees, nearest first; excluded ones have -1."""
    best = torch.full((len(here), STRUCTURAL_NEIGHBOURS), -1.0, device=here.device)
    neighbour = here[:, None].expand(-1, STRUCTURAL_NEIGHBOURS)
    for part in candidates:
        cosines = (vectors[here] @ vectors[part].T).float()
        excluded = (paper[here][:, None] == paper[part]) | (cosines > _DUPLICATE_COSINE)
        cosines = torch.cat([best, cosines.masked_fill_(excluded, -1.0)], dim=1)
        best, order = cosines.topk(STRUCTURAL_NEIGHBOURS, dim=1)
        before = neighbour.gather(1, order.clamp(max=STRUCTURAL_NEIGHBOURS - 1))
        new = part[(order - STRUCTURAL_NEIGHBOURS).clamp(min=0)]
        neighbour = torch.where(order < STRUCTURAL_NEIGHBOURS, before, new)
    return best, neighbour


def _project(terms: TermTables, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Project term vectors with random signs, which nearly preserves cosines, and scale them to length 1."""
    dimensions = PROJECTION_DIMENSIONS
    cells = torch.arange(TERM_COLUMNS * dimensions, device=device).view(TERM_COLUMNS, dimensions)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    signs = (RandomStream(0, "signs").draw_below(2, zero, cells) * 2 - 1).to(dtype)
    vectors = torch.empty(len(terms), dimensions, dtype=dtype, device=device)
    for here in torch.arange(len(terms), device=device).split(_BLOCK_TREES):
        projected = (terms.to_dense(here, dtype) @ signs).float()
        vectors[here] = torch.nn.functional.normalize(projected, dim=1).to(dtype)
    return vectors
