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
from eqkin.training.ranks import ProcessGroup, describe_error

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

COLLECTIVE_TIMEOUT = timedelta(
    minutes=30
)  # with a process that is there and says nothing; one that died is noticed at once
_POLL_SECONDS = 0.02  # seconds between two looks for an answer
_REQUIRED_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class _TorchrunEnvironment:
    """What torchrun says about this process."""

    rank: int
    size: int
    local_rank: int  # among those of this machine
    local_size: int  # how many this machine has
    address: str  # where all of them meet


@contextmanager
def join_process_group(
    device: torch.device, *, backend: str | None = None, patience: timedelta = COLLECTIVE_TIMEOUT
) -> Iterator[ProcessGroup]:
    """This process among those that torchrun started, while the context lasts.

    Args:
        device: Where to compute. "cuda" is a GPU of its own for each process of a machine.
        backend: Of torch.distributed; by default nccl on GPUs and gloo on CPUs.
        patience: How long to wait for a process that says nothing.

    Raises:
        BadInput: A machine has fewer GPUs than processes.
        Unreachable: The processes did not find each other, or one is lost.
    """
    place = _read_torchrun_environment()
    if place is None:
        yield ProcessGroup(device=device)
        return
    on_gpu = device.type == "cuda"
    chosen = backend or ("nccl" if on_gpu and dist.is_nccl_available() else "gloo")
    if on_gpu:
        device = _choose_gpu(device, place, shared=chosen != "nccl")
        torch.cuda.set_device(device)
    ranks = ProcessGroup(place.rank, place.size, chosen, device)
    _init_process_group(ranks, place.address, patience)
    well = False
    try:
        yield ranks
        ranks.check_any(False)  # all of them are done: whoever leaves early would be missed
        well = True
    finally:
        if well or chosen == "gloo":  # nccl would wait for what a lost process will never send
            dist.destroy_process_group()


def _init_process_group(ranks: ProcessGroup, where: str, patience: timedelta) -> None:
    """Make the process group; raises `Unreachable`."""
    from torch.distributed.rendezvous import rendezvous

    rank, size = ranks.rank, ranks.size
    own_gpu = ranks.device if ranks.backend == "nccl" else None
    try:
        store = open_fresh_store(next(rendezvous("env://", timeout=patience))[0], rank, size, patience)
        dist.init_process_group(
            ranks.backend, store=store, rank=rank, world_size=size, timeout=patience, device_id=own_gpu
        )
    except (RuntimeError, ValueError) as error:
        raise Unreachable(
            f"the {size} processes of this run did not meet at {where} ({describe_error(error)}): "
            "is that address right, and can every machine reach it?"
        ) from error


def open_fresh_store(store: Store, rank: int, size: int, patience: timedelta = COLLECTIVE_TIMEOUT) -> Store:
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
            time.sleep(_POLL_SECONDS)
    return PrefixStore(name, store)


def require_single_process(what: str) -> None:
    """Raise `BadInput` where torchrun started several processes, for what one process has to do."""
    place = _read_torchrun_environment()
    if place is not None and place.size > 1:
        raise BadInput(f"{what} runs in one process: start it without torchrun")


def _read_torchrun_environment() -> _TorchrunEnvironment | None:
    """Where torchrun put this process; None without torchrun."""
    told = os.environ
    if not all(told.get(name) for name in _REQUIRED_VARIABLES):
        return None
    try:
        rank, size = int(told["RANK"]), int(told["WORLD_SIZE"])
        local, neighbours = int(told.get("LOCAL_RANK", 0)), int(told.get("LOCAL_WORLD_SIZE", 1))
    except ValueError as error:
        raise BadInput(f"RANK, WORLD_SIZE and LOCAL_RANK are numbers that torchrun sets ({error})") from error
    return _TorchrunEnvironment(rank, size, local, neighbours, f"{told['MASTER_ADDR']}:{told['MASTER_PORT']}")


def _choose_gpu(device: torch.device, place: _TorchrunEnvironment, *, shared: bool) -> torch.device:
    there = torch.cuda.device_count()
    if device == torch.device("cuda"):  # whichever
        if place.local_rank >= there:
            raise BadInput(
                f"there are {place.local_size} processes on this machine and {there} GPUs: --nproc-per-node {there}"
            )
        return torch.device("cuda", place.local_rank)
    if place.local_size > 1 and not shared:
        raise BadInput(f"{device} would be the GPU of all {place.local_size} processes: use --device cuda")
    return device
