"""Other systems that keep or process a collection: Milvus and Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.executor import Executor

__all__ = ["EXECUTOR_NAMES", "open_executor"]

EXECUTOR_NAMES = ("processes", "ray")


def open_executor(engine: str = "processes", jobs: int = 1, address: str | None = None) -> Executor:
    """Return an executor by the name of its engine.

    Args:
        engine: "processes" of this machine, or "ray".
        jobs: number of processes; for Ray, CPUs of a cluster that is started here.
        address: of a Ray cluster, see `eqkin.cluster.ray.RayExecutor`.

    Raises:
        BadInput: there is no such engine, or it is not installed.
        Unreachable: no cluster answers at the address.
    """
    if engine == "ray":
        from eqkin.cluster.ray import RayExecutor

        return RayExecutor(address, jobs)
    if engine != "processes":
        raise BadInput(f"{engine!r}: no such engine; choose one of {', '.join(EXECUTOR_NAMES)}")
    if address:
        raise BadInput("an address of a Ray cluster needs --engine ray")
    from eqkin.executor import LocalExecutor

    return LocalExecutor(jobs)
