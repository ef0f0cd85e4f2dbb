"""A Ray cluster of two nodes on this machine, and sources for it."""

from __future__ import annotations

import gzip
import io
import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eqkin.cluster.ray import RayExecutor
from tests.library.conftest import ARTICLE

# Ray finds a node dead after some seconds without an answer, here after three; and keeps large results on the node
# that made them, here all but the smallest.
_SETTINGS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1_000,
    "health_check_failure_threshold": 3,
    "max_direct_call_object_size": 1_000,
}
_NODE = {
    "num_cpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """A head and another node, one CPU each."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
    from eqkin.cluster.ray import import_ray

    import_ray()
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    made = Cluster()
    try:
        try:
            made.add_node(_system_config=_SETTINGS, **_NODE)
            made.add_node(**_NODE)
        except Exception as error:  # Ray raises plain ones
            pytest.skip(f"Ray was not up within the half minute that it gives itself ({error})")
        yield made
    finally:
        made.shutdown()
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def new_node(cluster: Any) -> Callable[..., Any]:
    """Adds a node to the cluster."""
    return lambda **options: cluster.add_node(**_NODE, **options)


@pytest.fixture(scope="package")
def executor(cluster: Any) -> Iterator[RayExecutor]:
    """An executor on the cluster. It is shared, because nodes start new processes for every connection."""
    with RayExecutor(cluster.address) as connected:
        yield connected


def article(number: int) -> bytes:
    """The source of an article."""
    return (ARTICLE % {"name": f"subject{number}", "number": number}).encode()


def write_shard(path: Path, numbers: range, *, whole: int | None = None) -> Path:
    """A bulk tar of a PDF and some e-prints; `whole` of these are, then it ends."""
    path.parent.mkdir(exist_ok=True)
    buffer, starts = io.BytesIO(), []
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        members = {f"1701/1701.{number:05d}.gz": gzip.compress(article(number), mtime=0) for number in numbers}
        for name, content in ({"1701/1701.99999.pdf": b"%PDF-1.4"} | members).items():
            starts.append(tar.offset)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    end = None if whole is None else starts[whole + 1] + 520  # within the data of the next one
    path.write_bytes(buffer.getvalue()[:end])
    return path


def read_notes(folder: Path) -> list[tuple[int, int, str]]:
    """Return what `loads.wait_for_go` wrote: number of the paper, process, node."""
    found = [name.split(".") for name in os.listdir(folder) if name != "go"]
    return [(int(number), int(process), node) for number, process, node in found]
