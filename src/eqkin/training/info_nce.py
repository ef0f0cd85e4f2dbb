r"""InfoNCE (van den Oord et al. 2018; paper, section 6.5): find the right side among all right sides of a batch.

$$ \ell = -\frac{1}{m} \sum_i \log \frac{\exp(s_{ii} / \tau)}{\sum_j \exp(s_{ij} / \tau)} $$

where s_ij is the cosine of left side i and right side j. The paper's formula lacks the minus sign, and its denominator
the right answer (j != i): slips. As there, left sides ask and right sides answer, not the other way round too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

INFO_NCE_TEMPERATURE = 0.01


def info_nce(left: Tensor, right: Tensor, temperature: float = INFO_NCE_TEMPERATURE) -> Tensor:
    """The loss of m pairs, each the others' negatives.

    Args:
        left: Vectors, (m, dimensions), of any length.
        right: Those that belong to them, row by row.
        temperature: tau.
    """
    cosines = functional.normalize(left.float()) @ functional.normalize(right.float()).T
    return functional.cross_entropy(cosines / temperature, torch.arange(len(left), device=left.device))
