"""Context as a teacher: an equation is to find its partner, of the same section, paper or citation, among all others.

InfoNCE over the batch: in the way are all partners and all other anchors, but none of the anchor's own paper.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from eqkin.training.ranks import select_rows
from eqkin.training.structure_teacher import MASKED_LOGIT

CONTEXT_TEMPERATURE = 0.07


def context_loss(
    anchor: Tensor, partner: Tensor, anchor_paper: Tensor, partner_paper: Tensor, rows: Tensor | None = None
) -> Tensor:
    """The mean over the anchors, or over some of them.

    Args:
        anchor: Embeddings of length 1, (m, dimensions).
        partner: Those of related equations, row by row.
        anchor_paper: (m,) paper of each anchor.
        partner_paper: (m,) paper of each partner.
        rows: Numbers of the anchors that ask; None for all.
    """
    every = torch.arange(len(anchor), device=anchor.device)
    right = every if rows is None else rows
    asking, paper = select_rows(anchor, rows), select_rows(anchor_paper, rows)
    to_partners = (paper[:, None] == partner_paper) & (right[:, None] != every)
    to_anchors = paper[:, None] == anchor_paper
    logits = torch.cat(
        [
            (asking @ partner.T / CONTEXT_TEMPERATURE).masked_fill(to_partners, MASKED_LOGIT),
            (asking @ anchor.T / CONTEXT_TEMPERATURE).masked_fill(to_anchors, MASKED_LOGIT),
        ],
        dim=1,
    )
    return functional.cross_entropy(logits, right)
