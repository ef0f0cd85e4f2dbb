"""Training of any module with the package's trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from eqkin.learning.checkpoint import load_checkpoint
from eqkin.learning.config import LoggingConfig, OptimizerConfig
from eqkin.learning.trainer import STEPS_AHEAD, RunSettings, Trainer, TrainingProgress


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
        BadInput: The folder contains a checkpoint with other settings.
        TrainingFailed: The loss is NaN or infinite; names the step.
    """

    def report(state: TrainingProgress) -> None:
        if progress is not None:
            progress(state.step, state.steps, state.losses["loss"])

    run = RunSettings(
        folder=folder,
        identity={"settings": settings or {}, "steps": config.steps},
        logging=LoggingConfig(log_steps=steps_ahead, score_steps=config.steps, save_seconds=save_seconds),
        on_progress=report,
    )
    trainer = Trainer(module, compute_loss, config, steps_ahead=steps_ahead, settings=run)
    trainer.resume(load_checkpoint(folder) if folder is not None else None)
    trainer.train()
    return trainer.last_losses.get("loss", float("nan"))
