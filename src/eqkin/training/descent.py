"""Descending any loss: Adam, a rate that rises and falls, checkpoints, exact resumption.

`Run` does the same for the recipes, faster; this is for whatever else learns: baselines and finetuning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eqkin.errors import BadInput, TrainingFailed
from eqkin.training.checkpoint import load_checkpoint, save_checkpoint
from eqkin.training.distributed import require_single_process
from eqkin.training.schedule import compute_linear_rate

_SAVE_SECONDS = 60.0
_LOOK_STEPS = 50  # between two looks at the loss, each of which waits for the device


@dataclass(frozen=True)
class Descent:
    """How to descend."""

    steps: int
    learning_rate: float = 1e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    save_seconds: float = _SAVE_SECONDS  # between two checkpoints


def descend(
    module: nn.Module,
    loss_of: Callable[[int], Tensor],
    descent: Descent,
    folder: Path | None = None,
    *,
    settings: dict[str, Any] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> float:
    """Minimise a loss over the parameters of a module.

    Args:
        module: What learns; its parameters and buffers are changed in place.
        loss_of: The loss of a step, a scalar; depends on the step's number and on the module alone, so that a
            descent which is resumed takes the steps it would have taken.
        descent: How.
        folder: Where checkpoints lie; one that is there is resumed. None: nothing is kept.
        settings: What the checkpoint belongs to, as JSON; another one is refused.
        progress: Called now and then with the steps taken, all steps, and the mean loss since the last call.

    Returns:
        The mean loss of the last steps.

    Raises:
        BadInput: The folder holds a checkpoint with other settings; or torchrun started several processes.
        LearningFailed: The loss is no number any more; names the step.
    """
    require_single_process("this kind of learning")
    parameters = dict(module.named_parameters())
    device = next(iter(parameters.values())).device
    optimiser = torch.optim.Adam(module.parameters(), lr=descent.learning_rate)
    facts = {"settings": settings or {}, "steps": descent.steps}
    first = _resume(module, optimiser, folder, facts) if folder else 0
    peak, warm_up = descent.learning_rate, min(descent.warm_up, descent.steps // 10)
    total, since, last, saved = torch.zeros((), device=device), 0, float("nan"), time.monotonic()
    module.train()
    for step in range(first, descent.steps):
        now = torch.tensor(step)
        for group in optimiser.param_groups:
            group["lr"] = float(compute_linear_rate(now, peak=peak, warm_up=warm_up, steps=descent.steps))
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(step)
        loss.backward()
        optimiser.step()
        total += loss.detach()
        since += 1
        if (step + 1) % _LOOK_STEPS == 0 or step + 1 == descent.steps:
            last, total, since = float(total) / since, torch.zeros((), device=device), 0
            if not np.isfinite(last):
                raise TrainingFailed(f"learning failed by step {step:,}: the loss is no number; try a smaller rate")
            if progress:
                progress(step + 1, descent.steps, last)
            if folder and time.monotonic() - saved > descent.save_seconds and step + 1 < descent.steps:
                _save(module, optimiser, folder, facts | {"step": step + 1})
                saved = time.monotonic()
    return last


def _save(module: nn.Module, optimiser: torch.optim.Adam, folder: Path, facts: dict[str, Any]) -> None:
    arrays = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        arrays |= {f"adam.{key}.{name}": value for key, value in optimiser.state[parameter].items()}
    save_checkpoint(folder, {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}, facts)


def _resume(module: nn.Module, optimiser: torch.optim.Adam, folder: Path, facts: dict[str, Any]) -> int:
    saved = load_checkpoint(folder)
    if saved is None:
        return 0
    if any(saved.facts.get(name) != value for name, value in facts.items()):
        raise BadInput(f"{folder} holds something else that was learned: it cannot be resumed with these settings")
    device = next(module.parameters()).device
    arrays = {name: torch.from_numpy(array) for name, array in saved.arrays.items()}
    module.load_state_dict({name: arrays[f"model.{name}"] for name in module.state_dict()})
    for name, parameter in module.named_parameters():
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = arrays[f"adam.{key}.{name}"]
            state[key] = value if key == "step" else value.to(device)
        optimiser.state[parameter] = state
    return int(saved.facts["step"])
