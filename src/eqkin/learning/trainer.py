"""`Trainer`: optimizer steps with a schedule, logging, evaluation, checkpoints and exact resumption.

`RecipeTrainer` adds batches of triplets. Their number of nodes varies. On a GPU a batch is padded to one of some sizes,
and all operations of a step of one size are compiled and captured as a CUDA graph, whose replay takes no time on the
CPU. The triplets of many steps are drawn at once, so that their sizes are known without waiting for the GPU at each
step.

Several processes take each step together (see `distributed`): gradients are summed over them before the optimizer's
step, so that all have the same weights at all times. Every process draws the whole batch and knows the sizes of all:
all pad to the largest, and capture and replay the same steps, as the sums in the captured graphs require.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from eqkin.errors import BadInput, LimitReached, TrainingFailed
from eqkin.learning.checkpoint import Checkpoint, MetricsFile, load_checkpoint, save_checkpoint
from eqkin.learning.config import LoggingConfig, OptimizerConfig, Recipe
from eqkin.learning.distributed import SINGLE_PROCESS, ProcessGroup, count_nodes_per_process
from eqkin.learning.objective import Objective, TrainingData, build_objective
from eqkin.learning.randomness import make_step_column
from eqkin.learning.ranking import RankingScore
from eqkin.learning.torch_network import TreeNetwork

STEPS_AHEAD = 50  # steps between two reads of the losses, each of which waits for the device
_GPU_STEPS_AHEAD = 256  # the same for batches of triplets, which are drawn as many steps ahead
_MIN_AVERAGE_UPDATE = 0.005  # smallest weight of the newest weights in an average


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run."""

    step: int
    steps: int
    triplets: int
    losses: dict[str, float]  # means since the last record
    triplets_per_second: float
    ranking: RankingScore | None  # the latest


