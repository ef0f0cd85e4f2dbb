"""The learning rate: rises linearly while the optimiser's averages settle, then falls, linearly or as a cosine does."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FINAL_FRACTION = 0.01  # of the peak, where a cosine ends


def compute_linear_rate(step: Tensor, *, peak: float, warm_up: int, steps: int) -> Tensor:
    """Rate at a step (0-d tensor, from 0): peak x min((step + 1) / warm_up, (steps - step) / (steps - warm_up))."""
    rising = (step + 1) / max(warm_up, 1)
    falling = (steps - step) / max(steps - warm_up, 1)
    return peak * torch.minimum(rising, falling).clamp(0.0, 1.0)


def compute_cosine_rate(step: Tensor, *, peak: float, warm_up: int, steps: int) -> Tensor:
    """Rate at a step: peak x min(1, (step + 1) / warm_up) x max(0.01, (1 + cos(pi step / steps)) / 2)."""
    rising = ((step + 1) / max(warm_up, 1)).clamp(max=1.0)
    falling = 0.5 * (1 + torch.cos(step * (math.pi / steps)))
    return peak * rising * falling.clamp(min=_FINAL_FRACTION)


SCHEDULES = {"linear": compute_linear_rate, "cosine": compute_cosine_rate}
