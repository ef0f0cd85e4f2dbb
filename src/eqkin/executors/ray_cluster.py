"""Work done by a Ray cluster: tasks on its nodes, results in order; what is lost with a worker or a node is done again.

Ray schedules tasks and carries them; which ones are tried again, and how often, is decided here:

- a node is lost, or a result with it: again, on what is left of the cluster;
- a worker process died: again, part by part in processes of their own, so that a crash costs one part;
- a machine is in trouble (its disk is full, it does not see a path): on another one, at last where the command runs;
- nothing helped: the task is given up, with the reason, and the others go on.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic

from eqkin.errors import BadInput, Unreachable
from eqkin.executors import Executor, ExecutorProgress, Grain, R, T, Work
from eqkin.executors.ray_connection import connect_ray, import_ray, is_connection_refused
from eqkin.executors.ray_tasks import TaskOutcome, do_task, unpack_results

_TRIES = 3  # of a task that machines have trouble with
_LOSSES = 10  # of nodes and processes that a task may survive
_LOOK = 2.0  # seconds between two looks at the cluster's size
_AHEAD = 4  # results that are brought here before it is their turn
_WAIT = 1.0  # seconds at a time, so that interrupts come through
_KEPT = "; what was done is kept: run the same command again when there is one"
_NOBODY = 300.0  # seconds a cluster may be without any CPU; it may be growing
_AWAY = 20.0  # seconds the cluster's head may be away; after 60 Ray ends the process


class RayExecutor(Executor):
    """The nodes of a Ray cluster. eqkin has to be installed on each, in the same version.

    Args:
        address: see `eqkin.executors.open_workers`.
        cpus: of the cluster that is started here if there is no address.

    Raises:
        BadInput: Ray is not installed.
        Unreachable: no cluster answers at the address.
    """

    grain = Grain(papers=200, bytes=32_000_000, shards=True)

    def __init__(self, address: str | None = None, cpus: int = 1) -> None:
        super().__init__()
        self._connected = connect_ray(address, cpus)
        self._ray: Any = import_ray()
        self._cpus = 0
        self._looked = 0.0
        self._manned = self._answered = time.monotonic()  # when there was a CPU, and a head, for the last time
        here = self._ray.get_runtime_context()
        self.home: str = here.get_node_id()
        self._head = self._raylet = ""  # where to look whether they are there; from afar that cannot be seen
        if not self._ray.util.client.ray.is_connected():
            self._head, self._raylet = str(here.gcs_address), self._address_of(self.home)
        self.count_cpus()

    def close(self) -> None:
        """Leave the cluster; one that was started here is stopped."""
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    def map(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of all tasks, in their order. Some twice as many tasks as the cluster has CPUs are under way.

        Raises:
            BadInput: a node has another eqkin, or none.
            Unreachable: the cluster has had no node to work on for minutes.
        """
        self.tally = ExecutorProgress(nodes=self.tally.nodes)
        return _Line(self, self._ray, work).results(iter(tasks))

    def list_nodes(self) -> list[str]:
        """The nodes that are alive and have CPUs."""
        alive = (node for node in self._ray.nodes() if node["Alive"])
        return [str(node["NodeID"]) for node in alive if node["Resources"].get("CPU", 0)]

    def _address_of(self, node: str) -> str:
        found = next((n for n in self._ray.nodes() if n["NodeID"] == node), None)
        return f"{found['NodeManagerAddress']}:{found['NodeManagerPort']}" if found else ""

    def count_cpus(self) -> int:
        """CPUs of the cluster, looked up now and then; raises `Unreachable` where there is no cluster any more."""
        now = time.monotonic()
        if now - self._looked > _LOOK:
            self._looked = now
            self._look(now)
        return self._cpus

    def _look(self, now: float) -> None:
        if is_connection_refused(self._raylet):  # the process would be ended by Ray in a few seconds, without a word
            raise Unreachable(f"the part of the Ray cluster on this machine has ended ({self._raylet}){_KEPT}")
        if not is_connection_refused(self._head):
            self._answered = now
            self._cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self.tally.nodes = max(len(self.list_nodes()), 1)
        elif now - self._answered > _AWAY:
            raise Unreachable(f"the head of the Ray cluster does not answer any more ({self._head}){_KEPT}")
        if self._cpus:
            self._manned = now
        elif now - self._manned > _NOBODY:
            raise Unreachable(f"the Ray cluster has had no node to work on for {_NOBODY:.0f} seconds{_KEPT}")


@dataclass
class _Errand(Generic[T]):
    """A task on its way."""

    task: T
    outcome: Any = None  # Ray's references
    results: Any = None
    finished: bool = False
    troubles: int = 0
    losses: int = 0
    apart: bool = False  # a process died of it, perhaps
    avoided: set[str] = field(default_factory=set)  # nodes in trouble
    given_up: tuple[str, str] | None = None  # the reason in short and at length


