"""`Trainer`: optimizer steps with a schedule, logging, evaluation, checkpoints and exact resumption.

`RecipeTrainer` adds batches of triplets. Their number of nodes varies. On a GPU a batch is padded to one of some sizes,
and all operations of a step of one size are compiled and captured as a CUDA graph, whose replay takes no time on the
CPU. The triplets of many steps are drawn at once, so that their sizes are known without waiting for the GPU at each
step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from eqkin.errors import BadInput, LimitReached, TrainingFailed
from eqkin.learning.checkpoint import Checkpoint, append_metrics, rewind_metrics, save_checkpoint
from eqkin.learning.config import LoggingConfig, OptimizerConfig, Recipe
from eqkin.learning.losses import TrainingData, build_objective
from eqkin.learning.sampling import make_step_column
from eqkin.learning.torch_network import TreeNetwork

if TYPE_CHECKING:
    from eqkin.learning.run import RankingScore

# Steps between two reads of the losses, each of which waits for the device.
STEPS_AHEAD = 50
_GPU_STEPS_AHEAD = 256
# The least weight of the newest weights in their average.
_MIN_AVERAGE_UPDATE = 0.005

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """The progress of a run."""

    step: int
    steps: int
    triplets: int
    # Means since the last record.
    losses: dict[str, float]
    triplets_per_second: float
    # The latest.
    ranking: RankingScore | None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Where a run is kept, and what happens between its steps. They do not influence what it learns.

    Attributes:
        folder: Where to save checkpoints and metrics; None: nothing is saved.
        identity: JSON values that a checkpoint must agree with.
        logging: When to log, evaluate and save.
        evaluate: Called with the trainer every `logging.score_steps`.
        on_progress: Called every few steps.
        should_stop: Called every few steps; if it returns True, the state is saved and training ends.
    """

    folder: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    evaluate: Callable[[Any], RankingScore | None] = lambda trainer: None
    on_progress: Callable[[TrainingProgress], None] = lambda progress: None
    should_stop: Callable[[], bool] = lambda: False


