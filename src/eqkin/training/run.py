"""A run: learn a network from a corpus, measure it on held-out papers, keep everything in a folder.

In it lie

    checkpoint.json, checkpoint-N.safetensors   where to go on from
    metrics.jsonl                               how it went
    model/                                      the network, for `Encoder.load`

Several processes may learn together (see `ranks`): the first writes, measures and reports, the others only learn. Only
the first needs the folder; what it finds there it tells the others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from eqkin.encoder.model import Model
from eqkin.errors import BadInput, LimitReached, TrainingFailed
from eqkin.statistics import RankingScore
from eqkin.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    lock_run,
    pack_checkpoint,
    save_checkpoint,
    unpack_checkpoint,
)
from eqkin.training.corpus import Corpus
from eqkin.training.held_out import HeldOutEvaluator
from eqkin.training.journal import METRICS_FILE, MetricsLogger
from eqkin.training.material import build_training_data
from eqkin.training.randomness import make_step_column
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup
from eqkin.training.recipes import Recipe
from eqkin.training.share import check_batch_size
from eqkin.training.steps import Trainer
from eqkin.trees import Vocabulary

__all__ = [
    "METRICS_FILE",
    "MODEL_FOLDER",
    "TrainingResult",
    "LoggingConfig",
    "TrainingProgress",
    "TrainingRun",
    "choose_device",
]

MODEL_FOLDER = "model"


@dataclass(frozen=True)
class LoggingConfig:
    """When a run reports, measures and saves; changes nothing in what it learns."""

    log_steps: int = 256  # between two records of the losses
    score_steps: int = 0  # between two ranking scores; 0: twenty in all
    score_triples: int = 10_000  # of a ranking score on the way
    final_triples: int = 100_000  # of the one at the end
    save_seconds: float = 60.0  # between two checkpoints


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run is."""

    step: int
    steps: int
    triplets: int
    losses: dict[str, float]  # mean since the last record
    triplets_per_second: float
    ranking: RankingScore | None  # the last one


@dataclass(frozen=True)
class TrainingResult:
    """What became of a run."""

    step: int
    finished: bool  # otherwise it was asked to stop, and can be resumed
    ranking: RankingScore | None  # known to the first process alone
    model: Path | None  # likewise


@dataclass
class TrainingRun:
    """A run in a folder.

    Attributes:
        corpus: What to learn from; a part of its works is held out.
        recipe: How.
        folder: Where everything is kept.
        device: "cpu", "cuda", or "auto" for a GPU where there is one; not asked where there are several processes.
        fast: On a GPU, compile and record the steps.
        pace: When to report, measure and save.
        on_progress: Called after every few steps, in the first process.
        should_stop: Asked after every few steps, in every process; if any says so, the run saves its state and ends.
        ranks: The processes that learn together, each with a `Run` like this one; see `distributed.joined`.
    """

    corpus: Corpus
    recipe: Recipe
    folder: Path
    device: str = "auto"
    fast: bool = True
    pace: LoggingConfig = field(default_factory=LoggingConfig)
    on_progress: Callable[[TrainingProgress], None] = lambda progress: None
    should_stop: Callable[[], bool] = lambda: False
    ranks: ProcessGroup = SINGLE_PROCESS

    def train(self, *, resume: bool = False) -> TrainingResult:
        """Learn until the recipe's last step or until asked to stop.

        Args:
            resume: Go on from the folder's checkpoint, if there is one. What comes out is what would have come out
                without the interruption (on CPUs, bit by bit).

        Raises:
            BadInput: The folder holds another run; or nothing can be learned from the corpus; or the batch cannot be
                dealt out to the processes.
            CorruptData: The folder's checkpoint is damaged.
            LearningFailed: The loss, or a weight, is no number any more; names the step and its equations.
            LibraryBusy: Another process has a run in the folder.
            StorageFailed: The disk refused.
            Unreachable: Another process of the run is lost.
        """
        ranks, recipe = self.ranks, self.recipe
        device = choose_device(self.device) if ranks.is_single else ranks.device
        check_batch_size(recipe.batch, ranks)
        if not ranks.is_single:
            ranks.check_same("equations", self.corpus.digest)
            ranks.check_same("recipes", json.dumps(recipe.to_dict()))
        learn, held_out = self.corpus.split(recipe.held_out, recipe.split_seed)
        with ExitStack() as held:
            saved = self._open_folder(held, resume=resume)
            vocabulary = Vocabulary.learn([learn.forest])
            measured = ranks.run_on_first(lambda: HeldOutEvaluator(held_out, vocabulary, recipe, device))
            loop = _Loop(self, learn, measured, vocabulary, device)
            if saved:
                loop.restore(saved)
            else:
                loop.journal.rewind(-1)
            if not loop.run():
                return TrainingResult(loop.stepper.step, False, loop.journal.ranking, None)
            return loop.finish()

    def _open_folder(self, held: ExitStack, *, resume: bool) -> Checkpoint | None:
        """Take the folder's lock, and read its checkpoint; the first process does, and tells the others."""

        def opened() -> Checkpoint | None:
            held.enter_context(lock_run(self.folder))
            saved = load_checkpoint(self.folder)
            if saved and not resume:
                at = f"{self.folder} holds a run at step {saved.facts['step']:,}"
                raise BadInput(f"{at}: go on with --resume, or choose another folder")
            return saved

        saved = self.ranks.run_on_first(opened)
        if self.ranks.is_single:
            return saved
        told = self.ranks.broadcast(lambda: pack_checkpoint(saved) if saved else b"")
        return unpack_checkpoint(told) if told else None


