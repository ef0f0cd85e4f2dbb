"""Training in several processes: one per GPU, on one machine or several, started by torchrun.

Each process computes the vectors of its own triplets and its own rows of the losses; the losses of all processes sum to
that of the whole batch. Everything that crosses processes within a step is a sum (`ProcessGroup.all_reduce`), and the
gradient of a sum over processes is the sum of their gradients. So every weight's gradient, summed over the processes
once more, is that of the whole batch, also for weights that all processes use after a gather.

A gather is a sum of rows that the other processes leave 0. It takes twice the bytes of a proper gather, some MB per
step, but needs only one operation, which every backend supports on every device and which is a custom operator:
torch.compile does not break the graph there, and CUDA graphs can capture it.

Gradients are summed in one message per step, not by `DistributedDataParallel`: that averages where these losses add up,
broadcasts batch statistics that are summed already, and adds hooks to the backward pass that would have to be captured.
The networks have a few million weights: overlapping communication with computation would gain nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from eqkin.errors import BadInput, EqkinError, Unreachable
from eqkin.learning.tree_ops import TreeBatch

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

BATCH_GROUPS = 3  # of trees in a batch: anchors, partners and negatives
COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # for a process that is silent; one that has died is noticed at once
_POLL_SECONDS = 0.02
_REQUIRED_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that train together. In a single process, nothing is sent."""

    rank: int = 0
    size: int = 1
    backend: str = ""  # of torch.distributed, "nccl" or "gloo"; empty in a single process
    device: torch.device = torch.device("cpu")  # of this process

    @property
    def is_single(self) -> bool:
        """True if there is only this process."""
        return not self.backend

    @property
    def is_first(self) -> bool:
        """True in the process that writes and reports."""
        return self.rank == 0

    @property
    def is_capturable(self) -> bool:
        """True if communication may be part of a captured CUDA graph."""
        return self.is_single or self.backend == "nccl"

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum over all processes; differentiable."""
        if self.is_single:
            return x
        summed: Tensor = _all_reduce(x)
        return summed

    def all_reduce_mean(self, x: Tensor) -> Tensor:
        """Return the mean over all processes; differentiable."""
        return x if self.is_single else self.all_reduce(x) / self.size

    def all_gather(self, x: Tensor, groups: int = 1) -> Tensor:
        """Return the rows of all processes, in the order of a single process; differentiable.

        Args:
            x: Rows of this process; every process has the same number.
            groups: Number of equal parts of `x` (such as anchors, partners and negatives), whose order is kept.
        """
        if self.is_single:
            return x
        rows = x.unflatten(0, (groups, 1, -1))
        padding = (0, 0) * (rows.ndim - 2) + (self.rank, self.size - 1 - self.rank)
        return self.all_reduce(functional.pad(rows, padding)).flatten(0, 2)

    def get_own_rows(self, count: int, groups: int = 1) -> Tensor:
        """Return the indices of this process's rows among the `count` rows of `all_gather`."""
        every = torch.arange(count, device=self.device).view(groups, self.size, -1)
        return every[:, self.rank].flatten()

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of equal precision by their sums over all processes, in one message."""
        if self.is_single:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _translate_errors():
            dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def find_max(self, number: int) -> int:
        """Return the largest number of all processes."""
        if self.is_single:
            return number
        largest = torch.tensor(number, device=self.device)
        with _translate_errors():
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def check_any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return bool(self.find_max(flag))

    def broadcast(self, function: Callable[[], T]) -> T:
        """Call a function in the first process and return its result in all of them; likewise an `EqkinError`."""
        if self.is_single:
            return function()
        outcome: list[Any] = [None, None]  # result, error
        if self.is_first:
            try:
                outcome[0] = function()
            except EqkinError as error:
                outcome[1] = error
        with _translate_errors():
            dist.broadcast_object_list(outcome, 0, device=self.device)
        if outcome[1] is not None:
            raise outcome[1]
        return cast(T, outcome[0])

    def run_on_first(self, function: Callable[[], T]) -> T | None:
        """Call a function in the first process; the others return None. An `EqkinError` is raised in all of them."""
        results: list[T] = []
        self.broadcast(lambda: results.append(function()))
        return results[0] if results else None

    def check_same(self, what: str, value: str) -> None:
        """Raise `BadInput` in all processes unless all have the same value."""
        if self.check_any(value != self.broadcast(lambda: value)):
            raise BadInput(f"the processes of this run were given different {what}: all of them need the same")

    def check_batch_size(self, batch: int) -> None:
        """Raise `BadInput` unless a batch can be divided equally."""
        if batch % self.size:
            near = max(batch // self.size, 1) * self.size
            raise BadInput(
                f"{batch:,} triplets per step cannot be divided among {self.size} processes: try --batch {near}"
            )


SINGLE_PROCESS = ProcessGroup()


def select_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Return some rows; None for all."""
    return x if rows is None else x.index_select(0, rows)


