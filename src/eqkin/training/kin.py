"""Kin by structure: for each tree the nearest ones of other papers, one of which is drawn beside it.

A batch drawn at random hardly holds two trees that have much in common; with kin in it there is more to tell apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from eqkin.training.pairs import Triplets, TripletSampler
from eqkin.training.randomness import RandomStream
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup
from eqkin.training.structure_teacher import COLUMNS, StructureTables

STRUCTURAL_NEIGHBOURS = 16
_DUPLICATE_COSINE = (
    0.97  # cosine above which two trees are the same but for trifles, and nothing is learned from the pair
)
_DIMENSIONS = 512  # of a random projection that all but keeps cosines
_NOISE_COSINE = 0.15  # cosine up to which the projection may feign that two trees have something in common
_BLOCK = 2_048  # trees compared at a time
_MAX_CANDIDATES = {"cuda": 1 << 19, "cpu": 1 << 16}  # among which to search, at most
_ACROSS = 1 << 17  # of them at a time


def find_structural_neighbours(tables: StructureTables, paper: Tensor, ranks: ProcessGroup = SINGLE_PROCESS) -> Tensor:
    """The 16 nearest trees of each tree, (trees, 16) int32, by cosine.

    Those of its own paper, nearly the same ones and those with nothing in common are left out. Where fewer are left the
    nearest comes up several times; where none is left, the tree itself.

    Args:
        tables: Vectors of the trees.
        paper: (trees,) paper of each.
        ranks: The processes that share the work; each gets all of what was found.
    """
    device, count = paper.device, len(paper)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    vectors = _project(tables, device, dtype)
    stride = -(-count // _MAX_CANDIDATES[device.type])
    candidates = torch.arange(0, count, max(stride, 1), device=device)
    found = torch.zeros(count, STRUCTURAL_NEIGHBOURS, dtype=torch.int32, device=device)
    for start in range(ranks.rank * _BLOCK, count, ranks.size * _BLOCK):
        here = torch.arange(start, min(start + _BLOCK, count), device=device)
        best, place = _find_best(vectors, paper, here, candidates)
        place = torch.where(best > _NOISE_COSINE, place, place[:, :1])
        found[here] = torch.where(best[:, :1] > _NOISE_COSINE, place, here[:, None]).int()
    return ranks.all_reduce(found)


def _find_best(vectors: Tensor, paper: Tensor, here: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the nearest candidates of some trees, the nearest first; what doesn't count has -1."""
    best = torch.full((len(here), STRUCTURAL_NEIGHBOURS), -1.0, device=here.device)
    place = here[:, None].expand(-1, STRUCTURAL_NEIGHBOURS)
    for part in candidates.split(_ACROSS):
        cosines = (vectors[here] @ vectors[part].T).float()
        left_out = (paper[here][:, None] == paper[part]) | (cosines > _DUPLICATE_COSINE)
        cosines = torch.cat([best, cosines.masked_fill_(left_out, -1.0)], dim=1)
        best, order = cosines.topk(STRUCTURAL_NEIGHBOURS, dim=1)
        before = place.gather(1, order.clamp(max=STRUCTURAL_NEIGHBOURS - 1))
        place = torch.where(order < STRUCTURAL_NEIGHBOURS, before, part[(order - STRUCTURAL_NEIGHBOURS).clamp(min=0)])
    return best, place


def _project(tables: StructureTables, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Vectors of fewer dimensions with about the same cosines, by random signs; of length 1."""
    cells = torch.arange(COLUMNS * _DIMENSIONS, device=device).view(COLUMNS, _DIMENSIONS)
    signs = (
        RandomStream(0, "signs").draw_below(2, torch.zeros((), dtype=torch.int64, device=device), cells) * 2 - 1
    ).to(dtype)
    vectors = torch.empty(len(tables), _DIMENSIONS, dtype=dtype, device=device)
    for here in torch.arange(len(tables), device=device).split(_BLOCK):
        projected = (tables.to_dense(here, dtype) @ signs).float()
        vectors[here] = torch.nn.functional.normalize(projected, dim=1).to(dtype)
    return vectors


class NeighbourSampler:
    """Draws anchors and partners as another sampler does, and kin of the anchors in place of negatives.

    Args:
        sampler: The other one.
        kin: (trees, 16) kin of each tree.
        seed: Same seed, same step: same kin.
    """

    def __init__(self, sampler: TripletSampler, kin: Tensor, *, seed: int) -> None:
        self._sampler, self._kin, self._stream = sampler, kin, RandomStream(seed, "kin")
        self.shares = sampler.shares

    @property
    def bytes(self) -> int:
        """Bytes of the tables."""
        return self._sampler.bytes + self._kin.numel() * self._kin.element_size()

    def draw(self, steps: Tensor, batch: int) -> Triplets:
        """Anchors, partners and kin of some steps, given as a column of step numbers."""
        drawn = self._sampler.draw(steps, batch)
        index = torch.arange(batch, device=self._kin.device)[None, :]
        chosen = self._stream.draw_below(self._kin.shape[1], steps, index)
        return Triplets(drawn.anchor, drawn.partner, self._kin[drawn.anchor, chosen].long(), drawn.kind)
