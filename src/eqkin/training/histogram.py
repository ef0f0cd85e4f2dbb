"""Histogram loss (Ustinova and Lempitsky 2016; paper, section 4.2).

Similarities are spread over R nodes t_1 = -1, ..., t_R = 1, a distance w = 2 / (R - 1) apart, by a triangular kernel:

    h_r = mean over s of  max(0, 1 - |s - t_r| / w)

Every s in [-1, 1] puts a mass of 1 onto the two nodes around it. The loss is the chance that a negative pair is at
least as similar as a positive one, up to that blur:

    loss = sum over r of  h-_r (h+_1 + ... + h+_r)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HISTOGRAM_NODES = 64


def histogram_loss(
    anchor: Tensor,
    partner: Tensor,
    negative: Tensor,
    nodes: int = HISTOGRAM_NODES,
    mean: Callable[[Tensor], Tensor] = lambda masses: masses,
) -> Tensor:
    """The loss of m positive pairs against all pairs of anchors and negatives.

    Args:
        anchor: Embeddings, (batch, dimensions).
        partner: Those of related equations, row by row.
        negative: Those of unrelated ones, of the whole batch.
        nodes: R.
        mean: Takes the mean of a histogram over all processes that have a share of the batch's anchors.
    """
    positive = mean(compute_histogram((anchor * partner).sum(1), nodes))
    return (mean(compute_histogram((anchor @ negative.T).flatten(), nodes)) * positive.cumsum(0)).sum()


def compute_histogram(similarities: Tensor, nodes: int = HISTOGRAM_NODES) -> Tensor:
    """Masses of the nodes, (nodes,), which sum to 1; similarities outside [-1, 1] count as its ends."""
    masses: Tensor = _HistogramFunction.apply(similarities, nodes)  # type: ignore[no-untyped-call]
    return masses


class _HistogramFunction(torch.autograd.Function):
    @staticmethod
    def forward(similarities: Tensor, nodes: int) -> Tensor:
        at = (similarities.clamp(-1.0, 1.0) + 1.0) * ((nodes - 1) / 2)
        node = torch.arange(nodes, dtype=at.dtype, device=at.device)
        # every node looks at every similarity: no scattered additions, so the sum is the same every time
        return (1.0 - (at[None, :] - node[:, None]).abs()).clamp(min=0.0).sum(1) / len(at)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        similarities, ctx.nodes = inputs
        ctx.save_for_backward(similarities)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (similarities,) = ctx.saved_tensors
        rate = (ctx.nodes - 1) / 2
        left = ((similarities + 1.0) * rate).floor().long().clamp(0, ctx.nodes - 2)  # NaN too
        slope = gradient[left + 1] - gradient[left]
        inside = (similarities >= -1.0) & (similarities <= 1.0)
        return torch.where(inside, slope * (rate / len(similarities)), 0.0), None
