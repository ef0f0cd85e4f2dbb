"""Joining the processes that torchrun started: one a GPU, on one machine or several; without torchrun there is one.

Gradients are summed by one message a step (`Ranks.add_up`), not by `DistributedDataParallel`: that takes means where
the losses here add up, sends every process's batch statistics where these are summed already, and brings hooks into
the backward pass that would have to be recorded too. The networks have some million weights: nothing is gained by
sending the first gradients while the last are computed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import torch
import torch.distributed as dist

from eqkin.errors import BadInput, Unreachable
from eqkin.learning.ranks import Ranks, reason

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

PATIENCE = timedelta(minutes=30)  # with a process that is there and says nothing; one that died is noticed at once
_PAUSE = 0.02  # seconds between two looks for an answer
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class _Place:
    """What torchrun says about this process."""

    rank: int
    size: int
    local: int  # among those of this machine
    neighbours: int  # how many this machine has
    meeting: str  # where all of them meet


@contextmanager
def joined(device: torch.device, *, backend: str | None = None, patience: timedelta = PATIENCE) -> Iterator[Ranks]:
    """This process among those that torchrun started, while the context lasts.

    Args:
        device: Where to compute. "cuda" is a GPU of its own for each process of a machine.
        backend: Of torch.distributed; by default nccl on GPUs and gloo on CPUs.
        patience: How long to wait for a process that says nothing.

    Raises:
        BadInput: A machine has fewer GPUs than processes.
        Unreachable: The processes did not find each other, or one is lost.
    """
    place = _place()
    if place is None:
        yield Ranks(device=device)
        return
    on_gpu = device.type == "cuda"
    chosen = backend or ("nccl" if on_gpu and dist.is_nccl_available() else "gloo")
    if on_gpu:
        device = _own_gpu(device, place, shared=chosen != "nccl")
        torch.cuda.set_device(device)
    ranks = Ranks(place.rank, place.size, chosen, device)
    _meet(ranks, place.meeting, patience)
    well = False
    try:
        yield ranks
        ranks.any(False)  # all of them are done: whoever leaves early would be missed
        well = True
    finally:
        if well or chosen == "gloo":  # nccl would wait for what a lost process will never send
            dist.destroy_process_group()


def _meet(ranks: Ranks, where: str, patience: timedelta) -> None:
    """Make the process group; raises `Unreachable`."""
    from torch.distributed.rendezvous import rendezvous

    rank, size = ranks.rank, ranks.size
    own_gpu = ranks.device if ranks.backend == "nccl" else None
    try:
        store = fresh(next(rendezvous("env://", timeout=patience))[0], rank, size, patience)
        dist.init_process_group(
            ranks.backend, store=store, rank=rank, world_size=size, timeout=patience, device_id=own_gpu
        )
    except (RuntimeError, ValueError) as error:
        raise Unreachable(
            f"the {size} processes of this run did not meet at {where} ({reason(error)}): "
            "is that address right, and can every machine reach it?"
        ) from error


def fresh(store: Store, rank: int, size: int, patience: timedelta = PATIENCE) -> Store:
    """A part of the store, the same in all processes, in which none has written yet.

    Processes that torchrun started again find what the dead ones wrote, and would call on them. So each but the first
    leaves a word of its own, and waits for the first to answer that very word; the first goes on answering the words it
    finds until everyone has heard. Raises `RuntimeError` if not all of them come.
    """
    from torch._C._distributed_c10d import PrefixStore

    if rank:
        word = uuid4().hex
        store.set(f"eqkin/word-of-{rank}", word)
        name = store.get(f"eqkin/answer-to-{word}").decode()
        store.set(f"eqkin/{name}-heard-by-{rank}", "")
        return PrefixStore(name, store)
    name, end = uuid4().hex, time.monotonic() + patience.total_seconds()
    for other in range(1, size):
        while not store.check([f"eqkin/{name}-heard-by-{other}"]):
            if time.monotonic() > end:
                raise RuntimeError(f"process {other} did not come")
            word = store.get(f"eqkin/word-of-{other}").decode()
            store.set(f"eqkin/answer-to-{word}", name)
            time.sleep(_PAUSE)
    return PrefixStore(name, store)


def refuse_company(what: str) -> None:
    """Raise `BadInput` where torchrun started several processes, for what one process has to do."""
    place = _place()
    if place is not None and place.size > 1:
        raise BadInput(f"{what} runs in one process: start it without torchrun")


def _place() -> _Place | None:
    """Where torchrun put this process; None without torchrun."""
    told = os.environ
    if not all(told.get(name) for name in _NEEDED):
        return None
    try:
        rank, size = int(told["RANK"]), int(told["WORLD_SIZE"])
        local, neighbours = int(told.get("LOCAL_RANK", 0)), int(told.get("LOCAL_WORLD_SIZE", 1))
    except ValueError as error:
        raise BadInput(f"RANK, WORLD_SIZE and LOCAL_RANK are numbers that torchrun sets ({error})") from error
    return _Place(rank, size, local, neighbours, f"{told['MASTER_ADDR']}:{told['MASTER_PORT']}")


def _own_gpu(device: torch.device, place: _Place, *, shared: bool) -> torch.device:
    there = torch.cuda.device_count()
    if device == torch.device("cuda"):  # whichever
        if place.local >= there:
            raise BadInput(
                f"there are {place.neighbours} processes on this machine and {there} GPUs: --nproc-per-node {there}"
            )
        return torch.device("cuda", place.local)
    if place.neighbours > 1 and not shared:
        raise BadInput(f"{device} would be the GPU of all {place.neighbours} processes: use --device cuda")
    return device