class Trainer:
    """Minimises losses over the parameters of a module.

    Args:
        module: Its parameters and buffers are changed in place.
        compute_losses: Returns the losses of a step, a scalar or one number per name in `parts`. They must depend only
            on the step's number and the module, so that a resumed run takes the same steps. None in subclasses that
            override `train_steps`.
        config: Steps, learning rate, weight decay and averaging.
        parts: Names of the losses.
        averaged: The part of the module whose weights are averaged over the last steps, if `config` asks for it.
        batch: Examples per step, for logging.
        steps_ahead: Steps between two reads of the losses.
        group: The processes that take the steps together.

    Attributes:
        folder: Of checkpoints; None: nothing is saved.
        identity: JSON values that a checkpoint must agree with.
        metrics: Where to log; None: nowhere.
        logging: When to log, evaluate and save.
        evaluate: Called with the step every `logging.score_steps`.
        on_progress: Called every few steps in the first process.
        should_stop: Called every few steps; if it returns True in any process, the state is saved and training ends.
    """

    def __init__(
        self,
        module: nn.Module,
        compute_losses: Callable[[int], Tensor] | None,
        config: OptimizerConfig,
        *,
        parts: tuple[str, ...] = ("loss",),
        averaged: nn.Module | None = None,
        batch: int = 1,
        steps_ahead: int = STEPS_AHEAD,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.module, self.config, self.parts, self.batch, self.group = module, config, parts, batch, group
        self.folder: Path | None = None
        self.identity: dict[str, Any] = {}
        self.metrics: MetricsFile | None = None
        self.logging = LoggingConfig()
        self.evaluate: Callable[[int], RankingScore | None] = lambda step: None
        self.on_progress: Callable[[TrainingProgress], None] = lambda progress: None
        self.should_stop: Callable[[], bool] = lambda: False
        self.device = next(module.parameters()).device
        self.steps_ahead = steps_ahead
        self._compute_losses = compute_losses
        self._update: Callable[[Tensor], None] = self._update_weights
        self._average: nn.Module | None = None
        self._averages: list[list[Tensor]] = []  # tensors of the average, and of what is averaged
        if averaged is not None and config.averaged:
            self._average = copy.deepcopy(averaged).requires_grad_(False)
            self._averages = [[*part.state_dict().values()] for part in (self._average, averaged)]
        self._rate = torch.tensor(config.learning_rate, device=self.device)
        on_gpu, decay = self.device.type == "cuda", config.weight_decay
        options: dict[str, Any] = {"lr": self._rate, "fused": on_gpu, "foreach": False, "capturable": on_gpu}
        self._optimizer: torch.optim.Optimizer
        if decay:
            self._optimizer = torch.optim.AdamW(module.parameters(), weight_decay=decay, **options)
        else:
            self._optimizer = torch.optim.Adam(module.parameters(), **options)
        self.step = 0
        self._now = torch.zeros((), dtype=torch.int64, device=self.device)  # `step` on the device
        self._losses = torch.zeros(steps_ahead, len(parts), device=self.device)
        self.ranking: RankingScore | None = None  # of the latest evaluation
        self.last_losses: dict[str, float] = {}  # means of the last record
        self.seconds = 0.0  # of training so far
        self._speed = 0.0  # examples per second
        self._unlogged: list[list[float]] = []  # losses since the last record
        self._logged_seconds = 0.0

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self._rate)

    def train(self) -> bool:
        """Take the remaining steps; return whether all were taken, or else `should_stop` returned True."""
        steps, logging = self.config.steps, self.logging
        score_steps = logging.score_steps or -(-steps // 20)
        saved = time.monotonic()
        self.module.train()
        while self.step < steps:
            if self.group.check_any(self.should_stop()):
                self.save()
                return False
            until = min(steps, *((self.step // every + 1) * every for every in (logging.log_steps, score_steps)))
            self._train_timed(min(self.steps_ahead, until - self.step))
            if self.step % logging.log_steps == 0 or self.step == steps:
                self._log()
            if self.step % score_steps == 0 and self.step < steps:
                self.ranking = self.evaluate(self.step) or self.ranking
            if time.monotonic() - saved > logging.save_seconds and self.step < steps:
                self.save()
                saved = time.monotonic()
        return True

    def _train_timed(self, count: int) -> None:
        """Take some steps, check their losses and report progress."""
        first, started = self.step, time.perf_counter()
        try:
            losses = self.train_steps(count)
        except torch.OutOfMemoryError as error:
            raise LimitReached(
                f"the device's memory is too small for batches of {self.batch:,}: try a smaller --batch"
            ) from error
        seconds = time.perf_counter() - started
        bad = np.flatnonzero(~np.isfinite(losses).all(axis=1))
        if len(bad):
            values = ", ".join(f"{name} {value}" for name, value in zip(self.parts, losses[bad[0]], strict=True))
            self._fail(first + int(bad[0]), f"the loss is NaN or infinite ({values})")
        self._unlogged += losses.tolist()
        self.seconds += seconds
        speed = count * self.batch / max(seconds, 1e-9)
        self._speed = speed if self._speed == 0 else 0.9 * self._speed + 0.1 * speed
        if self.group.is_first:
            triplets = self.step * self.batch
            means = self._compute_means()
            self.on_progress(TrainingProgress(self.step, self.config.steps, triplets, means, self._speed, self.ranking))

    def train_steps(self, count: int) -> np.ndarray:
        """Take `count` steps, at most `steps_ahead`; return their losses, (count, parts)."""
        assert self._compute_losses is not None
        self._now.fill_(self.step)
        for step in range(self.step, self.step + count):
            self._train_step(partial(self._compute_losses, step))
        return self._read_losses(count)

    def _train_step(self, compute_losses: Callable[[], Tensor]) -> None:
        """Take one step. Nothing is read back from the device, so that a CUDA graph can capture the step."""
        self._optimizer.zero_grad(set_to_none=True)
        losses = compute_losses().reshape(-1)
        losses.sum().backward()
        losses = losses.detach().float()
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        self.group.all_reduce_([losses, *gradients])
        self._update(losses)

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

    def _read_losses(self, count: int) -> np.ndarray:
        taken = torch.arange(self.step, self.step + count, device=self.device) % self.steps_ahead
        self.step += count
        return self._losses[taken].cpu().numpy()

    def _compute_means(self) -> dict[str, float]:
        """Return the total loss and its parts, averaged since the last record."""
        means = np.mean(self._unlogged, axis=0) if self._unlogged else np.full(len(self.parts), np.nan)
        return {"loss": float(means.sum())} | dict(zip(self.parts, means.tolist(), strict=True))

    def _log(self) -> None:
        """Write a record of the losses."""
        self.last_losses = self._compute_means()
        seconds = max(self.seconds - self._logged_seconds, 1e-9)
        if self.metrics is not None:
            self.metrics.append(
                {"step": self.step, "triplets": self.step * self.batch}
                | self.last_losses
                | {
                    "learning_rate": self.rate,
                    "triplets_per_second": len(self._unlogged) * self.batch / seconds,
                    "seconds": self.seconds,
                }
            )
        self._unlogged, self._logged_seconds = [], self.seconds

    def save(self) -> None:
        """Write a checkpoint; raises `TrainingFailed` rather than overwrite a good one with NaN."""
        if self.folder is None or not self.group.is_first:
            return
        arrays = self.get_state()
        bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if bad:
            self._fail(self.step - 1, f"{bad[0]} contains NaN or infinity after it")
        facts = self.identity | {
            "step": self.step,
            "losses": self._unlogged,
            "last": self.last_losses,
            "seconds": self.seconds,
            "logged_seconds": self._logged_seconds,
        }
        save_checkpoint(self.folder, arrays, facts)

    def resume(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint; raises `BadInput` if it belongs to another run."""
        facts = saved.facts
        for name, value in self.identity.items():
            if self._read_identity(name, facts.get(name)) != value:
                raise BadInput(f"{self.folder} contains a run with a different {name}: it cannot be resumed")
        self.restore(facts["step"], saved.arrays)
        self._unlogged, self.last_losses = facts["losses"], facts["last"]
        self.seconds, self._logged_seconds = facts["seconds"], facts["logged_seconds"]
        if self.metrics is not None:
            self.metrics.rewind(self.step)

    def _read_identity(self, name: str, saved: Any) -> Any:
        """Return a value of a checkpoint's identity in the form of this version of eqkin."""
        return saved

    def get_state(self) -> dict[str, np.ndarray]:
        """Return weights, running statistics and the optimizer's state by name."""
        state = {f"model.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            for key, value in self._optimizer.state[parameter].items():
                state[f"adam.{key}.{name}"] = value
        if self._average is not None:
            state |= {f"average.{name}": tensor for name, tensor in self._average.state_dict().items()}
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def restore(self, step: int, arrays: dict[str, np.ndarray]) -> None:
        """Continue from the result of `get_state` at a step; raises `KeyError` or `RuntimeError` if it does not fit."""
        tensors = {name: torch.from_numpy(np.array(array)).to(self.device) for name, array in arrays.items()}
        self.module.load_state_dict({name: tensors[f"model.{name}"] for name in self.module.state_dict()})
        for name, parameter in self.module.named_parameters():
            prefix, suffix = "adam.", f".{name}"
            keys = [key for key in tensors if key.startswith(prefix) and key.endswith(suffix)]
            self._optimizer.state[parameter] = {key[len(prefix) : -len(suffix)]: tensors[key] for key in keys}
        if self._average is not None:
            self._average.load_state_dict({name: tensors[f"average.{name}"] for name in self._average.state_dict()})
        self.step = step

    def _fail(self, step: int, reason: str) -> NoReturn:
        saved = load_checkpoint(self.folder) if self.folder is not None and self.group.is_first else None
        state = f" {self.folder} has a checkpoint of step {saved.facts['step']:,}." if saved else ""
        raise TrainingFailed(
            f"training failed at step {step:,}: {reason}.{self._describe_batch(step)}{state} "
            "Try a smaller learning rate in another folder: --set learning_rate=..."
        )

    def _describe_batch(self, step: int) -> str:
        return ""


class RecipeTrainer(Trainer):
    """Trains the network of a recipe.

    Args:
        captured: Whether to capture and replay steps as CUDA graphs; both need a GPU.
        get_equation_id: Names a tree in error messages.
        objective: What to minimise; by default that of the recipe.

    Raises:
        BadInput: The batch cannot be divided among the processes.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData,
        *,
        compiled: bool,
        captured: bool,
        group: ProcessGroup = SINGLE_PROCESS,
        get_equation_id: Callable[[int], str] = str,
        objective: Objective | None = None,
    ) -> None:
        group.check_batch_size(recipe.batch)
        on_gpu = data.forest.device.type == "cuda"
        self.recipe, self.data, self._get_equation_id = recipe, data, get_equation_id
        if on_gpu:
            torch.set_float32_matmul_precision("high")  # of the losses: more than that of the network
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self.objective = objective or build_objective(recipe, data, dtype, group)
        super().__init__(
            self.objective,
            None,
            recipe.optimizer,
            parts=self.objective.parts,
            averaged=self.objective.network,
            batch=recipe.batch,
            steps_ahead=_GPU_STEPS_AHEAD if on_gpu else 1,
            group=group,
        )
        self._forward: Callable[[Tensor, Tensor, Tensor], Tensor] = self.objective
        if compiled:
            self.compile()
        self._recorder = _GraphRecorder(self.device, group) if captured and group.is_capturable else None
        self._trees = torch.zeros(3 * recipe.batch, dtype=torch.int64, device=self.device)

    @property
    def network(self) -> TreeNetwork:
        """The trained network, with averaged weights if the recipe asks for them."""
        average = self._average
        return average if isinstance(average, TreeNetwork) else self.objective.network

    def compile(self) -> None:
        """Compile objective and optimizer when they are first used."""
        self._forward = torch.compile(self.objective, options=_get_compile_options())
        for group in self._optimizer.param_groups:
            group.update(fused=False, foreach=True)  # torch's fused kernel, which cannot be compiled, is slow
        self._update = torch.compile(self._update_weights)

    def train_steps(self, count: int) -> np.ndarray:
        """Take `count` steps, at most `steps_ahead`; return their losses, (count, parts)."""
        trees = self._draw(self.step, count)
        sizes: Sequence[Sequence[int]] = count_nodes_per_process(self.data.forest.get_sizes(trees), self.group).tolist()
        self._now.fill_(self.step)
        for row, nodes in zip(trees, sizes, strict=True):
            self._trees.copy_(row)
            if self._recorder is None:
                self._train_batch(nodes[self.group.rank])
            else:
                room = round_up_nodes(max(nodes))
                self._recorder.run(room, partial(self._train_batch, room))
        return self._read_losses(count)

    def _draw(self, step: int, count: int) -> Tensor:
        """Draw the trees of some steps, (count, 3 x batch)."""
        return self.data.sampler.draw(make_step_column(step, count, self.device), self.recipe.batch).concatenate()

    def _train_batch(self, room: int) -> None:
        """Take one step on `self._trees`, padded to `room` nodes."""
        nodes = torch.arange(room, device=self.device)
        torch._dynamo.mark_dynamic(nodes, 0)  # one compiled objective for all sizes
        self._train_step(lambda: self._forward(self._trees, nodes, self._now))

    def _read_identity(self, name: str, saved: Any) -> Any:
        return Recipe.from_dict(saved).to_dict() if name == "recipe" else saved  # an older eqkin may have written it

    def _describe_batch(self, step: int) -> str:
        trees = self._draw(max(step, 0), 1)[0]
        names = ", ".join(self._get_equation_id(tree) for tree in trees[:5].tolist())
        return f" Its batch has {len(trees):,} equations: {names}, ..."


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

    def __init__(self, device: torch.device, group: ProcessGroup) -> None:
        # during a capture, nccl's own thread watches earlier messages
        self._capture_error_mode = "global" if group.is_single else "thread_local"
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def run(self, key: int, function: Callable[[], None]) -> None:
        """Run a function; functions with the same key must do the same."""
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
            mode = self._capture_error_mode
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=mode):
                function()
        graph.replay()
