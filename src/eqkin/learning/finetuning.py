"""Finetuning: train an encoder to find the right side of an equality from the left (paper, section 6.4).

All combinations of candidates and learning rates are tried, and the best state on validation pairs is kept, which may
be the initial one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from eqkin.encoder.model import Model
from eqkin.errors import BadInput, TrainingFailed
from eqkin.formulas import Forest
from eqkin.learning.batches import DeviceForest
from eqkin.learning.config import LoggingConfig, OptimizerConfig
from eqkin.learning.distributed import require_single_process
from eqkin.learning.losses import INFO_NCE_TEMPERATURE, InfoNCELoss
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import Trainer
from eqkin.learning.tree_ops import TreeBatch

LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
_EVALUATIONS = 20  # of a trial whose steps are given
_BATCH_FORMULAS = 1_024  # encoded at a time outside of training

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class Tower(nn.Module):
    """An encoder of the formulas of a fixed set, which are identified by their numbers."""

    @abstractmethod
    def forward(self, formulas: Integers) -> Tensor:
        """Return the vectors of some formulas, (formulas, dimensions)."""

    @torch.no_grad()
    def compute_vectors(self, formulas: Integers) -> Floats:
        """Return the vectors of some formulas as in a search: without gradients, with running statistics."""
        was_training = self.training
        self.eval()
        try:
            parts = [
                self(formulas[first : first + _BATCH_FORMULAS]).float().cpu().numpy()
                for first in range(0, len(formulas), _BATCH_FORMULAS)
            ]
        finally:
            self.train(was_training)
        return np.concatenate(parts)


class GraphTower(Tower):
    """The graph network.

    Args:
        device: Where to compute: in bfloat16 while training on a GPU, otherwise in float32.
    """

    def __init__(self, forest: Forest, model: Model, device: torch.device) -> None:
        super().__init__()
        self.network = build_network(model.architecture, model.weights).to(device)
        self._forest = DeviceForest(forest, model.vocabulary, device)
        self._sizes = forest.sizes

    def train(self, mode: bool = True) -> GraphTower:
        """Switch training on or off; running statistics are kept: a few steps are too few for new ones to converge."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, formulas: Integers) -> Tensor:
        """Return the vectors of some formulas, (formulas, dimensions)."""
        forest = self._forest
        nodes = torch.arange(int(self._sizes[formulas].sum()), device=forest.device)
        batch = forest.collate(torch.from_numpy(formulas).to(forest.device, non_blocking=True), nodes)
        fast = self.training and forest.device.type == "cuda"
        features = forest.build_features(batch, torch.bfloat16 if fast else torch.float32)
        return self.pool(self.network.encode_nodes(features, batch.trees), batch.trees)

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the vectors of formulas, given those of their nodes."""
        return self.network.pool(nodes, trees)


@dataclass(frozen=True)
class FinetuningConfig:
    """Settings of finetuning."""

    batch: int = 1_024  # pairs per step, at most all
    epochs: int = 20  # at most
    steps: int = 0  # instead of epochs, with 20 evaluations; 0: as many as the epochs have
    rates: tuple[float, ...] = LEARNING_RATES  # to choose from; each falls to 0
    temperature: float = INFO_NCE_TEMPERATURE
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"rates": list(self.rates)}


@dataclass(frozen=True)
class FinetuningChoice:
    """The best combination on the validation pairs."""

    candidate: str
    learning_rate: float  # NaN: the initial state was best
    epochs: int
    score: float  # on the validation pairs

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"learning_rate": None if math.isnan(self.learning_rate) else self.learning_rate}


def finetune(
    candidates: Mapping[str, Callable[[], Tower]],
    pairs: Integers,
    validation: Integers,
    score: Callable[[Floats], float],
    config: FinetuningConfig,
    log: Callable[[str], None] = lambda message: None,
) -> tuple[Tower, FinetuningChoice]:
    """Finetune all candidates and return the best.

    Args:
        candidates: Functions that return a tower with its initial weights, by name.
        pairs: (n, 2) numbers of the left and right sides to train on.
        validation: (m, 2) those to choose on.
        score: Scores the vectors of the validation pairs, left sides first, then right sides; larger is better.
        config: Settings.
        log: Called with a message about each combination.

    Returns:
        The tower in its best state, and the choice.

    Raises:
        BadInput: There are fewer than two training pairs, or no validation pairs.
        TrainingFailed: The loss became NaN or infinite with every learning rate.
    """
    require_single_process("finetuning")
    if len(pairs) < 2 or not len(validation):
        raise BadInput(f"{len(pairs)} training and {len(validation)} validation pairs are too few for finetuning")
    best: _Trial | None = None
    failure: TrainingFailed | None = None
    for name, make_tower in candidates.items():
        for rate in config.rates:
            trial = _Trial(name, make_tower(), validation, score)
            try:
                trial.train(pairs, rate, config)
            except TrainingFailed as error:
                failure = error
                log(f"{name}, learning rate {rate:g}: {error}")
                continue
            log(f"{name}, learning rate {rate:g}: best after {trial.choice.epochs} of {config.epochs} epochs, "
                f"score {trial.choice.score:.3f}")  # fmt: skip
            if best is None or trial.choice.score > best.choice.score:
                best = trial
    if best is None:
        raise failure or BadInput("there is nothing to finetune: give a tower and a learning rate")
    best.tower.load_state_dict(best.state)
    return best.tower.eval(), best.choice


class _Trial:
    """The training of one tower with one learning rate, evaluated after every epoch."""

    def __init__(self, name: str, tower: Tower, validation: Integers, score: Callable[[Floats], float]) -> None:
        self.tower = tower
        self._name, self._validation, self._score = name, validation.T.ravel(), score
        self.choice = FinetuningChoice(name, math.nan, 0, -1.0)
        self.state: dict[str, Tensor] = {}

    def train(self, pairs: Integers, rate: float, config: FinetuningConfig) -> None:
        """Train for all epochs."""
        batch = min(config.batch, len(pairs))
        steps = len(pairs) // batch  # per epoch; pairs that do not fill a batch are left out until the next epoch
        loss = InfoNCELoss(config.temperature)
        order = np.zeros(0, np.int64)

        def compute_loss(step: int) -> Tensor:
            nonlocal order
            epoch, position = divmod(step, steps)
            if position == 0:
                order = np.random.default_rng([config.seed, epoch]).permutation(len(pairs))
            chosen = pairs[order[position * batch : (position + 1) * batch]]
            left, right = self.tower(chosen.T.ravel()).chunk(2)
            result: Tensor = loss(left, right)
            return result

        self._evaluate(math.nan, 0)
        total = config.steps or steps * config.epochs
        every = max(total // _EVALUATIONS, 1) if config.steps else steps
        trainer = Trainer(self.tower, compute_loss, OptimizerConfig(total, rate))
        trainer.logging = LoggingConfig(log_steps=total, score_steps=every)
        trainer.evaluate = lambda step: self._evaluate(rate, step // steps)
        trainer.train()
        self._evaluate(rate, total // steps)

    def _evaluate(self, rate: float, epochs: int) -> None:
        """Keep the state if it is the best so far."""
        reached = self._score(self.tower.compute_vectors(self._validation))
        if reached > self.choice.score:
            self.choice = FinetuningChoice(self._name, rate, epochs, reached)
            self.state = {name: tensor.detach().clone() for name, tensor in self.tower.state_dict().items()}