@torch.library.custom_op("eqkin::all_reduce", mutates_args=())
def _all_reduce(x: Tensor) -> Tensor:
    summed = x.clone(memory_format=torch.contiguous_format)
    with _translate_errors():
        dist.all_reduce(summed)
    return summed


@_all_reduce.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_all_reduce.register_autograd(lambda ctx, gradient: _all_reduce(gradient))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn errors of torch.distributed into `Unreachable`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unreachable(
            f"another process of this run ended or no longer responds ({_describe(error)}). Its last output may say "
            "why; start again with --resume to continue from the last checkpoint"
        ) from error


def _describe(error: Exception) -> str:
    """Return the first line of an error of torch.distributed, without locations in its source."""
    return re.sub(r"\[/\S*\] *", "", str(error).strip().partition("\n")[0])[:160]


@dataclass(frozen=True)
class LocalBatch:
    """The trees of one process: its anchors, partners and negatives, an equal share of whole triplets.

    Random numbers that depend on the position of a tree or node use the position in the whole batch, so that the same
    nodes are hidden and the same symbols renamed with any number of processes. Every process draws the numbers of all
    trees, which is cheap, and so knows the positions of all nodes.
    """

    trees: Tensor  # (trees,) their numbers
    rows: Tensor | None  # (trees,) their positions in the whole batch; None: this is the whole batch
    starts: Tensor | None  # (trees,) the positions of their first nodes in the whole batch

    @classmethod
    def from_batch(cls, trees: Tensor, get_sizes: Callable[[Tensor], Tensor], group: ProcessGroup) -> LocalBatch:
        """Return the share of this process, given the trees of the batch and a function that returns their sizes."""
        if group.is_single:
            return cls(trees, None, None)
        rows = group.get_own_rows(len(trees), BATCH_GROUPS)
        sizes = get_sizes(trees)
        return cls(trees[rows], rows, (sizes.cumsum(0) - sizes)[rows])

    def compute_positions(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the positions of nodes in the whole batch, given those in the local one; undefined for padding."""
        if self.starts is None:
            return nodes
        return nodes + (self.starts - trees.offsets[:-1])[trees.tree]


def count_nodes_per_process(sizes: Tensor, group: ProcessGroup) -> Tensor:
    """Return the nodes of each process, (steps, processes), given the sizes of all trees, (steps, trees)."""
    return sizes.view(len(sizes), BATCH_GROUPS, group.size, -1).sum((1, 3))


@contextmanager
def join_process_group(device: torch.device, *, timeout: timedelta = COLLECTIVE_TIMEOUT) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, while the context lasts; without torchrun there is one process.

    Args:
        device: Where to compute. With "cuda", each process of a machine uses its own GPU.
        timeout: How long to wait for a silent process.

    Raises:
        BadInput: A machine has fewer GPUs than processes.
        Unreachable: The processes did not find each other, or one is lost.
    """
    environment = _read_torchrun_environment()
    if environment is None:
        yield ProcessGroup(device=device)
        return
    on_gpu = device.type == "cuda"
    chosen = "nccl" if on_gpu and dist.is_nccl_available() else "gloo"
    if on_gpu:
        device = _choose_gpu(device, environment, shared=chosen != "nccl")
        torch.cuda.set_device(device)
    group = ProcessGroup(environment["RANK"], environment["WORLD_SIZE"], chosen, device)
    _init_process_group(group, timeout)
    succeeded = False
    try:
        yield group
        group.check_any(False)  # wait for all processes: one that leaves early would be missed
        succeeded = True
    finally:
        if succeeded or chosen == "gloo":  # nccl would wait for messages of a lost process
            dist.destroy_process_group()


def _init_process_group(group: ProcessGroup, timeout: timedelta) -> None:
    from torch.distributed.rendezvous import rendezvous

    own_gpu = group.device if group.backend == "nccl" else None
    try:
        shared_store = next(rendezvous("env://", timeout=timeout))[0]
        store = open_fresh_store(shared_store, group.rank, group.size, timeout)
        dist.init_process_group(
            group.backend, store=store, rank=group.rank, world_size=group.size, timeout=timeout, device_id=own_gpu
        )
    except (RuntimeError, ValueError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise Unreachable(
            f"the {group.size} processes of this run did not meet at {address} ({_describe(error)}): "
            "check that the address is right and that every machine can reach it"
        ) from error


def open_fresh_store(store: Store, rank: int, size: int, timeout: timedelta = COLLECTIVE_TIMEOUT) -> Store:
    """Return a new part of the store, the same in all processes.

    Processes that torchrun restarts find the entries of the dead ones, since agents keep one store for all attempts,
    and would try to reach them. So each process but the first writes a token of its own and waits until the first
    answers this token; the first answers the tokens that it finds until every process has read an answer.

    Raises:
        RuntimeError: Not all processes came.
    """
    from torch._C._distributed_c10d import PrefixStore

    if rank:
        token = uuid4().hex
        store.set(f"eqkin/token-{rank}", token)
        name = store.get(f"eqkin/answer-{token}").decode()
        store.set(f"eqkin/{name}-read-by-{rank}", "")
        return PrefixStore(name, store)
    name, end = uuid4().hex, time.monotonic() + timeout.total_seconds()
    for other in range(1, size):
        while not store.check([f"eqkin/{name}-read-by-{other}"]):
            if time.monotonic() > end:
                raise RuntimeError(f"process {other} did not come")
            token = store.get(f"eqkin/token-{other}").decode()
            store.set(f"eqkin/answer-{token}", name)
            time.sleep(_POLL_SECONDS)
    return PrefixStore(name, store)


def require_single_process(what: str) -> None:
    """Raise `BadInput` if torchrun started several processes."""
    environment = _read_torchrun_environment()
    if environment is not None and environment["WORLD_SIZE"] > 1:
        raise BadInput(f"{what} runs in one process: start it without torchrun")


def _read_torchrun_environment() -> dict[str, int] | None:
    """Return the numbers that torchrun gives to this process; None without torchrun."""
    if not all(os.environ.get(name) for name in _REQUIRED_VARIABLES):
        return None
    known = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} | dict(os.environ)
    try:
        return {name: int(known[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    except ValueError as error:
        raise BadInput(f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers, as torchrun sets them ({error})") from error


def _choose_gpu(device: torch.device, environment: dict[str, int], *, shared: bool) -> torch.device:
    available, processes = torch.cuda.device_count(), environment["LOCAL_WORLD_SIZE"]  # of this machine
    if device == torch.device("cuda"):  # any GPU
        if environment["LOCAL_RANK"] >= available:
            raise BadInput(
                f"this machine has {processes} processes and {available} GPUs: use --nproc-per-node {available}"
            )
        return torch.device("cuda", environment["LOCAL_RANK"])
    if processes > 1 and not shared:
        raise BadInput(f"all {processes} processes would use {device}: use --device cuda")
    return device
