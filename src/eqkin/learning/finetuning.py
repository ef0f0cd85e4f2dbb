"""Finetuning: train an encoder to find the right side of an equality from the left (paper, section 6.4).

All learning rates are tried, and the best state on validation pairs is kept, which may be the initial one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
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
from eqkin.learning.losses import INFO_NCE_TEMPERATURE, compute_info_nce_loss
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import RunSettings, Trainer
from eqkin.learning.tree_ops import TreeBatch

LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
# Of a learning rate whose steps are given.
_EVALUATIONS = 20
# Encoded at a time outside of training.
_BATCH_FORMULAS = 1_024

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
    """The best learning rate and number of epochs on the validation pairs."""

    learning_rate: float | None  # None: the initial state was best
    epochs: int
    score: float  # on the validation pairs

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def finetune(
    tower: Tower,
    pairs: Integers,
    validation: Integers,
    score: Callable[[Floats], float],
    config: FinetuningConfig,
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningChoice:
    """Finetune a tower with each learning rate, leave it in its best state, and return the choice.

    Args:
        tower: Changed in place.
        pairs: (n, 2) numbers of the left and right sides to train on.
        validation: (m, 2) those to choose on.
        score: Scores the vectors of the validation pairs, left sides first, then right sides; larger is better.
        config: Settings.
        log: Called with a message about each learning rate.

    Raises:
        BadInput: There are fewer than two training pairs, or no validation pairs.
        TrainingFailed: The loss became NaN or infinite with every learning rate.
    """
    if len(pairs) < 2 or not len(validation) or not config.rates:
        raise BadInput(f"{len(pairs)} training and {len(validation)} validation pairs are too few for finetuning")
    batch = min(config.batch, len(pairs))
    # Pairs that do not fill a batch are left out until the next epoch.
    epoch_steps = len(pairs) // batch
    steps = config.steps or epoch_steps * config.epochs
    score_steps = max(steps // _EVALUATIONS, 1) if config.steps else epoch_steps
    initial = state = _copy_state(tower)
    best = FinetuningChoice(None, 0, score(tower.compute_vectors(validation.T.ravel())))
    failures: list[TrainingFailed] = []

    for rate in config.rates:
        tower.load_state_dict(initial)
        order = np.zeros(0, np.int64)

        def compute_loss(step: int) -> Tensor:
            nonlocal order
            epoch, position = divmod(step, epoch_steps)
            if position == 0:
                order = np.random.default_rng([config.seed, epoch]).permutation(len(pairs))
            chosen = pairs[order[position * batch : (position + 1) * batch]]
            left, right = tower(chosen.T.ravel()).chunk(2)
            return compute_info_nce_loss(left, right, config.temperature)

        def keep_best(trainer: Trainer, rate: float = rate) -> None:
            nonlocal best, state
            reached = score(tower.compute_vectors(validation.T.ravel()))
            if reached > best.score:
                best, state = FinetuningChoice(rate, trainer.step // epoch_steps, reached), _copy_state(tower)

        logging = LoggingConfig(log_steps=steps, score_steps=score_steps)
        settings = RunSettings(logging=logging, evaluate=keep_best)
        trainer = Trainer(tower, compute_loss, OptimizerConfig(steps, rate), settings=settings)
        try:
            trainer.train()
            keep_best(trainer)
        except TrainingFailed as error:
            failures.append(error)
            log(f"learning rate {rate:g}: {error}")
            continue
        log(f"learning rate {rate:g}: best so far with {best.learning_rate}, {best.epochs} epochs: {best.score:.3f}")
    if len(failures) == len(config.rates):
        raise failures[-1]
    tower.load_state_dict(state)
    tower.eval()
    return best


def _copy_state(tower: Tower) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tower.state_dict().items()}
