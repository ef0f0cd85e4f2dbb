"""Who does the work: processes of this machine, or a Ray cluster; results come in the order of the tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from eqkin.errors import BadInput

__all__ = ["EXECUTOR_NAMES", "Grain", "ExecutorProgress", "WorkerEnvironmentError", "Work", "Executor", "open_executor"]

EXECUTOR_NAMES = ("processes", "ray")
T = TypeVar("T")
R = TypeVar("R")


class WorkerEnvironmentError(Exception):
    """The machine is at fault, not the task: its disk is full, it does not see a path. Another one may do better."""


class Work(ABC, Generic[T, R]):
    """What is done with a task; an instance is sent to the workers, whose own eqkin does the rest."""

    @abstractmethod
    def do(self, task: T, last: bool = True) -> Iterator[R]:
        """The results of a task, in order.

        Raises `Trouble` where the machine is at fault, unless this is the `last` try: then as much is done as can be.
        """

    def parts(self, task: T, last: bool = True) -> Iterator[T]:
        """The same task in its smallest parts: how the one is found that ends the process it is done in.

        Raises `Trouble` as `do` does.
        """
        yield task

    @abstractmethod
    def given_up(self, task: T, reason: str, message: str) -> Iterator[R]:
        """What takes the place of the results of a task that nobody could do; may raise."""

    def at_home(self, task: T) -> bool:
        """Whether a task can be done only where the command was started."""
        return False

    def stamp(self) -> str:
        """What has to be the same on all machines for the results to be; shown when it is not."""
        from eqkin.version import __version__

        return f"eqkin {__version__}"


@dataclass
class ExecutorProgress:
    """How far the work is: tasks by what became of them, and the nodes of the cluster, 0 for this machine alone."""

    done: int = 0
    under_way: int = 0
    retried: int = 0
    nodes: int = 0

    def describe(self) -> str:
        """In words; nothing for this machine alone, whose tasks are small."""
        if not self.nodes:
            return ""
        nodes = f"{self.nodes:,} node{'s' * (self.nodes != 1)}"
        return f"{nodes}, tasks: {self.done:,} done, {self.under_way:,} under way, {self.retried:,} retried"


@dataclass(frozen=True)
class Grain:
    """How large a task should be."""

    papers: int
    bytes: int
    shards: bool = False  # tar shards are opened by the workers, and whole ones are tasks


class Executor(ABC):
    """Those who do the work. A context manager: what was started for it is stopped at its end."""

    grain: Grain

    def __init__(self) -> None:
        self.tally = ExecutorProgress()  # of the last `map`

    @abstractmethod
    def map(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of all tasks, in their order; few tasks are under way at a time, whatever their number."""

    @abstractmethod
    def close(self) -> None:
        """Stop what was started."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_executor(engine: str = "processes", jobs: int = 1, address: str | None = None) -> Executor:
    """Workers by the name of their engine.

    Args:
        engine: "processes" of this machine, or "ray".
        jobs: how many processes; of Ray: CPUs of the one that is started here.
        address: of a running Ray cluster, "auto" for the one on this machine; by default `$RAY_ADDRESS`, and if that
            is not set, one is started here and stopped at the end.

    Raises:
        BadInput: there is no such engine, or what it needs is not installed.
        Unreachable: no cluster answers at the address.
    """
    if engine == "ray":
        from eqkin.executors.ray_cluster import RayExecutor

        return RayExecutor(address, jobs)
    if engine != "processes":
        raise BadInput(f"{engine!r}: there is no such engine; choose one of {', '.join(EXECUTOR_NAMES)}")
    if address:
        raise BadInput("the address of a Ray cluster is of no use to the engine `processes`; choose --engine ray")
    from eqkin.executors.processes import LocalExecutor

    return LocalExecutor(jobs)
