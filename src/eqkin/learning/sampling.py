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

Random numbers have no state: each is a hash of the seed, its purpose, the step and an index. So a resumed run draws the
same numbers, a batch can be drawn again for inspection, CPUs and GPUs draw the same, and nothing has to be saved.
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
from eqkin.formulas.hashing import GOLDEN, MULTIPLIERS, mix_bits
from eqkin.learning.data import Corpus
from eqkin.learning.text import COLUMNS, TermTables

CONTEXT_KINDS = ("section", "paper", "citation")
STRUCTURAL_NEIGHBOURS = 16
# A random projection to so many dimensions nearly preserves cosines.
PROJECTION_DIMENSIONS = 512
# Trees above it are nearly equal: nothing can be learned from the pair.
_DUPLICATE_COSINE = 0.97
# A cosine below it may be an artefact of the projection.
_NOISE_COSINE = 0.15
# Neighbours are searched among at most so many trees.
_MAX_CANDIDATES = {"cuda": 1 << 19, "cpu": 1 << 16}
# Compared at a time.
_BLOCK_TREES, _BLOCK_CANDIDATES = 2_048, 1 << 17


@dataclass(frozen=True)
class Triplets:
    """Drawn equations as indices of trees, one row per step."""

    anchor: Tensor
    partner: Tensor
    negative: Tensor
    # Index into CONTEXT_KINDS.
    kind: Tensor

    def concatenate(self) -> Tensor:
        """Return anchors, then partners, then negatives: (steps, 3 x batch)."""
        return torch.cat([self.anchor, self.partner, self.negative], dim=1)


class TripletSampler:
    """Draws triplets from a corpus, on the device that stores its tables.

    Args:
        corpus: What to draw from.
        seed: Determines the triplets of every step.
        device: Where to draw.
        balance: 0: papers are equally likely; 1: works are equally likely.
        shares: Fraction of the triplets from each of some works, if it is in the corpus.
        neighbours: (trees, any number) structural neighbours of each tree, which replace random negatives; or None.

    Raises:
        BadInput: No equation has a partner of any kind.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        seed: int,
        device: torch.device,
        balance: float = 0.0,
        shares: Mapping[str, float] = MappingProxyType({}),
        neighbours: Tensor | None = None,
    ) -> None:
        self.device, self._neighbours = device, neighbours
        self.trees, self.papers = len(corpus), len(corpus.papers)
        paper_start = np.searchsorted(corpus.paper, np.arange(self.papers + 1))
        section_start = np.searchsorted(corpus.section, np.arange(int(corpus.section.max(initial=-1)) + 2))
        # The papers that cite or are cited by each paper, one after the other, and where each paper's begin.
        both = np.concatenate([corpus.citations, corpus.citations[:, ::-1]]).astype(np.int64).reshape(-1, 2)
        both = np.unique(both, axis=0)
        cited_start = np.searchsorted(both[:, 0], np.arange(self.papers + 1))

        in_section = np.diff(section_start)[corpus.section]
        in_paper = np.diff(paper_start)[corpus.paper]
        in_cited = np.diff(cited_start)[corpus.paper]
        possible = np.stack([in_section > 1, in_paper > 1, in_cited > 0])
        if not possible.any():
            raise BadInput("no two equations share a section, a paper or a citation: add papers with several equations")
        _, work, size = np.unique(np.array(corpus.works, object), return_inverse=True, return_counts=True)
        weight = possible / in_paper * (size[work].astype(np.float64) ** -balance)[corpus.paper]
        weight = _give_shares(corpus, weight, shares)
        self.shares = dict(zip(CONTEXT_KINDS, (weight.sum(1) / weight.sum()).tolist(), strict=True))
        self._cumulative_weight = self._put_on_device(np.cumsum(weight.ravel()))
        self._paper, self._section = self._put_on_device(corpus.paper), self._put_on_device(corpus.section)
        self._paper_start, self._section_start = self._put_on_device(paper_start), self._put_on_device(section_start)
        self._cited, self._cited_start = self._put_on_device(both[:, 1]), self._put_on_device(cited_start)
        names = ("anchor", "partner", "cited", "paper", "negative", "kin")
        self._streams = {name: RandomStream(seed, name) for name in names}

    def _put_on_device(self, array: npt.NDArray[Any]) -> Tensor:
        # A copy, because arrays of a file cannot be written.
        return torch.from_numpy(np.array(array)).to(self.device)

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
        if len(self._cited):
            first, last = self._cited_start[paper], self._cited_start[paper + 1]
            chosen = first + self._streams["cited"].draw_below((last - first).clamp(min=1), steps, index)
            cited = self._cited[chosen.clamp(max=len(self._cited) - 1)]
            partner = torch.where(kind == 2, self._draw_from_papers(cited, "partner", steps, index), partner)
        if self._neighbours is None:
            other_paper = self._streams["paper"].draw_below(self.papers, steps, index)
            return Triplets(anchor, partner, self._draw_from_papers(other_paper, "negative", steps, index), kind)
        chosen = self._streams["kin"].draw_below(self._neighbours.shape[1], steps, index)
        return Triplets(anchor, partner, self._neighbours[anchor, chosen].long(), kind)

    def _draw_from_papers(self, paper: Tensor, stream: str, steps: Tensor, index: Tensor) -> Tensor:
        """Draw an equation of each paper."""
        start, end = self._paper_start[paper], self._paper_start[paper + 1]
        return start + self._streams[stream].draw_below(end - start, steps, index)


def _give_shares(corpus: Corpus, weight: npt.NDArray[Any], shares: Mapping[str, float]) -> npt.NDArray[Any]:
    """Scale the weights, (kinds, trees), so that some works have these shares of them and the others the rest."""
    names = [*shares]
    of_paper = [names.index(work) if work in shares else len(names) for work in corpus.works]
    group = np.array(of_paper)[corpus.paper]
    total = np.bincount(group, weight.sum(0), minlength=len(names) + 1)
    wanted = np.where(total[:-1] > 0, [*shares.values()], 0.0)
    wanted = np.append(wanted, 1 - wanted.sum())
    scaled: npt.NDArray[Any] = weight * (wanted / np.maximum(total, 1e-300))[group]
    return scaled


def find_structural_neighbours(
    terms: TermTables, paper: Tensor, block: tuple[int, int] = (_BLOCK_TREES, _BLOCK_CANDIDATES)
) -> Tensor:
    """Return the 16 nearest trees of each tree by the cosine of their terms, (trees, 16) int32.

    Trees of the same paper, near-duplicates and trees with nothing in common are excluded. If fewer than 16 remain, the
    nearest one is repeated; if none remains, the tree itself.
    """
    device, count = paper.device, len(paper)
    vectors = _project(terms, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    stride = max(-(-count // _MAX_CANDIDATES[device.type]), 1)
    candidates = torch.arange(0, count, stride, device=device)
    found = torch.zeros(count, STRUCTURAL_NEIGHBOURS, dtype=torch.int32, device=device)
    for here in torch.arange(count, device=device).split(block[0]):
        best = torch.full((len(here), STRUCTURAL_NEIGHBOURS), -1.0, device=device)
        neighbour = here[:, None].expand(-1, STRUCTURAL_NEIGHBOURS)
        for part in candidates.split(block[1]):
            cosines = (vectors[here] @ vectors[part].T).float()
            excluded = (paper[here][:, None] == paper[part]) | (cosines > _DUPLICATE_COSINE)
            # The best so far compete with this part of the candidates.
            together = torch.cat([best, cosines.masked_fill_(excluded, -1.0)], dim=1)
            best, order = together.topk(STRUCTURAL_NEIGHBOURS, dim=1)
            before = neighbour.gather(1, order.clamp(max=STRUCTURAL_NEIGHBOURS - 1))
            new = part[(order - STRUCTURAL_NEIGHBOURS).clamp(min=0)]
            neighbour = torch.where(order < STRUCTURAL_NEIGHBOURS, before, new)
        neighbour = torch.where(best > _NOISE_COSINE, neighbour, neighbour[:, :1])
        found[here] = torch.where(best[:, :1] > _NOISE_COSINE, neighbour, here[:, None]).int()
    return found


def _project(terms: TermTables, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Project term vectors with random signs, which nearly preserves cosines, and scale them to length 1."""
    dimensions = PROJECTION_DIMENSIONS
    cells = torch.arange(COLUMNS * dimensions, device=device).view(COLUMNS, dimensions)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    signs = (RandomStream(0, "signs").draw_below(2, zero, cells) * 2 - 1).to(dtype)
    vectors = torch.empty(len(terms), dimensions, dtype=dtype, device=device)
    for here in torch.arange(len(terms), device=device).split(_BLOCK_TREES):
        projected = (terms.to_dense(here, dtype) @ signs).float()
        vectors[here] = torch.nn.functional.normalize(projected, dim=1).to(dtype)
    return vectors


