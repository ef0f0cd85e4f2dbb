"""The trainer: convergence, exact resumption and errors."""

import pytest
import torch
from torch import nn

from eqkin.errors import BadInput, TrainingFailed
from eqkin.learning.checkpoint import CHECKPOINT_FILE, load_checkpoint
from eqkin.learning.config import LoggingConfig, OptimizerConfig
from eqkin.learning.trainer import RunSettings, Trainer


class Line(nn.Module):
    """y = w x + b, with a buffer that counts the steps."""

    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def loss(self, step):
        self.steps += 1
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        return (x @ self.w + self.b - (x @ torch.tensor([1.0, -2.0, 3.0]) + 4)).square().mean()


def train_module(
    module, compute_loss, config, folder=None, *, settings=None, progress=None, save_seconds=60.0, steps_ahead=50
):
    """Train a module, resuming from a checkpoint; return the mean loss of the last steps."""
    run = RunSettings(
        folder=folder,
        identity={"settings": settings or {}, "steps": config.steps},
        logging=LoggingConfig(log_steps=steps_ahead, score_steps=config.steps, save_seconds=save_seconds),
        on_progress=lambda state: progress and progress(state.step),
    )
    trainer = Trainer(module, compute_loss, config, steps_ahead=steps_ahead, settings=run)
    trainer.resume(load_checkpoint(folder) if folder else None)
    trainer.train()
    return trainer.last_losses.get("loss")


def test_trainer_finds_the_minimum():
    line = Line()
    last = train_module(line, line.loss, OptimizerConfig(300, learning_rate=0.2))
    assert torch.allclose(line.w, torch.tensor([1.0, -2.0, 3.0]), atol=0.01)
    assert float(line.b.detach()) == pytest.approx(4, abs=0.01)
    assert last < 1e-3
    assert int(line.steps) == 300


def test_interrupted_training_resumes_exactly(tmp_path):
    whole, parts, again = Line(), Line(), Line()
    train_module(whole, whole.loss, OptimizerConfig(100, 0.1))

    def stop(step, *_):
        if step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_module(
            parts, parts.loss, OptimizerConfig(100, 0.1), tmp_path, progress=stop, save_seconds=0, steps_ahead=10
        )
    assert load_checkpoint(tmp_path).facts["step"] == 30
    seen = []
    train_module(
        again,
        again.loss,
        OptimizerConfig(100, 0.1),
        tmp_path,
        progress=lambda step, *_: seen.append(step),
        steps_ahead=10,
    )
    assert seen[0] == 40
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_checkpoint_with_other_settings_is_rejected(tmp_path):
    line = Line()
    train_module(line, line.loss, OptimizerConfig(5), tmp_path, settings={"width": 1}, save_seconds=0, steps_ahead=1)
    with pytest.raises(BadInput, match="different settings"):
        train_module(line, line.loss, OptimizerConfig(5), tmp_path, settings={"width": 2})
    with pytest.raises(BadInput, match="different steps"):
        train_module(line, line.loss, OptimizerConfig(6), tmp_path, settings={"width": 1})
    (tmp_path / CHECKPOINT_FILE).unlink()
    train_module(line, line.loss, OptimizerConfig(6), tmp_path, settings={"width": 2})


def test_nan_loss_is_an_error():
    line = Line()
    with pytest.raises(TrainingFailed, match="at step 3: the loss is NaN"):
        train_module(line, lambda step: line.loss(step) * (float("nan") if step == 3 else 1), OptimizerConfig(10))


def test_learning_rate_rises_and_falls(monkeypatch):
    rates = []
    adam_step = torch.optim.Adam.step

    def step(self, *given, **named):
        rates.append(float(self.param_groups[0]["lr"]))
        return adam_step(self, *given, **named)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    line = Line()
    train_module(line, line.loss, OptimizerConfig(50, 1.0, warm_up=1_000))
    assert rates.index(max(rates)) in (4, 5)  # a tenth of all
    assert rates[0] < 0.5
    assert 0 < rates[-1] < 0.05
