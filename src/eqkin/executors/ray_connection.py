"""Reaching a Ray cluster: the one at an address, or one that is started here; quietly, and in bounded time."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from eqkin.errors import BadInput, EqkinError, StorageFailed, Unreachable

LOCAL_CLUSTER = "local"
_CONNECT_SECONDS = 5.0  # a server may take to answer at all
# Ray reports what it retries and what dies; eqkin tells that itself. Some of it goes to stdout, where results stand.
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
# What a client of gRPC says first, with no settings of its own; a server answers with its settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


def import_ray() -> ModuleType:
    """Ray, if it is installed; raises `BadInput`."""
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise BadInput(f"the engine `ray` needs Ray ({error}): pip install 'eqkin[ray]'") from error
    return ray


def connect_ray(address: str | None, cpus: int) -> bool:
    """Connect this process to a cluster.

    Args:
        address: of its head (HOST:PORT, or ray://HOST:PORT), or "auto" for the one on this machine. By default
            `$RAY_ADDRESS`, or else a cluster is started here.
        cpus: of a cluster that is started here.

    Returns:
        Whether this process was not connected before, and should be disconnected in the end.

    Raises:
        BadInput: Ray is not installed.
        Unreachable: nothing answers at the address, or it is not such a cluster.
        StorageFailed: a cluster cannot be started here because the disk is full.
    """
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
        with _keep_signal_handlers(), _silence_stderr():
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises plain ones, too
        raise _translate_error(error, address) from error
    return True


def _translate_error(error: Exception, address: str) -> EqkinError:
    reason = (str(error).strip() or repr(error)).splitlines()[0]
    if address != LOCAL_CLUSTER:
        return Unreachable(
            f"no Ray cluster was found at {address} ({reason}); run the command on a node of the cluster, "
            "with the Python and Ray of its other nodes, and give the address that `ray start --head` printed"
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StorageFailed(f"Ray cannot be started here: {error}")
    return Unreachable(f"no Ray could be started here ({reason}); try again, or take --engine processes")


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Ray takes the signal to end for itself, so that what was read would not be kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Ray's native part says that it was told to be silent, to the process's own stderr."""
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


def _check_server(address: str) -> None:
    """Raise `Unreachable` if no server answers: Ray itself would go on asking for minutes."""
    place = _read_last_address() if address == "auto" else address.rpartition("://")[2].partition("/")[0]
    if not place:
        return  # Ray looks for one among the processes of this machine, which is quick
    host, _, port = place.rpartition(":")
    if not port.isdecimal() or not host:
        raise BadInput(f"{address}: is no address of a Ray cluster; write HOST:PORT, ray://HOST:PORT or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as line:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return
            line.sendall(_GREETING)
            answer = line.recv(9)
    except (OSError, OverflowError) as error:
        raise Unreachable(f"no Ray cluster answers at {place} ({error}); is it running?") from error
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise Unreachable(
            f"what answers at {place} is no Ray cluster; give the address that `ray start --head` printed"
        )


def is_connection_refused(place: str) -> bool:
    """Whether nobody is at an address any more; one who is slow to answer is still there."""
    host, _, port = place.rpartition(":")
    try:
        if port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except ConnectionError:
        return True
    except OSError:
        pass
    return False


def _read_last_address() -> str:
    """The address of the cluster that was last started on this machine; it may have been killed since."""
    try:
        folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        return (folder / "ray" / "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
