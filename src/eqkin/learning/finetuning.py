"""Finetuning: train a network to find the right side of an equality from the left (paper, section 6.4).

All learning rates are tried, and the best state on validation pairs is kept, which may be the initial one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput, TrainingFailed
from eqkin.formulas import Forest
from eqkin.learning.batches import DeviceForest
from eqkin.learning.config import LoggingConfig, OptimizerConfig, choose_device
from eqkin.learning.data import Corpus
from eqkin.learning.equalities import DEPTHS, PairSet, compute_mrr, compute_partner_ranks
from eqkin.learning.losses import compute_info_nce_loss
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import RunSettings, Trainer

LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
# Vector lengths of so many equations determine the soft norm.
_NORM_SAMPLE = 10_000

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FinetuningConfig:
    """Settings of finetuning."""

    # Pairs per step, at most all.
    batch: int = 1_024
    # Epochs at most.
    epochs: int = 20
    # To choose from; each falls to 0.
    rates: tuple[float, ...] = LEARNING_RATES
    seed: int = 0


@dataclass(frozen=True)
class FinetuningChoice:
    """The best learning rate and number of epochs on the validation pairs."""

    # None: the initial state was best.
    learning_rate: float | None
    epochs: int
    # Mean reciprocal rank of the validation pairs.
    score: float


@dataclass(frozen=True, kw_only=True)
class FinetuningResult:
    """The finetuned model and its recall on test pairs, by cosine."""

    model: Path
    # Numbers of pairs.
    learned: int
    checked: int
    tested: int
    # Recall at 1, 10 and 100: "r1", "r10", "r100".
    before: dict[str, float]
    after: dict[str, float]
    choice: FinetuningChoice


def finetune_model(
    corpus: Corpus,
    out: Path,
    *,
    model: str | Path | None = None,
    pairs: str = "relations",
    held_out: float = 0.2,
    settings: FinetuningConfig | None = None,
    device: str = "auto",
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningResult:
    """Finetune a model to find the other side of equalities, and write it to a folder that `Encoder.load` takes.

    Args:
        corpus: Source of the pairs.
        out: The folder to write to.
        model: The model to start from: a name or a folder, as `Encoder.load` takes it.
        pairs: "equalities", "inequalities", or "relations" for both and similar signs.
        held_out: Share of test pairs, split by work.
        settings: Batch size, epochs and learning rates.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        log: Receives progress, one line at a time.

    Raises:
        BadInput: The folder already holds a model, there is no model to start from, or there are too few pairs.
        StorageFailed: The disk refused.
    """
    if (out / DESCRIPTION_FILE).exists():
        raise BadInput(f"{out} already holds a model: choose another folder")
    if not 0 < held_out < 1:
        raise BadInput(f"the held-out share must be between 0 and 1, such as 0.2, got {held_out}")
    first, settings = Encoder.load(model).model, settings or FinetuningConfig()
    chosen = PairSet.split(corpus, pairs, held_out)
    learned, checked, tested = (chosen.get_sides(part) for part in (chosen.train, chosen.validation, chosen.test))
    log(f"{len(learned):,} training pairs, {len(checked):,} validation pairs, {len(tested):,} test pairs")

    encoder = SideEncoder(chosen.pairs.forest, first, choose_device(device))
    before = _compute_recall(encoder, tested)
    choice = finetune(encoder, learned, checked, settings, log)
    result = FinetuningResult(
        model=out,
        learned=len(learned),
        checked=len(checked),
        tested=len(tested),
        before=before,
        after=_compute_recall(encoder, tested),
        choice=choice,
    )

    state = encoder.network.state_dict()
    weights = {name: np.asarray(tensor.float().cpu().numpy()) for name, tensor in state.items()}
    facts = asdict(result) | {"model": first.digest, "corpus": corpus.digest, "pairs": pairs}
    recipe, training = first.recipe | {"finetuned": asdict(settings)}, first.training | {"finetuned": facts}

    def make_model(mean: float, deviation: float) -> Model:
        norm = {"soft_norm.mean": np.float32(mean), "soft_norm.deviation": np.float32(deviation)}
        arrays = weights | {name: np.asarray(number) for name, number in norm.items()}
        return Model(first.architecture, first.vocabulary, arrays, recipe, training)

    # Finetuning does not control the lengths of vectors: the soft norm is fitted to those of some equations.
    sample = corpus.forest.select(np.arange(0, len(corpus), max(1, len(corpus) // _NORM_SAMPLE)))
    lengths = np.linalg.norm(Encoder(make_model(1, 0)).embed(sample), axis=1)
    make_model(float(lengths.mean()), float(lengths.std())).save(out)
    return result


class SideEncoder(nn.Module):
    """A model's network on a device, in bfloat16 while training on a GPU, that encodes the trees of a forest."""

    def __init__(self, forest: Forest, model: Model, device: torch.device) -> None:
        super().__init__()
        self.network = build_network(model.architecture, model.weights).to(device)
        self._forest = DeviceForest(forest, model.vocabulary, device)
        self._sizes = forest.sizes

    def train(self, mode: bool = True) -> SideEncoder:
        """Switch training on or off; running statistics are kept: a few steps are too few for new ones to converge."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, trees: Integers) -> Tensor:
        """Return the vectors of some trees, (trees, dimensions)."""
        forest = self._forest
        nodes = torch.arange(int(self._sizes[trees].sum()), device=forest.device)
        batch = forest.collate(torch.from_numpy(trees).to(forest.device), nodes)
        fast = self.training and forest.device.type == "cuda"
        features = forest.build_features(batch, torch.bfloat16 if fast else torch.float32)
        vectors: Tensor = self.network(features, batch.trees)
        return vectors

    def embed(self, trees: Integers) -> Floats:
        """Return the vectors of some trees as in a search."""
        numbers = torch.from_numpy(trees).to(self._forest.device)
        vectors: Floats = self._forest.embed(self.network, numbers).cpu().numpy()
        return vectors


def finetune(
    encoder: SideEncoder,
    pairs: Integers,
    validation: Integers,
    config: FinetuningConfig,
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningChoice:
    """Finetune an encoder with each learning rate, leave it in its best state, and return the choice.

    Args:
        encoder: Changed in place.
        pairs: (n, 2) trees of the left and right sides to train on.
        validation: (m, 2) those to choose on.
        config: Settings.
        log: Called with a message about each learning rate.

    Raises:
        BadInput: There are fewer than two training pairs, or no validation pairs.
        TrainingFailed: The loss became NaN or infinite with every learning rate.
    """
    if len(pairs) < 2 or not len(validation):
        raise BadInput(f"{len(pairs)} training and {len(validation)} validation pairs are too few for finetuning")
    batch = min(config.batch, len(pairs))
    # Pairs that do not fill a batch are left out until the next epoch.
    epoch_steps = len(pairs) // batch
    initial = state = _copy_state(encoder)
    best = FinetuningChoice(None, 0, compute_mrr(encoder.embed(validation.T.ravel())))
    failures: list[TrainingFailed] = []

    @lru_cache(1)
    def draw_order(epoch: int) -> Integers:
        return np.random.default_rng([config.seed, epoch]).permutation(len(pairs))

    def compute_loss(step: int) -> Tensor:
        epoch, position = divmod(step, epoch_steps)
        chosen = pairs[draw_order(epoch)[position * batch : (position + 1) * batch]]
        left, right = encoder(chosen.T.ravel()).chunk(2)
        return compute_info_nce_loss(left, right)

    for rate in config.rates:

        def keep_best(trainer: Trainer, rate: float = rate) -> None:
            nonlocal best, state
            score = compute_mrr(encoder.embed(validation.T.ravel()))
            if score > best.score:
                best, state = FinetuningChoice(rate, trainer.step // epoch_steps, score), _copy_state(encoder)

        encoder.load_state_dict(initial)
        steps = epoch_steps * config.epochs
        settings = RunSettings(logging=LoggingConfig(log_steps=steps, score_steps=epoch_steps), evaluate=keep_best)
        trainer = Trainer(encoder, compute_loss, OptimizerConfig(steps, rate), settings=settings)
        try:
            trainer.train()
            keep_best(trainer)
            log(f"learning rate {rate:g}: the best so far is {best.learning_rate}, score {best.score:.3f}")
        except TrainingFailed as error:
            failures.append(error)
            log(f"learning rate {rate:g}: {error}")
    if len(failures) == len(config.rates):
        raise failures[-1]
    encoder.load_state_dict(state)
    return best


def _copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _compute_recall(encoder: SideEncoder, pairs: Integers) -> dict[str, float]:
    ranks = compute_partner_ranks(encoder.embed(pairs.T.ravel()))
    return {f"r{k}": float(np.mean(ranks < k)) for k in DEPTHS}
