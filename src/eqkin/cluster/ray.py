"""`RayExecutor`: tasks on the nodes of a Ray cluster. Ray handles scheduling, retries and the loss of nodes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from eqkin.errors import BadInput, EqkinError, Unreachable
from eqkin.executor import CRASHED, UNREADABLE, Executor, R, T, WorkerEnvironmentError
from eqkin.version import __version__

LOCAL_CLUSTER = "local"
# Attempts at a task whose worker dies, whose node is lost, or whose machine is at fault.
_MAX_RETRIES = 3
# Tasks submitted ahead of the result that is waited for.
_TASKS_PER_CPU = 3
# Seconds that a server may take to answer.
_CONNECT_SECONDS = 5.0
# By default Ray writes reports to stdout, where results belong, and repeats a task that runs out of memory without end.
_ENVIRONMENT = {
    "RAY_task_oom_retries": str(_MAX_RETRIES),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


class RayExecutor(Executor):
    """The nodes of a Ray cluster. Each needs the same version of eqkin; none needs this machine's files.

    Args:
        address: of the head (HOST:PORT or ray://HOST:PORT), or "auto" for the cluster on this machine. The default is
            `$RAY_ADDRESS`; if that is not set either, a cluster is started here and stopped at the end.
        cpus: of the cluster that is started here.

    Raises:
        BadInput: Ray is not installed.
        Unreachable: no cluster answers at the address, or it cannot be started here.
    """

    is_remote = True

    def __init__(self, address: str | None = None, cpus: int = 1) -> None:
        self._ray = _import_ray()
        self._is_own_connection = not self._ray.is_initialized()
        self._done = 0
        self._under_way = 0
        if self._is_own_connection:
            _connect(self._ray, address or os.environ.get("RAY_ADDRESS") or LOCAL_CLUSTER, cpus)
        self.nodes = len(self._list_nodes())

    def close(self) -> None:
        """Leave the cluster; one that was started here is stopped."""
        if self._is_own_connection:
            self._ray.shutdown()

    def describe_progress(self) -> str:
        """Return the number of nodes, and of tasks by state."""
        nodes = f"{self.nodes:,} node{'s' * (self.nodes != 1)}"
        return f"{nodes}, tasks: {self._done:,} done, {self._under_way:,} under way"

    def map(
        self, function: Callable[[T], R], tasks: Iterable[T], *, on_failure: Callable[[T, str, str], R]
    ) -> Iterator[R]:
        """Yield the results of all tasks. Ray repeats what a dead worker, a lost node or a faulty machine left undone.

        Raises:
            BadInput: a node has another version of eqkin, or none.
        """
        settings = {"num_cpus": 1, "max_retries": _MAX_RETRIES, "retry_exceptions": [WorkerEnvironmentError]}
        run = self._ray.remote(**settings, scheduling_strategy="SPREAD")(_run_task)
        shared = self._ray.put(function)
        remaining = iter(tasks)
        waiting: deque[tuple[T, Any]] = deque()
        self._done = 0
        while True:
            ahead = _TASKS_PER_CPU * int(self._ray.cluster_resources().get("CPU", 1))
            for task in islice(remaining, max(ahead - len(waiting), 0)):
                waiting.append((task, run.remote(__version__, shared, task)))
            self._under_way = len(waiting)
            if not waiting:
                return
            task, reference = waiting.popleft()
            try:
                result: R = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                result = on_failure(task, *self._explain_failure(error))
            self._done += 1
            self.nodes = len(self._list_nodes())
            yield result

    def _explain_failure(self, error: Exception) -> tuple[str, str]:
        """Return why a task failed, in short and at length; raise if every other task would fail alike."""
        message = (str(error).strip() or repr(error)).splitlines()[-1]
        if not isinstance(error, self._ray.exceptions.RayTaskError):
            return CRASHED, message
        if isinstance(error.cause, WorkerEnvironmentError):
            return UNREADABLE, str(error.cause)
        if isinstance(error.cause, EqkinError):
            raise error.cause
        raise BadInput(
            f"a node of the Ray cluster cannot run eqkin ({message}): install the same eqkin, Python and packages on "
            "all nodes"
        ) from error

    def _list_nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0)]


def _run_task(version: str, function: Callable[[Any], Any], task: Any) -> Any:
    """Run a task on a node."""
    here = socket.gethostname()
    if version != __version__:
        raise BadInput(
            f"node {here} of the Ray cluster has eqkin {__version__}, this machine eqkin {version}: "
            "install the same eqkin on all nodes"
        )
    try:
        return function(task)
    except (WorkerEnvironmentError, OSError) as error:
        raise WorkerEnvironmentError(f"{str(error) or repr(error)} (on {here})") from error


def _import_ray() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise BadInput(f"the engine `ray` needs Ray ({error}): pip install 'eqkin[ray]'") from error
    return ray


def _connect(ray: Any, address: str, cpus: int) -> None:
    """Connect this process to a cluster; raises `Unreachable`."""
    options: dict[str, object] = {}
    if address == LOCAL_CLUSTER:
        options = {"num_cpus": cpus, "include_dashboard": False}
    elif address != "auto":
        _check_server(address)
    if "://" not in address:
        options |= {"log_to_driver": False, "logging_level": logging.CRITICAL}
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        with _keep_signal_handler():
            ray.init(address=address, **options)
    # Ray also raises plain exceptions.
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise Unreachable(
            f"no Ray cluster at {address} ({reason}); run the command on a node of the cluster, with the Python and "
            "Ray of its other nodes, and give the address that `ray start --head` printed"
        ) from error


def _check_server(address: str) -> None:
    """Raise `Unreachable` if no server answers: Ray itself would keep trying for minutes."""
    place = address.rpartition("://")[2].partition("/")[0]
    host, _, port = place.rpartition(":")
    if not port.isdecimal() or not host:
        raise BadInput(f"{address}: not the address of a Ray cluster; write HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise Unreachable(f"no Ray cluster answers at {place} ({error}); is it running?") from error


@contextmanager
def _keep_signal_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM: Ray replaces it, and what was read would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
