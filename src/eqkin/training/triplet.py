"""Triplet loss (paper, section 4.2)."""

from __future__ import annotations

from torch import Tensor


def triplet_loss(anchor: Tensor, partner: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    """Mean of max(0, margin - <anchor, partner> + <anchor, negative>) over the rows.

    Args:
        anchor: Embeddings, (batch, dimensions).
        partner: Those of related equations.
        negative: Those of unrelated ones.
        margin: By how much related ones are to be more alike.
    """
    return (margin - (anchor * partner).sum(1) + (anchor * negative).sum(1)).clamp(min=0.0).mean()
