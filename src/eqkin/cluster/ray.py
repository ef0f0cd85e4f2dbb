"""`RayExecutor`: tasks on the nodes of a Ray cluster. Ray handles scheduling, retries and the loss of nodes."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import zstandard

from eqkin.errors import BadInput, EqkinError, StorageFailed, Unreachable
from eqkin.executor import CRASHED, UNREADABLE, Executor, ExecutorProgress, Outcome, T, WorkerEnvironmentError
from eqkin.version import __version__

LOCAL_CLUSTER = "local"
_MAX_RETRIES = 3  # of a task whose worker dies or whose node is lost (by Ray), or whose machine is at fault
_TASKS_PER_CPU = 3  # submitted ahead of the result that is waited for
_PREFETCHED_RESULTS = 4  # brought to this machine before it is their turn
_POLL_SECONDS = 1.0  # of one wait, so that interrupts come through
_CLUSTER_POLL_SECONDS = 2.0  # between two looks at the cluster's size
_CONNECT_SECONDS = 5.0  # a server may take to answer
_MAX_HEAD_SECONDS = 20.0  # the cluster's head may be away; after 60 Ray ends the process
_MAX_EMPTY_SECONDS = 300.0  # the cluster may have no CPU; it may be growing
_KEPT = "; what was done is kept: run the same command again when the cluster is back"
# By default Ray reports retries and deaths itself, partly to stdout, where results belong, and repeats a task that runs
# out of memory without end.
_ENVIRONMENT = {
    "RAY_task_oom_retries": str(_MAX_RETRIES),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


class RayExecutor(Executor):
    """The nodes of a Ray cluster. Each needs the same version of eqkin.

    Args:
        address: of the head (HOST:PORT or ray://HOST:PORT), or "auto" for the cluster on this machine. The default is
            `$RAY_ADDRESS`; if that is not set either, a cluster is started here and stopped at the end.

    Raises:
        BadInput: Ray is not installed.
        Unreachable: no cluster answers at the address.
        StorageFailed: a cluster cannot be started here because the disk is full.
    """

    is_remote = True
    batch_size = 200

    def __init__(self, address: str | None = None, cpus: int = 1) -> None:
        super().__init__()
        self._connected = connect_ray(address, cpus)
        self._ray: Any = import_ray()
        self._cpus = 0
        self._last_poll = 0.0
        self._last_cpu_seen = self._last_head_seen = time.monotonic()
        # Where to see whether head and local node are alive; a Ray client cannot see that.
        self._head = self._local_node = self._local_node_id = ""
        if not self._ray.util.client.ray.is_connected():
            context = self._ray.get_runtime_context()
            self._head = str(context.gcs_address)
            nodes = {node["NodeID"]: node for node in self._ray.nodes()}
            if node := nodes.get(context.get_node_id()):
                self._local_node_id = node["NodeID"]
                self._local_node = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        self.count_cpus()

    def close(self) -> None:
        """Leave the cluster; one that was started here is stopped."""
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    def iter_outcomes(
        self, function: Callable[[T], Any], tasks: Iterator[T], progress: ExecutorProgress
    ) -> Iterator[Outcome[T]]:
        """Yield the outcomes of all tasks.

        Ray repeats a task whose worker dies or whose node is lost; one that fails because of its machine is repeated
        here on other nodes, at last on the one where the command runs: its user sees the sources there.

        Raises:
            BadInput: a node has another version of eqkin, or none.
            Unreachable: the cluster is gone, or has had no CPU for minutes.
        """
        remote = self._ray.remote(num_cpus=1, max_retries=_MAX_RETRIES, scheduling_strategy="SPREAD")(_run_task)
        shared = self._ray.put(function)

        def submit(task: T, **options: Any) -> Any:
            return remote.options(**options).remote(__version__, shared, task)

        # Nothing is cancelled when this is left early: Ray may abort the process over a task that ends at that moment.
        waiting: deque[tuple[T, Any, list[str]]] = deque()  # with Ray's reference, and nodes whose machine failed
        while True:
            free = _TASKS_PER_CPU * max(self.count_cpus(), 1) - len(waiting)
            waiting += [(task, submit(task), []) for task in islice(tasks, max(free, 0))]
            progress.under_way = len(waiting)
            if not waiting:
                return
            if not self._ray.wait([waiting[0][1]], timeout=_POLL_SECONDS)[0]:
                continue
            task, reference, failed_nodes = waiting.popleft()
            if waiting:  # start to bring the next results here
                self._ray.wait([later[1] for later in islice(waiting, _PREFETCHED_RESULTS)], timeout=0)
            try:
                result: bytes | _MachineFault = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                yield Outcome(task, failure=self._explain_failure(error))
                continue
            if isinstance(result, bytes):
                yield Outcome(task, pickle.loads(zstandard.decompress(result)))
                continue
            failed_nodes.append(result.node)
            others = [node["NodeID"] for node in self._list_nodes() if node["NodeID"] not in failed_nodes]
            if not others or len(failed_nodes) > _MAX_RETRIES:
                yield Outcome(task, failure=(UNREADABLE, result.message))
                continue
            self.progress.retried += 1
            is_last = len(failed_nodes) == _MAX_RETRIES and self._local_node_id in others
            node_id = self._local_node_id if is_last else others[0]
            strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=True)
            waiting.appendleft((task, submit(task, scheduling_strategy=strategy), failed_nodes))

    def _explain_failure(self, error: Exception) -> tuple[str, str]:
        """Return why a task failed, in short and at length; raise if every other task would fail alike."""
        errors = self._ray.exceptions
        message = (str(error).strip() or repr(error)).splitlines()[-1]
        if not isinstance(error, errors.RayTaskError):  # its worker died, its node or its result was lost
            return CRASHED, message
        if isinstance(error.cause, errors.OutOfDiskError | errors.ObjectStoreFullError):
            return UNREADABLE, "the disk of a node is full"
        if isinstance(error.cause, EqkinError):
            raise error.cause
        raise BadInput(
            f"a node of the Ray cluster cannot run eqkin ({message}): install the same eqkin, Python and packages on "
            "all nodes"
        ) from error

    def _list_nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that are alive and have CPUs."""
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0)]

    def count_cpus(self) -> int:
        """Return the number of CPUs of the cluster, looked up every few seconds; raise `Unreachable` if it is gone."""
        now = time.monotonic()
        if now - self._last_poll <= _CLUSTER_POLL_SECONDS:
            return self._cpus
        self._last_poll = now
        if _is_refused(self._local_node):  # Ray would end this process in a few seconds, without a message
            raise Unreachable(f"the Ray node on this machine has ended ({self._local_node}){_KEPT}")
        if not _is_refused(self._head):
            self._last_head_seen = now
            self._cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self.progress.nodes = max(len(self._list_nodes()), 1)
        elif now - self._last_head_seen > _MAX_HEAD_SECONDS:
            raise Unreachable(f"the head of the Ray cluster does not answer any more ({self._head}){_KEPT}")
        if self._cpus:
            self._last_cpu_seen = now
        elif now - self._last_cpu_seen > _MAX_EMPTY_SECONDS:
            raise Unreachable(f"the Ray cluster has had no CPU for {_MAX_EMPTY_SECONDS:.0f} seconds{_KEPT}")
        return self._cpus