def choose_device(name: str) -> torch.device:
    """The device of that name, "auto" being a GPU where there is one; raises `BadInput`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"there is no device {name!r}: use cpu, cuda or auto") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"{name} cannot be used here: torch sees no such device")
    return device


class _Loop:
    """The steps of a run, with everything that happens between them."""

    def __init__(
        self,
        run: TrainingRun,
        learn: Corpus,
        held_out: HeldOutEvaluator | None,
        vocabulary: Vocabulary,
        device: torch.device,
    ) -> None:
        self.settings, self.learn, self.vocabulary, self.ranks = run, learn, vocabulary, run.ranks
        recipe = run.recipe
        material = build_training_data(learn, vocabulary, recipe, device, run.ranks)
        fast = run.fast and device.type == "cuda"
        self.stepper = Trainer(recipe, material, compiled=fast, recorded=fast, ranks=run.ranks)
        self._parts = self.stepper.objective.parts
        self.journal = MetricsLogger(run.folder, recipe, self._parts, held_out)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint says beside the arrays."""
        return {
            "step": self.stepper.step,
            "recipe": self.settings.recipe.to_dict(),
            "corpus": self.settings.corpus.digest,
        } | self.journal.get_state()

    def save(self) -> None:
        """Write a checkpoint; raises `LearningFailed` rather than replace a good one with what is no number."""
        if not self.ranks.is_first:
            return
        arrays = self.stepper.get_state()
        bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if bad:
            self._fail(self.stepper.step - 1, f"it left {bad[0]} with values that are no numbers")
        save_checkpoint(self.settings.folder, arrays, self.facts())

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint; raises `BadInput` if it is of another run."""
        facts, own = saved.facts, self.facts()
        kept = facts | {"recipe": Recipe.from_dict(facts["recipe"]).to_dict()}  # an older eqkin may have written it
        for what in ("recipe", "corpus"):
            if kept[what] != own[what]:
                raise BadInput(
                    f"{self.settings.folder} holds a run with another {what}: it cannot be resumed with this one"
                )
        self.stepper.restore(facts["step"], saved.arrays)
        self.journal.restore(facts)

    def run(self) -> bool:
        """Take the steps that are left; returns whether all were taken."""
        pace, steps = self.settings.pace, self.settings.recipe.steps
        score_steps = pace.score_steps or -(-steps // 20)
        saved = time.monotonic()
        while self.stepper.step < steps:
            if self.ranks.check_any(self.settings.should_stop()):
                self.save()
                return False
            self._advance(
                min(steps, *(_find_next_multiple(self.stepper.step, every) for every in (pace.log_steps, score_steps)))
            )
            step = self.stepper.step
            if step % pace.log_steps == 0 or step == steps:
                self.journal.log(step, self.stepper.rate)
            if step % score_steps == 0 and step < steps:
                self.journal.score(step, self.stepper.network, pace.score_triples)
            if time.monotonic() - saved > pace.save_seconds:
                self.save()
                saved = time.monotonic()
        return True

    def _advance(self, until: int) -> None:
        stepper, batch = self.stepper, self.settings.recipe.batch
        first, started = stepper.step, time.perf_counter()
        try:
            parts = stepper.train_steps(min(stepper.ahead, until - first))
        except torch.OutOfMemoryError as error:
            raise LimitReached(
                f"the device's memory is too small for batches of {batch:,} triplets: try a smaller --batch"
            ) from error
        seconds = time.perf_counter() - started
        bad = np.flatnonzero(~np.isfinite(parts).all(axis=1))
        if len(bad):
            values = ", ".join(f"{name} {value}" for name, value in zip(self._parts, parts[bad[0]], strict=True))
            self._fail(first + int(bad[0]), f"the loss is no number: {values}")
        journal, steps = self.journal, self.settings.recipe.steps
        journal.add(parts, seconds)
        if self.ranks.is_first:
            self.settings.on_progress(
                TrainingProgress(
                    stepper.step, steps, stepper.step * batch, journal.compute_means(), journal.speed, journal.ranking
                )
            )

    def _fail(self, step: int, reason: str) -> NoReturn:
        recipe, folder = self.settings.recipe, self.settings.folder
        trees = self.stepper.sampler.draw(
            make_step_column(max(step, 0), 1, self.stepper.device), recipe.batch
        ).concatenate()[0]
        names = ", ".join(self.learn.get_equation_id(tree) for tree in trees[:5].tolist())
        state = "look for what was saved where the first process runs"
        if self.settings.ranks.is_first:
            saved = load_checkpoint(folder)
            state = f"{folder} has the state at step {saved.facts['step']:,}" if saved else "nothing was saved yet"
        raise TrainingFailed(
            f"learning failed at step {step:,}: {reason}. Its batch has {len(trees):,} equations: {names}, ... "
            f"Now {state}. A smaller learning rate may help, in another folder: --set learning_rate=..."
        )

    def finish(self) -> TrainingResult:
        """Save the state, measure, and write the model."""
        run = self.settings
        self.save()
        score = self.journal.score(self.stepper.step, self.stepper.network, run.pace.final_triples)
        if score is None:
            return TrainingResult(self.stepper.step, True, None, None)
        model = Model(
            architecture=run.recipe.architecture,
            vocabulary=self.vocabulary,
            weights=self.weights(),
            recipe=run.recipe.to_dict(),
            training=self._training(score),
        )
        model.save(run.folder / MODEL_FOLDER)
        return TrainingResult(self.stepper.step, True, score, run.folder / MODEL_FOLDER)

    def weights(self) -> dict[str, Any]:
        """The network's weights under the names of `architecture`, and what the objective keeps beside them."""
        state = self.stepper.network.state_dict() | self.stepper.objective.get_extra_weights()
        return {name: tensor.float().cpu().numpy() for name, tensor in state.items()}

    def _training(self, score: RankingScore) -> dict[str, Any]:
        return {
            "corpus": self.settings.corpus.digest,
            "learned_from": self.learn.compute_statistics(),
            "words": len(self.learn.words.vocabulary) if self.learn.words is not None else 0,
            "contexts": self.stepper.sampler.shares,
            "triplets": self.stepper.step * self.settings.recipe.batch,
            "seconds": round(self.journal.seconds, 1),
            "losses": self.journal.last,
            "held_out_ranking": {
                "score": score.score, "low": score.interval.low, "high": score.interval.high,
                "triples": score.triples, "papers": score.papers, "colours": score.colours,
                "delta": score.interval.delta,
            },
        }  # fmt: skip


def _find_next_multiple(step: int, every: int) -> int:
    """The next multiple of `every` after a step."""
    return (step // every + 1) * every
