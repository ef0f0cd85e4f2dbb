"""Killed workers, lost nodes, full disks and crashing papers: no paper is lost or stored twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eqkin.api import Library, verify
from eqkin.cluster.ray import RayExecutor
from eqkin.errors import BadInput
from eqkin.library.ingest import AddReport
from eqkin.sources.eprints import Shard
from eqkin.sources.paper import SourceItem
from tests.cluster.ray import loads
from tests.cluster.ray.conftest import read_notes, write_shard

Parts = list[SourceItem | Shard]


@pytest.fixture
def add(tmp_path: Path, executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> Callable[[Parts], AddReport]:
    """Adds items and shards, one item a task, to the library `many`."""
    monkeypatch.setattr(executor, "batch_size", 1)

    def added(parts: Parts) -> AddReport:
        monkeypatch.setattr("eqkin.library.ingest.open_source_shards", lambda *_, **__: iter(parts))
        with Library.open(tmp_path / "many", create=True) as library:
            return library.add("atlas:", executor=executor)

    return added


def _alone(folder: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> str:
    """The content of a library with the same papers, made by one process."""
    items = [item for part in parts for item in (part.iter_items() if isinstance(part, Shard) else [part])]
    monkeypatch.setattr("eqkin.library.ingest.open_source", lambda *_, **__: iter(items))
    with Library.open(folder / "one", create=True) as library:
        library.add("atlas:")
    return verify(folder / "one").content


def _same(folder: Path, expected: str) -> bool:
    verdict = verify(folder / "many")
    assert not verdict.problems + verdict.notes
    return verdict.content == expected


class _Concurrently:
    """Acts in a thread as soon as a condition holds, and raises its errors at the end."""

    def __init__(self, ready: Callable[[], bool], act: Callable[[], None], go: Path) -> None:
        self._ready, self._act, self._go = ready, act, go
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            end = time.monotonic() + 60
            while not self._ready():
                assert time.monotonic() < end, "nothing happened for a minute"
                time.sleep(0.05)
            self._act()
        except BaseException as error:
            self.error = error
        finally:
            self._go.touch()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self.error:
            raise self.error


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """The folder in which papers that wait say where."""
    (tmp_path / "signs").mkdir()
    return tmp_path / "signs"


def _shards(folder: Path) -> list[Shard]:
    return [Shard(write_shard(folder / f"{n}.tar", range(4 * n, 4 * n + 4))) for n in range(4)]


def test_killed_worker_loses_no_paper(tmp_path: Path, signs: Path, add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = _shards(tmp_path / "in")
    expected = _alone(tmp_path, [*shards, loads.make_item(1)], monkeypatch)
    kill = _Concurrently(
        lambda: bool(read_notes(signs)), lambda: os.kill(read_notes(signs)[0][1], signal.SIGKILL), signs / "go"
    )
    with kill:
        report = add([*shards, loads.make_item(1, loads.wait_for_go, str(signs))])
    assert (report.papers, report.failed) == (17, {})
    assert _same(tmp_path, expected)


def test_lost_node_loses_no_paper(
    tmp_path: Path,
    signs: Path,
    cluster: Any,
    new_node: Any,
    add: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = _shards(tmp_path / "in")
    expected = _alone(tmp_path, [loads.make_item(1), *shards, loads.make_item(2)], monkeypatch)
    head = cluster.head_node.node_id

    def ready() -> bool:
        """Tell whether both papers are being read: the shards between them have been, or are."""
        return {1, 2} == {number for number, _, _ in read_notes(signs)}

    def lose() -> None:
        nodes = [node for _, _, node in read_notes(signs) if node != head]
        cluster.remove_node(next(n for n in cluster.list_all_nodes() if n.node_id in nodes), allow_graceful=False)

    with _Concurrently(ready, lose, signs / "go"):
        report = add(
            [
                loads.make_item(1, loads.wait_for_go, str(signs)),
                *shards,
                loads.make_item(2, loads.wait_for_go, str(signs)),
            ]
        )
    new_node()
    assert (report.papers, report.failed) == (18, {})
    assert _same(tmp_path, expected)


def test_crashing_paper_fails_alone(tmp_path: Path, executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [loads.make_item(number, loads.crash if number == 3 else loads.load_article) for number in range(6)]
    monkeypatch.setattr("eqkin.library.ingest.open_source_shards", lambda *_, **__: iter(items))
    with Library.open(tmp_path / "many", create=True) as library:
        report = library.add("atlas:", executor=executor)
    assert (report.papers, report.failed) == (5, {"crash": 1})
    assert "test 3" in report.problems[0]
    assert not verify(tmp_path / "many").problems


def test_full_disk_on_one_node_is_retried_on_another(
    tmp_path: Path, signs: Path, executor: RayExecutor, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _alone(tmp_path, [loads.make_item(1), loads.make_item(2)], monkeypatch)
    report = add([loads.make_item(1, loads.fill_disk, str(signs)), loads.make_item(2)])
    assert (report.papers, report.failed) == (2, {})
    assert executor.progress.retried >= 1
    assert _same(tmp_path, expected)


def test_last_retry_is_on_the_node_of_the_command(add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    here = ray.get_runtime_context().get_node_id()
    monkeypatch.setattr("eqkin.cluster.ray._MAX_RETRIES", 1)
    report = add([loads.make_item(number, loads.fill_other_disks, here) for number in range(6)])
    assert (report.papers, report.failed) == (6, {})


def test_full_disks_everywhere_are_reported_and_the_next_run_completes(
    tmp_path: Path, signs: Path, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _alone(tmp_path, [loads.make_item(1), loads.make_item(2)], monkeypatch)
    (signs / "all").touch()
    parts = [loads.make_item(1, loads.fill_disk, str(signs)), loads.make_item(2)]
    report = add(parts)
    assert (report.papers, sum(report.failed.values())) == (1, 1)
    assert "No space left on device" in report.problems[0]
    (signs / "all").unlink()
    report = add(parts)
    assert (report.papers, report.unchanged, report.failed) == (1, 1, {})
    assert _same(tmp_path, expected)


def test_node_with_another_version_is_refused(executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqkin.cluster.ray.__version__", "9.9")
    with pytest.raises(BadInput, match=r"has eqkin .*, this machine eqkin 9\.9: install the same eqkin"):
        list(executor.map(abs, [-1], on_failure=lambda *_: 0))


_DRIVER = """
import os, signal, sys
from eqkin.api import Library
from eqkin.library import writer
from eqkin.cluster import open_executor
writer.SETTINGS = writer.WriterSettings(batch_papers=1)

def kill(report):
    if report.papers == 6:
        os.kill(os.getpid(), signal.SIGKILL)

with open_executor("ray", address=sys.argv[1]) as executor, Library.open(sys.argv[2], create=True) as library:
    library.add(sys.argv[3], executor=executor, progress=kill)
"""


def test_killed_command_continues_where_it_was(tmp_path: Path, cluster: Any, executor: RayExecutor) -> None:
    _shards(tmp_path / "in")
    command = [sys.executable, "-c", _DRIVER, cluster.address, tmp_path / "many", tmp_path / "in"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    verdict = verify(tmp_path / "many")
    assert (verdict.papers, verdict.problems) == (6, [])
    with Library.open(tmp_path / "many", create=True) as many, Library.open(tmp_path / "one", create=True) as one:
        report = many.add(tmp_path / "in", executor=executor)
        one.add(tmp_path / "in")
    assert (report.papers, report.unchanged) == (10, 6)
    assert _same(tmp_path, verify(tmp_path / "one").content)