@dataclass(frozen=True)
class _MachineFault:
    """Reason why a task failed on a node where another node may succeed."""

    node: str
    message: str


def _run_task(version: str, function: Callable[[Any], Any], task: Any) -> bytes | _MachineFault:
    """Run a task on a node. The result is compressed to a third of its size: most of it is text."""
    import ray

    if version != __version__:
        raise BadInput(
            f"node {socket.gethostname()} of the Ray cluster has eqkin {__version__}, this machine eqkin {version}: "
            "install the same eqkin on all nodes"
        )
    try:
        return zstandard.compress(pickle.dumps(function(task), pickle.HIGHEST_PROTOCOL), 1)
    except (WorkerEnvironmentError, OSError) as error:
        message = f"{str(error) or repr(error)} (on {socket.gethostname()})"
        return _MachineFault(ray.get_runtime_context().get_node_id(), message)


def import_ray() -> ModuleType:
    """Import Ray; raise `BadInput` if it is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise BadInput(f"the engine `ray` needs Ray ({error}): pip install 'eqkin[ray]'") from error
    return ray


def connect_ray(address: str | None, cpus: int) -> bool:
    """Connect this process to a cluster, see `RayExecutor`. Return False if it was connected before."""
    ray = import_ray()
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL_CLUSTER
    if address != LOCAL_CLUSTER:
        _check_server(address)
    if ray.is_initialized():
        return False
    options: dict[str, object] = {"num_cpus": cpus, "include_dashboard": False} if address == LOCAL_CLUSTER else {}
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    if "://" not in address:
        options |= {"log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        with _keep_signal_handler(), _silence_stderr():
            ray.init(address=address, **options)
    except Exception as error:  # Ray also raises plain exceptions
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        if address != LOCAL_CLUSTER:
            raise Unreachable(
                f"no Ray cluster was found at {address} ({reason}); run the command on a node of the cluster, "
                "with the Python and Ray of its other nodes, and give the address that `ray start --head` printed"
            ) from error
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StorageFailed(f"Ray cannot be started here: {error}") from error
        raise Unreachable(f"Ray could not be started here ({reason}); try again, or use --engine processes") from error
    return True


def _check_server(address: str) -> None:
    """Raise `Unreachable` if no gRPC server answers: Ray itself would keep trying for minutes."""
    place = _read_last_address() if address == "auto" else address.rpartition("://")[2].partition("/")[0]
    if not place:
        return  # Ray looks for a cluster among the processes of this machine, which is quick
    host, _, port = place.rpartition(":")
    if not port.isdecimal() or not host:
        raise BadInput(f"{address}: not the address of a Ray cluster; write HOST:PORT, ray://HOST:PORT or auto")
    import grpc  # comes with Ray's client

    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
            with grpc.insecure_channel(place) as channel:
                grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
    except grpc.FutureTimeoutError as error:
        raise Unreachable(
            f"the server at {place} is not a Ray cluster; give the address that `ray start --head` printed"
        ) from error
    except (OSError, OverflowError) as error:
        raise Unreachable(f"no Ray cluster answers at {place} ({error}); is it running?") from error


def _read_last_address() -> str:
    """Return the address of the cluster last started on this machine; it may have ended since."""
    try:
        folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        return (folder / "ray" / "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def _is_refused(place: str) -> bool:
    """Return whether a server has gone away; a slow one is still there."""
    host, _, port = place.rpartition(":")
    try:
        if port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except ConnectionError:
        return True
    except OSError:
        pass
    return False


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


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Discard what Ray's native part writes to the process's standard error."""
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
