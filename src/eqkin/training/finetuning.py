"""Finetuning: a tower learns to find the right side of an equality from the left (paper, section 6.5).

Learning rate, epochs and what else there is to choose from (`candidates`) are chosen on pairs kept apart for that: all
combinations are tried, and the best state is kept, which may be the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from eqkin.errors import BadInput, TrainingFailed
from eqkin.training.descent import Descent, descend
from eqkin.training.info_nce import INFO_NCE_TEMPERATURE, info_nce
from eqkin.training.towers import Floats, Integers, Tower

LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)


@dataclass(frozen=True)
class FinetuningConfig:
    """How to finetune."""

    batch: int = 1_024  # pairs a step, at most all there are
    epochs: int = 20  # at most
    rates: tuple[float, ...] = LEARNING_RATES  # learning rates to choose from, each falling to 0
    temperature: float = INFO_NCE_TEMPERATURE
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON would have it."""
        return asdict(self) | {"rates": list(self.rates)}


@dataclass(frozen=True)
class FinetuningChoice:
    """What was best on the validation pairs."""

    candidate: str
    learning_rate: float  # NaN: no epoch was better than none
    epochs: int
    score: float  # there

    def to_dict(self) -> dict[str, Any]:
        """As JSON would have it."""
        return asdict(self) | {"learning_rate": None if math.isnan(self.learning_rate) else self.learning_rate}


def finetune(
    candidates: Mapping[str, Callable[[], Tower]],
    pairs: Integers,
    validation: Integers,
    judge: Callable[[Floats], float],
    settings: FinetuningConfig,
    tell: Callable[[str], None] = lambda message: None,
) -> tuple[Tower, FinetuningChoice]:
    """Finetune towers, and give the best.

    Args:
        candidates: Each makes a tower as it is before; by name.
        pairs: (n, 2) numbers of the left and right sides to learn from.
        validation: (m, 2) those to choose on.
        judge: How good vectors of these are, left sides first, then right sides; larger is better.
        settings: How.
        tell: Told about each try.

    Returns:
        The tower at its best, and what that is.

    Raises:
        BadInput: There are fewer than two pairs to learn from, or none to choose on.
        LearningFailed: With every learning rate the loss was no number any more.
    """
    if len(pairs) < 2 or not len(validation):
        raise BadInput(f"{len(pairs)} pairs to learn from and {len(validation)} to choose on are too few to finetune")
    best: _Trial | None = None
    failed: TrainingFailed | None = None
    for name, make in candidates.items():
        for rate in settings.rates:
            tried = _Trial(
                name, make(), pairs, lambda tower: judge(tower.compute_vectors(validation.T.ravel())), settings
            )
            try:
                tried.run(rate)
            except TrainingFailed as error:
                failed = error
                tell(f"{name}, learning rate {rate:g}: {error}")
                continue
            tell(f"{name}, learning rate {rate:g}: best after {tried.choice.epochs} of {settings.epochs} epochs, "
                 f"score {tried.choice.score:.3f}")  # fmt: skip
            if best is None or tried.choice.score > best.choice.score:
                best = tried
    if best is None and failed is not None:
        raise failed
    if best is None:
        raise BadInput("there is nothing to finetune: give a tower and a learning rate")
    best.tower.load_state_dict(best.state)
    return best.tower.eval(), best.choice


class _Trial:
    """One descent, looked at after every epoch."""

    def __init__(
        self, name: str, tower: Tower, pairs: Integers, judge: Callable[[Tower], float], settings: FinetuningConfig
    ) -> None:
        self.tower, self._name, self._settings = tower, name, settings
        self._pairs, self._judge = pairs, judge
        self._batch = min(settings.batch, len(pairs))
        self._steps = len(pairs) // self._batch  # an epoch; what does not fill a batch waits for the next shuffle
        self.choice = FinetuningChoice(name, math.nan, 0, -1.0)
        self.state: dict[str, Tensor] = {}

    def run(self, rate: float) -> None:
        """All epochs at one learning rate."""
        self._evaluate(math.nan, 0)
        self._rate = rate
        descent = Descent(self._steps * self._settings.epochs, rate)
        descend(self.tower, self._compute_loss, descent)
        self._evaluate(rate, self._settings.epochs)

    def _compute_loss(self, step: int) -> Tensor:
        epoch, at = divmod(step, self._steps)
        if at == 0 and epoch:
            self._evaluate(self._rate, epoch)
        if at == 0:
            self._order = np.random.default_rng([self._settings.seed, epoch]).permutation(len(self._pairs))
        chosen = self._pairs[self._order[at * self._batch : (at + 1) * self._batch]]
        left, right = self.tower(chosen.T.ravel()).chunk(2)
        return info_nce(left, right, self._settings.temperature)

    def _evaluate(self, rate: float, epochs: int) -> None:
        """Keep the state if it is the best so far."""
        reached = self._judge(self.tower)
        if reached > self.choice.score:
            self.choice = FinetuningChoice(self._name, rate, epochs, reached)
            self.state = {name: tensor.detach().clone() for name, tensor in self.tower.state_dict().items()}