class Trainer:
    """Minimises losses over the parameters of a module.

    Args:
        module: Its parameters and buffers are changed in place.
        compute_losses: Returns the losses of a step, a scalar or one number per name in `parts`. They must depend only
            on the step's number and the module, so that a resumed run takes the same steps.
        config: Steps, learning rate, weight decay and averaging.
        parts: Names of the losses.
        averaged: The part of the module whose weights are averaged over the last steps, if `config` asks for it.
        batch: Examples per step, for logging.
        steps_ahead: Steps between two reads of the losses.
        settings: Where the run is kept, and what happens between its steps.
    """

    def __init__(
        self,
        module: nn.Module,
        compute_losses: Callable[[int], Tensor],
        config: OptimizerConfig,
        *,
        parts: tuple[str, ...] = ("loss",),
        averaged: nn.Module | None = None,
        batch: int = 1,
        steps_ahead: int = STEPS_AHEAD,
        settings: RunSettings | None = None,
    ) -> None:
        self.module, self.config, self.parts, self.batch = module, config, parts, batch
        self.steps_ahead, self.settings = steps_ahead, settings or RunSettings()
        self._compute_losses = compute_losses
        self.device = next(module.parameters()).device

        # The learning rate and the number of the step are tensors, so that a captured step reads their current values.
        self._rate = torch.tensor(config.learning_rate, device=self.device)
        self._now = torch.zeros((), dtype=torch.int64, device=self.device)
        self._losses = torch.zeros(steps_ahead, len(parts), device=self.device)
        on_gpu = self.device.type == "cuda"
        kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
        self._optimizer = kind(
            module.parameters(),
            lr=self._rate,
            weight_decay=config.weight_decay,
            fused=on_gpu,
            foreach=False,
            capturable=on_gpu,
        )
        self._update: Callable[[Tensor], None] = self._update_weights
        # Tensors of the average, and of what is averaged.
        self._average: nn.Module | None = None
        self._averages: list[list[Tensor]] = []
        if averaged is not None and config.averaged:
            self._average = copy.deepcopy(averaged).requires_grad_(False)
            self._averages = [[*part.state_dict().values()] for part in (self._average, averaged)]

        self.step = 0
        self.ranking: RankingScore | None = None
        self.last_losses: dict[str, float] = {}
        self.seconds = 0.0
        self._saved_step = -1
        # Since the last record.
        self._unlogged: list[list[float]] = []
        self._unlogged_seconds = 0.0

    def train(self) -> bool:
        """Take the remaining steps; return whether all were taken, or else `should_stop` returned True.

        Raises:
            TrainingFailed: A loss or a weight is NaN or infinite; names the step.
            LimitReached: The device's memory is too small.
            StorageFailed: The disk is full or read-only.
        """
        steps, settings, logging = self.config.steps, self.settings, self.settings.logging
        score_steps = logging.score_steps or -(-steps // 20)
        saved = time.monotonic()
        self.module.train()
        while self.step < steps:
            # A signal asks to stop: the run can be resumed from here.
            if settings.should_stop():
                self.save()
                return False

            # Take some steps, at most until the next record or evaluation is due.
            first, started = self.step, time.perf_counter()
            next_record, next_score = ((first // every + 1) * every for every in (logging.log_steps, score_steps))
            count = min(self.steps_ahead, min(steps, next_record, next_score) - first)
            try:
                losses = self.take_steps(count)
            except torch.OutOfMemoryError as error:
                raise LimitReached(
                    f"the device's memory is too small for batches of {self.batch:,}: try a smaller --batch"
                ) from error
            seconds = time.perf_counter() - started

            # A loss that is not finite has spoilt the weights; the last checkpoint is still good.
            bad = np.flatnonzero(~np.isfinite(losses).all(axis=1))
            if len(bad):
                values = ", ".join(f"{name} {value}" for name, value in zip(self.parts, losses[bad[0]], strict=True))
                self._fail(first + int(bad[0]), f"the loss is NaN or infinite ({values})")

            # Report.
            self._unlogged += losses.tolist()
            self._unlogged_seconds += seconds
            self.seconds += seconds
            progress = TrainingProgress(
                step=self.step,
                steps=steps,
                triplets=self.step * self.batch,
                losses=self._compute_means(),
                triplets_per_second=self._compute_speed(),
                ranking=self.ranking,
            )
            settings.on_progress(progress)

            if self.step % logging.log_steps == 0 or self.step == steps:
                self._log()
            if self.step % score_steps == 0 and self.step < steps:
                self.ranking = settings.evaluate(self) or self.ranking
            if time.monotonic() - saved > logging.save_seconds and self.step < steps:
                self.save()
                saved = time.monotonic()
        return True

    def take_steps(self, count: int) -> Floats:
        """Take `count` steps, at most `steps_ahead`; return their losses, (count, parts)."""
        self._now.fill_(self.step)
        for step in range(self.step, self.step + count):
            self._run_step(step)
        taken = torch.arange(self.step, self.step + count, device=self.device) % self.steps_ahead
        self.step += count
        losses: Floats = self._losses[taken].cpu().numpy()
        return losses

    def _run_step(self, step: int) -> None:
        self._take_step(partial(self._compute_losses, step))

    def _take_step(self, compute_losses: Callable[[], Tensor]) -> None:
        """Take one step. Nothing is read back from the device, so that a CUDA graph can capture the step."""
        self._optimizer.zero_grad(set_to_none=True)
        losses = compute_losses().reshape(-1)
        losses.sum().backward()
        self._update(losses.detach().float())

    def _update_weights(self, losses: Tensor) -> None:
        """Take the optimizer's step, update the average and keep the losses."""
        self._rate.copy_(self.config.compute_rate(self._now))
        self._optimizer.step()
        self._update_average()
        self._losses.index_copy_(0, (self._now % self.steps_ahead).view(1), losses[None])
        self._now += 1

    @torch.no_grad()
    def _update_average(self) -> None:
        """Move the average towards the current weights; until averaging begins, all the way."""
        if not self._averages:
            return
        first = self.config.steps - round(self.config.averaged * self.config.steps)
        update = (1.0 / (self._now - first + 1).clamp(min=1)).clamp(min=_MIN_AVERAGE_UPDATE)
        averages, current = self._averages
        torch._foreach_sub_(averages, current)
        torch._foreach_mul_(averages, 1.0 - update)
        torch._foreach_add_(averages, current)

    def _compute_means(self) -> dict[str, float]:
        """Return the total loss and its parts, averaged since the last record."""
        means = np.mean(self._unlogged, axis=0)
        return {"loss": float(means.sum())} | dict(zip(self.parts, means.tolist(), strict=True))

    def _compute_speed(self) -> float:
        """Return the examples per second since the last record."""
        return len(self._unlogged) * self.batch / max(self._unlogged_seconds, 1e-9)

    def _log(self) -> None:
        """Write a record of the losses."""
        self.last_losses = self._compute_means()
        if self.settings.folder is not None:
            record = {"step": self.step, "triplets": self.step * self.batch} | self.last_losses
            record |= {"learning_rate": float(self._rate), "seconds": self.seconds}
            append_metrics(self.settings.folder, record | {"triplets_per_second": self._compute_speed()})
        self._unlogged, self._unlogged_seconds = [], 0.0

    def save(self) -> None:
        """Write a checkpoint; raises `TrainingFailed` rather than overwrite a good one with NaN."""
        if self.settings.folder is None:
            return
        arrays = self.get_state()
        bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if bad:
            self._fail(self.step - 1, f"{bad[0]} contains NaN or infinity after it")
        facts = self.settings.identity | {
            "step": self.step,
            "losses": self._unlogged,
            "last": self.last_losses,
            "seconds": self.seconds,
            "unlogged_seconds": self._unlogged_seconds,
        }
        save_checkpoint(self.settings.folder, arrays, facts)
        self._saved_step = self.step

    def resume(self, saved: Checkpoint | None) -> None:
        """Continue from a checkpoint, or begin if there is none; raises `BadInput` if it belongs to another run."""
        folder = self.settings.folder
        if saved is not None:
            facts = saved.facts
            for name, value in self.settings.identity.items():
                if facts.get(name) != value:
                    raise BadInput(f"{folder} contains a run with a different {name}: it cannot be resumed")
            self.restore(facts["step"], saved.arrays)
            self._unlogged, self.last_losses = facts["losses"], facts["last"]
            self.seconds, self._unlogged_seconds = facts["seconds"], facts["unlogged_seconds"]
            self._saved_step = self.step
        # Records that were written after the checkpoint will be written again.
        if folder is not None:
            rewind_metrics(folder, self.step if saved else -1)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return weights, running statistics and the optimizer's state by name."""
        state = {f"model.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            for key, value in self._optimizer.state[parameter].items():
                state[f"adam.{key}.{name}"] = value
        if self._average is not None:
            state |= {f"average.{name}": tensor for name, tensor in self._average.state_dict().items()}
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def restore(self, step: int, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from the result of `get_state` at a step; raises `KeyError` or `RuntimeError` if it does not fit."""
        tensors = {name: torch.from_numpy(np.array(array)).to(self.device) for name, array in arrays.items()}
        self.module.load_state_dict({name: tensors[f"model.{name}"] for name in self.module.state_dict()})
        for name, parameter in self.module.named_parameters():
            keys = [key for key in tensors if key.startswith("adam.") and key.endswith(f".{name}")]
            self._optimizer.state[parameter] = {key.split(".")[1]: tensors[key] for key in keys}
        if self._average is not None:
            self._average.load_state_dict({name: tensors[f"average.{name}"] for name in self._average.state_dict()})
        self.step = step

    def _fail(self, step: int, reason: str) -> NoReturn:
        saved = (
            f" {self.settings.folder} has a checkpoint of step {self._saved_step:,}." if self._saved_step >= 0 else ""
        )
        raise TrainingFailed(
            f"training failed at step {step:,}: {reason}.{self._describe_batch(step)}{saved} "
            "Try a smaller learning rate in another folder: --set learning_rate=..."
        )

    def _describe_batch(self, step: int) -> str:
        return ""


class RecipeTrainer(Trainer):
    """Trains the network of a recipe.

    Args:
        recipe: What to learn.
        data: What to learn from.
        fast: On a GPU, compile the steps and capture them as CUDA graphs.
        get_equation_id: Names a tree in error messages.
        settings: See `Trainer`.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData,
        *,
        fast: bool = False,
        get_equation_id: Callable[[int], str] = str,
        settings: RunSettings | None = None,
    ) -> None:
        on_gpu = data.forest.device.type == "cuda"
        if on_gpu:
            # Products of the losses are in TF32, which is more precise than those of the network, in bfloat16.
            torch.set_float32_matmul_precision("high")
        self.recipe, self.data, self._get_equation_id = recipe, data, get_equation_id
        self.objective = build_objective(recipe, data, torch.bfloat16 if on_gpu else torch.float32)
        super().__init__(
            self.objective,
            self._compute_step_losses,
            recipe.optimizer,
            parts=self.objective.parts,
            averaged=self.objective.network,
            batch=recipe.batch,
            steps_ahead=_GPU_STEPS_AHEAD if on_gpu else 1,
            settings=settings,
        )
        self._forward: Callable[[Tensor, Tensor, Tensor], Tensor] = self.objective
        # The batch of the current step, in a place that captured steps read, and batches that were drawn ahead.
        self._trees = torch.zeros(3 * recipe.batch, dtype=torch.int64, device=self.device)
        self._drawn_step, self._drawn, self._sizes = -1, self._trees[None], [0]
        self._recorder = _GraphRecorder(self.device) if fast and on_gpu else None
        if self._recorder:
            self.compile()

    @property
    def network(self) -> TreeNetwork:
        """The trained network, with averaged weights if the recipe asks for them."""
        average = self._average
        return average if isinstance(average, TreeNetwork) else self.objective.network

    def compile(self) -> None:
        """Compile objective and optimizer when they are first used."""
        self._forward = torch.compile(self.objective, options=_get_compile_options())
        # torch's fused kernel, which cannot be compiled, is slow.
        for group in self._optimizer.param_groups:
            group.update(fused=False, foreach=True)
        self._update = torch.compile(self._update_weights)

    def _run_step(self, step: int) -> None:
        if self._recorder is None:
            super()._run_step(step)
            return
        room = round_up_nodes(self._load_batch(step))
        self._recorder.run(room, partial(self._take_step, partial(self._compute_batch_losses, room)))

    def _compute_step_losses(self, step: int) -> Tensor:
        return self._compute_batch_losses(self._load_batch(step))

    def _load_batch(self, step: int) -> int:
        """Load the trees of a step into `self._trees`; return the number of their nodes."""
        # The batches of many steps are drawn at once, because reading their sizes waits for the device.
        first = step - step % self.steps_ahead
        if first != self._drawn_step:
            self._drawn_step, self._drawn = first, self._draw(first, self.steps_ahead)
            self._sizes = self.data.forest.get_sizes(self._drawn).sum(1).tolist()
        self._trees.copy_(self._drawn[step - first])
        return self._sizes[step - first]

    def _draw(self, step: int, count: int) -> Tensor:
        """Draw the trees of some steps, (count, 3 x batch)."""
        return self.data.sampler.draw(make_step_column(step, count, self.device), self.recipe.batch).concatenate()

    def _describe_batch(self, step: int) -> str:
        trees = self._draw(max(step, 0), 1)[0]
        names = ", ".join(self._get_equation_id(tree) for tree in trees[:5].tolist())
        return f" Its batch has {len(trees):,} equations: {names}, ..."

    def _compute_batch_losses(self, room: int) -> Tensor:
        """Return the losses of `self._trees`, padded to `room` nodes."""
        nodes = torch.arange(room, device=self.device)
        # One compiled objective serves all sizes.
        torch._dynamo.mark_dynamic(nodes, 0)
        return self._forward(self._trees, nodes, self._now)


def round_up_nodes(size: int) -> int:
    """Round a number of nodes up to one of at least 64 sizes per octave, a multiple of 64."""
    grain = max(64, 1 << max((size - 1).bit_length() - 7, 0))
    return -(-size // grain) * grain


def _get_compile_options() -> dict[str, Any]:
    """Return options under which nothing is compiled again for batches of another size, and indices are not checked.

    Reductions over rows and columns at once are chosen by size: as soon as a batch exceeds 5 million numbers.
    """
    off = {"triton.mix_order_reduction", "assert_indirect_indexing"}
    return dict.fromkeys(off.intersection(torch._inductor.list_options()), False)


class _GraphRecorder:
    """Runs a function on fixed tensors: the first time directly, later by replaying its CUDA graph."""

    def __init__(self, device: torch.device) -> None:
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def run(self, key: int, function: Callable[[], None]) -> None:
        """Run a function; functions with the same key must do the same."""
        # The first run of a size compiles and allocates, which a graph must not contain.
        if key not in self._graphs:
            self._graphs[key] = None
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                function()
            torch.cuda.current_stream().wait_stream(self._stream)
            return
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                function()
        graph.replay()
