"""Training of any module in one process: baselines and peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from eqkin.learning.checkpoint import load_checkpoint
from eqkin.learning.config import LoggingConfig, OptimizerConfig
from eqkin.learning.distributed import require_single_process
from eqkin.learning.trainer import STEPS_AHEAD, Trainer


def train_module(
    module: nn.Module,
    compute_loss: Callable[[int], Tensor],
    config: OptimizerConfig,
    folder: Path | None = None,
    *,
    settings: dict[str, Any] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    save_seconds: float = 60.0,
    steps_ahead: int = STEPS_AHEAD,
) -> float:
    """Train a module; an interrupted training is resumed.

    Args:
        module: The module; changed in place.
        compute_loss: Returns the loss of a step; see `Trainer`.
        config: Steps and learning rate.
        folder: Of checkpoints; an existing one is resumed. None: nothing is saved.
        settings: JSON values that a checkpoint must agree with.
        progress: Called from time to time with the steps taken, all steps, and the mean loss since the last call.
        save_seconds: Between two checkpoints.
        steps_ahead: Steps between two reads of the loss.

    Returns:
        The mean loss of the last steps.

    Raises:
        BadInput: The folder contains a checkpoint with other settings, or torchrun started several processes.
        TrainingFailed: The loss is NaN or infinite; names the step.
    """
    require_single_process("this kind of training")
    trainer = Trainer(module, compute_loss, config, steps_ahead=steps_ahead)
    trainer.folder, trainer.identity = folder, {"settings": settings or {}, "steps": config.steps}
    trainer.logging = LoggingConfig(log_steps=steps_ahead, score_steps=config.steps, save_seconds=save_seconds)
    if progress is not None:
        report = progress
        trainer.on_progress = lambda state: report(state.step, state.steps, state.losses["loss"])
    saved = load_checkpoint(folder) if folder is not None else None
    if saved is not None:
        trainer.resume(saved)
    trainer.train()
    return trainer.last_losses.get("loss", float("nan"))