class _Line(Generic[T, R]):
    """Tasks that have been sent and whose results have not been given yet, in order."""

    def __init__(self, cluster: RayExecutor, ray: Any, work: Work[T, R]) -> None:
        self._cluster, self._ray, self._work = cluster, ray, work
        self._stamp = work.stamp()
        self._sent_work = ray.put(work)
        self._do = ray.remote(num_cpus=1, num_returns=2, max_retries=0)(do_task)
        self._full = (ray.exceptions.OutOfDiskError, ray.exceptions.ObjectStoreFullError)
        self._line: deque[_Errand[T]] = deque()

    def results(self, tasks: Iterator[T]) -> Iterator[R]:
        # Nothing is cancelled when this is left early: Ray may abort the process over a task that ends at that moment.
        # What is under way ends by itself, or with the connection.
        while self._filled(tasks):
            self._settle()
            if self._line[0].finished:
                errand = self._line.popleft()
                results = self._fetched(errand)
                self._fetch_ahead()
                if results is None:
                    self._line.appendleft(errand)
                else:
                    yield from results

    def _filled(self, tasks: Iterator[T]) -> bool:
        """Send tasks as long as the cluster can use them; whether there are any left to wait for."""
        cpus = max(self._cluster.count_cpus(), 1)
        while self._under_way() < 2 * cpus and len(self._line) < 4 * cpus:
            try:
                errand = _Errand(next(tasks))
            except StopIteration:
                break
            self._line.append(errand)
            self._send(errand)
        self._count()
        return bool(self._line)

    def _under_way(self) -> int:
        return sum(not errand.finished for errand in self._line)

    def _count(self) -> None:
        self._cluster.tally.under_way = self._under_way()

    def _send(self, errand: _Errand[T]) -> None:
        last = errand.troubles + 1 >= _TRIES
        errand.finished = False
        errand.outcome, errand.results = self._do.options(scheduling_strategy=self._place(errand, last)).remote(
            self._stamp, self._sent_work, errand.task, last, errand.apart
        )

    def _place(self, errand: _Errand[T], last: bool) -> Any:
        """Where a task should be done: anywhere, unless it belongs here or some nodes are to be avoided."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ""
        if last or self._work.at_home(errand.task):
            node = self._cluster.home
        elif errand.avoided:
            others = [node for node in self._cluster.list_nodes() if node not in errand.avoided]
            node = random.choice(others) if others else ""
        return NodeAffinitySchedulingStrategy(node, soft=True) if node else "DEFAULT"

    def _settle(self) -> None:
        """Note what became of tasks that ended; if the first in line has not, wait a while until one does."""
        waiting = {errand.outcome: errand for errand in self._line if not errand.finished}
        if not waiting:
            return
        patience = 0 if self._line[0].finished else _WAIT
        ready, rest = self._ray.wait(list(waiting), num_returns=1, timeout=patience)
        if rest and ready:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for reference in ready:
            self._judge(waiting[reference])
        self._count()

    def _judge(self, errand: _Errand[T]) -> None:
        """Whether a task that ended was done, is to be tried again, or is given up."""
        errors = self._ray.exceptions
        try:
            outcome: TaskOutcome = self._ray.get(errand.outcome)
        except errors.RayTaskError as error:
            if isinstance(error.cause, self._full):
                self._lost(errand, error.cause)
                return
            raise BadInput(
                f"a node of the Ray cluster cannot do the work of eqkin ({_last_line(error)}): install the same eqkin, "
                f"Python and packages on all nodes ({self._stamp})"
            ) from error
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            self._died(errand, error)
        except errors.RayError as error:
            self._lost(errand, error)
        else:
            self._heard(errand, outcome)

    def _heard(self, errand: _Errand[T], outcome: TaskOutcome) -> None:
        if outcome.refused:
            raise BadInput(
                f"node {outcome.host} of the Ray cluster has {outcome.refused}, this machine {self._stamp}: "
                "install the same eqkin on all nodes"
            )
        if outcome.trouble or outcome.error:
            errand.troubles += 1
            errand.avoided.add(outcome.node)
            reason = "worker in trouble" if outcome.trouble else "internal error"
            message = f"{outcome.trouble or outcome.error} (on {outcome.host})"
            self._again(errand, errand.troubles < _TRIES, reason, message)
        else:
            errand.finished = True
            self._cluster.tally.done += 1

    def _died(self, errand: _Errand[T], error: Exception) -> None:
        if errand.apart:  # what the task does happens in another process: this one was killed
            self._lost(errand, error)
        else:
            errand.apart = True
            self._again(errand, True, "crash", _last_line(error))

    def _lost(self, errand: _Errand[T], error: Exception) -> None:
        full = isinstance(error, self._full)
        errand.losses += 1
        message = "the disk of a node is full" if full else _last_line(error)
        self._again(errand, errand.losses <= (_TRIES if full else _LOSSES), "worker in trouble", message)

    def _again(self, errand: _Errand[T], willing: bool, reason: str, message: str) -> None:
        if willing:
            self._cluster.tally.retried += 1
            self._send(errand)
        else:
            errand.finished, errand.given_up = True, (reason, message)
            self._cluster.tally.done += 1

    def _fetch_ahead(self) -> None:
        """Have the next results brought here while the last ones are dealt with."""
        ahead = [errand.results for errand in islice(self._line, _AHEAD) if errand.finished and not errand.given_up]
        if ahead:
            self._ray.wait(ahead, num_returns=len(ahead), timeout=0)

    def _fetched(self, errand: _Errand[T]) -> list[R] | None:
        """The results of a task that ended; None if they were lost since, and it was sent again."""
        if errand.given_up:
            return list(self._work.given_up(errand.task, *errand.given_up))
        try:
            return unpack_results(self._ray.get(errand.results))
        except self._ray.exceptions.RayError as error:
            self._cluster.tally.done -= 1
            self._lost(errand, error)
            return None


def _last_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[-1]
