"""The learning rate: rises linearly while the optimiser's averages settle, then falls linearly to 0."""

from __future__ import annotations

import torch
from torch import Tensor


def learning_rate(step: Tensor, *, peak: float, warm_up: int, steps: int) -> Tensor:
    """Rate at a step (0-d tensor, from 0): peak x min((step + 1) / warm_up, (steps - step) / (steps - warm_up))."""
    rising = (step + 1) / max(warm_up, 1)
    falling = (steps - step) / max(steps - warm_up, 1)
    return peak * torch.minimum(rising, falling).clamp(0.0, 1.0)
