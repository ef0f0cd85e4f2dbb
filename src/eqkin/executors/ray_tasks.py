"""What runs on a node of a Ray cluster: one task, done by the eqkin that is installed there."""

from __future__ import annotations

import pickle
import socket
from dataclasses import dataclass, replace
from typing import Any

import zstandard

from eqkin.errors import EqkinError
from eqkin.executors import Work, WorkerEnvironmentError
from eqkin.executors.processes import run_isolated


@dataclass(frozen=True)
class TaskOutcome:
    """Where a task was done, and why it was not; its results travel beside this, which is small."""

    host: str
    node: str
    refused: str = ""  # the stamp of the eqkin there, if it is another one
    trouble: str = ""  # what another machine may not have
    error: str = ""  # what nobody expected


def do_task(stamp: str, work: Work[Any, Any], task: Any, last: bool, apart: bool) -> tuple[TaskOutcome, bytes]:
    """Do a task; never raises.

    Args:
        stamp: of the machine that sent the task.
        work: what to do.
        task: with what.
        last: nobody else will try after this.
        apart: a process died of it: do it part by part in a process of its own.
    """
    import ray

    here = TaskOutcome(socket.gethostname(), ray.get_runtime_context().get_node_id())
    try:
        mine = work.stamp()
    except EqkinError as error:
        mine = str(error)
    if mine != stamp:
        return replace(here, refused=mine), b""
    try:
        results = list(run_isolated(work, task, last) if apart else work.do(task, last))
        return here, pack_results(results)
    except (WorkerEnvironmentError, OSError) as error:
        return replace(here, trouble=str(error) or repr(error)), b""
    except Exception as error:  # the border between tasks: one that surprises us is not the others' loss
        return replace(here, error=repr(error)), b""


def pack_results(results: list[Any]) -> bytes:
    """Results as Ray would send them, at a third of the size: text makes up most of them."""
    return zstandard.compress(pickle.dumps(results, pickle.HIGHEST_PROTOCOL), 1)


def unpack_results(payload: bytes) -> list[Any]:
    """The results in what a node of one's own cluster sent."""
    results: list[Any] = pickle.loads(zstandard.decompress(payload))
    return results
