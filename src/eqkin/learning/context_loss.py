"""Context as a teacher: an equation is to find its partner, of the same section, paper or citation, among all others.

InfoNCE over the batch: in the way are all partners and all other anchors, but none of the anchor's own paper.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from eqkin.learning.structure_teacher import MASKED

TEMPERATURE = 0.07


def context_loss(anchor: Tensor, partner: Tensor, anchor_paper: Tensor, partner_paper: Tensor) -> Tensor:
    """The mean over the anchors.

    Args:
        anchor: Embeddings of length 1, (m, dimensions).
        partner: Those of related equations, row by row.
        anchor_paper: (m,) paper of each anchor.
        partner_paper: (m,) paper of each partner.
    """
    own = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
    to_partners = (anchor_paper[:, None] == partner_paper) & ~own
    to_anchors = anchor_paper[:, None] == anchor_paper
    logits = torch.cat(
        [
            (anchor @ partner.T / TEMPERATURE).masked_fill(to_partners, MASKED),
            (anchor @ anchor.T / TEMPERATURE).masked_fill(to_anchors, MASKED),
        ],
        dim=1,
    )
    return functional.cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))