class RandomStream:
    """The random numbers for one purpose in runs with one seed; only the first 8 letters of `name` count."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = _to_signed(int.from_bytes(name.encode()[:8], "little") ^ (seed * GOLDEN))

    def draw_uniform(self, step: Tensor, index: Tensor) -> Tensor:
        """Return float64 numbers in [0, 1), one per pair of `step` and `index` (int64, broadcast)."""
        return (self._draw_bits(step, index) >> 10).double() * 2.0**-53

    def draw_below(self, bound: int | Tensor, step: Tensor, index: Tensor) -> Tensor:
        """Return int64 numbers in [0, bound); `bound` must be positive and far below 2^63."""
        return self._draw_bits(step, index) % bound

    def _draw_bits(self, step: Tensor, index: Tensor) -> Tensor:
        """Return 63 random bits each."""
        start = _mix(step * _SIGNED_MULTIPLIERS[0] + self._key)
        return _shift_right(_mix(_mix(start ^ index)), 1)


def make_step_column(first: int, count: int, device: torch.device) -> Tensor:
    """Return step numbers as a column, to be broadcast against a row of indices."""
    return torch.arange(first, first + count, device=device)[:, None]


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch's shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _to_signed(word: int) -> int:
    """Return the signed integer with the same lowest 64 bits."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


_SIGNED_MULTIPLIERS = (_to_signed(MULTIPLIERS[0]), _to_signed(MULTIPLIERS[1]))


def _mix(x: Tensor) -> Tensor:
    mixed: Tensor = mix_bits(x, _SIGNED_MULTIPLIERS, _shift_right)
    return mixed
