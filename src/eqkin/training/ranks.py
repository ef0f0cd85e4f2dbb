"""Processes that learn together: what they sum, what the first of them says, and which rows of a batch are whose.

Each computes the vectors of its own triplets and its own rows of the losses; the losses of all sum to that of the whole
batch. All that crosses processes on the way is a sum (`total`), and the gradient of a sum over processes is the sum of
their gradients. So every weight's gradient, summed over the processes once more, is that of the whole batch, also of
weights that all of them use after a gather.

A gather is a sum of rows that others leave 0. That takes twice the bytes of a gather proper, some MB a step; in turn
there is one operation, which every backend has on every device, and its gradient is right by construction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from eqkin import errors
from eqkin.errors import BadInput, EqkinError, Unreachable

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that learn together. Without others nothing is sent, and sums are what they are of."""

    rank: int = 0  # of this process, from 0
    size: int = 1  # how many there are
    backend: str = ""  # of torch.distributed, "nccl" or "gloo"; empty where there is no process group
    device: torch.device = torch.device("cpu")  # where this process computes

    @property
    def is_single(self) -> bool:
        """Whether there is no process group."""
        return not self.backend

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    @property
    def is_recordable(self) -> bool:
        """Whether what is sent may be part of a recorded CUDA graph."""
        return self.is_single or self.backend == "nccl"

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all processes; differentiable."""
        if self.is_single:
            return x
        summed: Tensor = _all_reduce(x)
        return summed

    def all_reduce_mean(self, x: Tensor) -> Tensor:
        """The mean over all processes; differentiable."""
        return x if self.is_single else self.all_reduce(x) / self.size

    def all_gather(self, x: Tensor, groups: int = 1) -> Tensor:
        """The rows of all processes, in the order in which one process would have them; differentiable.

        Args:
            x: Rows of this process, as many as each other one has.
            groups: How many equal parts `x` consists of (such as anchors, partners and negatives), whose order stays.
        """
        if self.is_single:
            return x
        rows = x.unflatten(0, (groups, 1, -1))
        room = (0, 0) * (rows.ndim - 2) + (self.rank, self.size - 1 - self.rank)
        return self.all_reduce(functional.pad(rows, room)).flatten(0, 2)

    def get_own_rows(self, count: int, groups: int = 1) -> Tensor:
        """Which of `count` rows that `gather` gives are this process's own."""
        every = torch.arange(count, device=self.device).view(groups, self.size, -1)
        return every[:, self.rank].flatten()

    def all_reduce_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one precision by their sums over all processes, in one message."""
        if self.is_single:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _translate_errors():
            dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def find_max(self, number: int) -> int:
        """The largest of the processes' numbers."""
        if self.is_single:
            return number
        told = torch.tensor(number, device=self.device)
        with _translate_errors():
            dist.all_reduce(told, dist.ReduceOp.MAX)
        return int(told)

    def check_any(self, flag: bool) -> bool:
        """Whether any process says so."""
        return bool(self.find_max(flag))

    def run_on_first(self, make: Callable[[], T]) -> T | None:
        """What `make` gives in the first process, None in the others; an error of eqkin's is raised in all of them."""
        if self.is_single:
            return make()
        made = None
        if self.is_first:
            try:
                made = make()
            except EqkinError as error:
                self._broadcast_bytes(f"{type(error).__name__}\0{error}".encode())
                raise
        kind, _, message = self._broadcast_bytes(b"").decode().partition("\0")
        if kind:
            raise getattr(errors, kind, EqkinError)(message)
        return made

    def broadcast(self, make: Callable[[], bytes]) -> bytes:
        """What `make` gives in the first process, in all of them; so is an error."""
        made = self.run_on_first(make)
        return made if self.is_single and made is not None else self._broadcast_bytes(made or b"")

    def _broadcast_bytes(self, said: bytes) -> bytes:
        """What the first process says."""
        size = torch.tensor(len(said), device=self.device)
        with _translate_errors():
            dist.broadcast(size, 0)
            text = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
            if self.is_first:
                text.copy_(torch.from_numpy(np.frombuffer(said, np.uint8).copy()))
            dist.broadcast(text, 0)
        return text.cpu().numpy().tobytes()

    def check_same(self, what: str, value: str) -> None:
        """Raise `BadInput` in all processes if they were not given the same."""
        first = self.broadcast(value.encode)
        if self.check_any(value.encode() != first):
            raise BadInput(f"the processes of this run were given different {what}: all of them need the same")


SINGLE_PROCESS = ProcessGroup()


def select_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Some rows; None for all."""
    return x if rows is None else x.index_select(0, rows)


@torch.library.custom_op("eqkin::total_of_ranks", mutates_args=())
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
    """Says in our words that another process is gone."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unreachable(
            f"another process of this run ended, or does not answer any more ({describe_error(error)}). What it said last may "
            "tell why; started again with --resume, the run goes on from its last checkpoint"
        ) from error


def describe_error(error: Exception) -> str:
    """What torch.distributed says went wrong, without the places in its source."""
    return re.sub(r"\[/\S*\] *", "", str(error).strip().partition("\n")[0])[:160]
