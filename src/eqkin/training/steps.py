"""Taking steps: draw, compute, descend. On a GPU steps are compiled, recorded once and replayed.

Batches differ in their number of nodes. On a GPU there is room for a few more, in one of some sizes, and all operations
of a step of one size are recorded as a CUDA graph: replaying it takes no time on the CPU. The triplets of several steps
are drawn at once, so that their sizes are known without waiting for the GPU at every step.

Weights may be averaged on the way: over the last steps, of which the latest few hundred count most.

Several processes take each step together (see `ranks`): gradients are summed over them before the optimiser's step, so
that all have the same weights all the time. Every process draws the whole batch and so knows everyone's sizes: all make
room for the largest, and record and replay the same steps, as the sums in the recorded graphs demand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from eqkin.encoder.torch_network import TreeNetwork
from eqkin.training.kin_objective import EqkinObjective
from eqkin.training.material import EqkinTrainingData, TrainingData
from eqkin.training.objective import PaperObjective
from eqkin.training.randomness import make_step_column
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup
from eqkin.training.recipes import Recipe
from eqkin.training.schedule import SCHEDULES
from eqkin.training.share import check_batch_size, count_nodes_per_process

_STEPS_AHEAD = 256  # steps drawn at once on a GPU
_MIN_AVERAGE_UPDATE = 0.005  # least share of the newest weights in an average


def build_objective(
    recipe: Recipe, material: TrainingData, dtype: torch.dtype, ranks: ProcessGroup = SINGLE_PROCESS
) -> PaperObjective | EqkinObjective:
    """What a recipe minimises."""
    if isinstance(material, EqkinTrainingData):
        return EqkinObjective(recipe, material, dtype, ranks)
    return PaperObjective(recipe, material.forest, dtype, ranks)


class Trainer:
    """The state of a run that is under way: weights, optimiser, number of the next step.

    Args:
        recipe: What to learn.
        material: What to learn from.
        compiled: Whether to compile the objective.
        recorded: Whether to record and replay steps; both need a GPU.
        ranks: The processes that take the steps together.

    Raises:
        BadInput: The batch cannot be dealt out to them.
    """

    def __init__(
        self,
        recipe: Recipe,
        material: TrainingData,
        *,
        compiled: bool,
        recorded: bool,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        check_batch_size(recipe.batch, ranks)
        self.recipe, self.resident, self.sampler, self.ranks = recipe, material.forest, material.sampler, ranks
        self.device = self.resident.device
        on_gpu = self.device.type == "cuda"
        self.ahead = _STEPS_AHEAD if on_gpu else 1
        self.objective = build_objective(recipe, material, torch.bfloat16 if on_gpu else torch.float32, ranks)
        self._average = copy.deepcopy(self.objective.network).requires_grad_(False) if recipe.averaged else None
        self._rate = torch.tensor(recipe.learning_rate, device=self.device)
        self._optimiser = self._build_optimizer(on_gpu)
        self._forward: Callable[[Tensor, Tensor, Tensor], Tensor] = self.objective
        if compiled:
            self.compile()
        self._recorder = _GraphRecorder(self.device, ranks) if recorded and ranks.is_recordable else None
        self.step = 0
        self._now = torch.zeros((), dtype=torch.int64, device=self.device)
        self._trees = torch.zeros(3 * recipe.batch, dtype=torch.int64, device=self.device)
        self._parts = torch.zeros(self.ahead, len(self.objective.parts), device=self.device)

    def _build_optimizer(self, on_gpu: bool) -> torch.optim.Optimizer:
        parameters, decay = self.objective.parameters(), self.recipe.weight_decay
        if not decay:
            return torch.optim.Adam(parameters, lr=self._rate, fused=on_gpu, foreach=False, capturable=on_gpu)
        return torch.optim.AdamW(
            parameters, lr=self._rate, weight_decay=decay, fused=on_gpu, foreach=False, capturable=on_gpu
        )

    @property
    def network(self) -> TreeNetwork:
        """What has been learned: the network, with averaged weights if the recipe asks for them."""
        return self._average or self.objective.network

    def compile(self) -> None:
        """Compile the objective when it is first used."""
        self._forward = torch.compile(self.objective)

    def train_steps(self, count: int) -> np.ndarray:
        """Take `count` steps, at most `ahead`; returns the parts of their losses, (count, parts)."""
        trees = self.sampler.draw(make_step_column(self.step, count, self.device), self.recipe.batch).concatenate()
        sizes: Sequence[Sequence[int]] = count_nodes_per_process(self.resident.get_sizes(trees), self.ranks).tolist()
        self._now.fill_(self.step)
        for row, nodes in zip(trees, sizes, strict=True):
            self._trees.copy_(row)
            if self._recorder is None:
                self._train_step(nodes[self.ranks.rank])
            else:
                room = round_up_nodes(max(nodes))
                self._recorder.run(room, lambda room=room: self._train_step(room))  # type: ignore[misc]
        first = self.step
        self.step += count
        taken = torch.arange(first, self.step, device=self.device) % self.ahead
        return self._parts[taken].cpu().numpy()

    def _train_step(self, room: int) -> None:
        """One step, everything on the device."""
        self._optimiser.zero_grad(set_to_none=True)
        nodes = torch.arange(room, device=self.device)
        torch._dynamo.mark_dynamic(nodes, 0)  # one compiled objective for all sizes
        parts = self._forward(self._trees, nodes, self._now)
        parts.sum().backward()
        parts = parts.detach().float()
        self.ranks.all_reduce_([parts, *(p.grad for p in self.objective.parameters() if p.grad is not None)])
        recipe = self.recipe
        warm_up = min(recipe.warm_up, recipe.steps // 10)  # short runs would be over before the rate is up
        schedule = SCHEDULES[recipe.schedule]
        self._rate.copy_(schedule(self._now, peak=recipe.learning_rate, warm_up=warm_up, steps=recipe.steps))
        self._optimiser.step()
        if self._average is not None:
            self._update_average(self._average)
        self._parts.index_copy_(0, (self._now % self.ahead).view(1), parts[None])
        self._now += 1

    @torch.no_grad()
    def _update_average(self, average: TreeNetwork) -> None:
        """Move the average towards the weights as they are; until averaging begins, all the way."""
        first = self.recipe.steps - round(self.recipe.averaged * self.recipe.steps)
        share = (1.0 / (self._now - first + 1).clamp(min=1)).clamp(min=_MIN_AVERAGE_UPDATE)
        now = self.objective.network.state_dict()
        for name, tensor in average.state_dict().items():
            tensor.lerp_(now[name], share.to(tensor.dtype))

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self._rate)

    def get_state(self) -> dict[str, np.ndarray]:
        """Weights, running statistics and the optimiser's averages, by name."""
        state = {f"model.{name}": tensor for name, tensor in self.objective.state_dict().items()}
        for name, parameter in self.objective.named_parameters():
            for key, value in self._optimiser.state[parameter].items():
                state[f"adam.{key}.{name}"] = value
        if self._average is not None:
            state |= {f"average.{name}": tensor for name, tensor in self._average.state_dict().items()}
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def restore(self, step: int, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `state` gave at a step; raises `KeyError` or `RuntimeError` if it does not fit."""
        tensors = {name: torch.from_numpy(np.array(array)).to(self.device) for name, array in arrays.items()}
        own = self.objective.state_dict()
        self.objective.load_state_dict({name: tensors[f"model.{name}"] for name in own})
        for name, parameter in self.objective.named_parameters():
            prefix, suffix = "adam.", f".{name}"
            keys = [key for key in tensors if key.startswith(prefix) and key.endswith(suffix)]
            self._optimiser.state[parameter] = {key[len(prefix) : -len(suffix)]: tensors[key] for key in keys}
        if self._average is not None:
            self._average.load_state_dict({name: tensors[f"average.{name}"] for name in self._average.state_dict()})
        self.step = step


def round_up_nodes(size: int) -> int:
    """Nodes to make room for: `size` rounded up to one of at least 64 sizes an octave, a multiple of 64."""
    grain = max(64, 1 << max((size - 1).bit_length() - 7, 0))
    return -(-size // grain) * grain


class _GraphRecorder:
    """Runs a function that works on fixed tensors: the first time as it is, later by replaying what it did."""

    def __init__(self, device: torch.device, ranks: ProcessGroup) -> None:
        # while a step is recorded, nccl's own thread looks after what was sent before
        self._forbidden = "global" if ranks.is_single else "thread_local"
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def run(self, key: int, function: Callable[[], None]) -> None:
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
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=self._forbidden):
                function()
        graph.replay()
