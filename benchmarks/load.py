"""A server under load: many clients, each waiting for its answer before it asks again.

The clients are users of locust (`locustfile.py`), in a process of their own. Everything that is not answered with
status 200 is an error, "come again in a second" included. With `--writing`, papers are added and removed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer
import urllib3

from benchmarks.processes import ServerProcess, run_server
from benchmarks.report import BenchmarkReport, log, summarise_times
from eqkin.cli.options import Collection, LibraryFolder
from eqkin.cli.serve import WorkerCount
from eqkin.errors import BadInput

_NOTE_EQUATIONS = 10
_NOTES_KEPT = 3  # older ones are removed
_VISIBLE_SECONDS = 60.0  # within which the last paper must be found


def measure_load(
    library: LibraryFolder,
    url: Annotated[str, typer.Argument(metavar="[URL]", help="A running server; otherwise one is started.")] = "",
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="Concurrent clients.")] = 64,
    seconds: Annotated[int, typer.Option(min=1, help="How long the clients ask.")] = 300,
    workers: WorkerCount = 1,
    milvus: Annotated[str, typer.Option(metavar="URI", help="Serve from this Milvus server.")] = "",
    collection: Collection = "eqkin",
    writing: Annotated[bool, typer.Option(help="Add and remove papers meanwhile, in a copy of the library.")] = False,
) -> BenchmarkReport:
    """Let many clients query a server; count errors and answers, and time the answers.

    They search for formulas of the atlas, with words, filters and explanations, and look at pages.

    **Examples**

        python -m benchmarks load --library papers --workers 4 --seconds 60 --writing

        python -m benchmarks load http://localhost:8017 --clients 128
    """
    if url and (milvus or writing):
        raise BadInput("--milvus and --writing cannot be used with a URL")
    if milvus and writing:
        raise BadInput("--milvus and --writing exclude each other: only a library can be written to")
    report = BenchmarkReport("load", {"clients": clients, "seconds": seconds})
    with ExitStack() as stack:
        if url:
            add_requests(report, run_clients(url.rstrip("/"), clients, seconds), seconds)
            return report
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eqkin-load-")))
        if writing:
            library = copy_library(library, folder)
        target = ["--milvus", milvus, "--collection", collection] if milvus else ["--library", str(library)]
        server = stack.enter_context(run_server(*target, "--workers", str(workers)))
        publisher = Publisher(library, folder) if writing else None
        try:
            used = server.get_processor_seconds()
            add_requests(report, run_clients(server.url, clients, seconds), seconds)
            add_server(report, server, server.get_processor_seconds() - used)
        finally:
            if publisher:
                publisher.stop()
        if publisher:
            report.facts["published_snapshots"] = publisher.published
            report.facts["visible_after_seconds"] = publisher.wait_until_visible(server.url)
    return report


def run_clients(url: str, clients: int, seconds: float) -> list[dict[str, Any]]:
    """Run locust against a server and return all requests: kind, seconds, end (a time stamp), error or ""."""
    try:
        health = urllib3.request("GET", f"{url}/health", retries=False, timeout=60)
        if health.status != 200 or "process" not in orjson.loads(health.data):
            raise BadInput(f"{url}: not a server of eqkin")
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise BadInput(f"{url}: no server of eqkin answers there ({error})") from error
    log(f"{clients} clients, {seconds:g} seconds")
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "requests.json")
        command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--headless"]
        command += ["--host", url, "-u", str(clients), "-r", str(clients), "-t", f"{seconds:g}s", "--only-summary"]
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "EQKIN_LOAD_RESULTS": str(results), "PYTHONPATH": path}
        command += ["--exit-code-on-error", "0", "--stop-timeout", "60"]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode or not results.exists():
            raise BadInput(f"locust failed: {done.stderr.strip()[-2_000:]}")
        requests: list[dict[str, Any]] = orjson.loads(results.read_bytes())
    if not requests:
        raise BadInput(f"{url}: no request was made; does the server have equations?")
    return requests


def add_requests(report: BenchmarkReport, requests: list[dict[str, Any]], seconds: float) -> None:
    """Add throughput, errors and times by kind of request to a report."""
    answers = [one for one in requests if not one["error"]]
    errors = Counter(f"{one['kind']}: {one['error']}" for one in requests if one["error"])
    report.facts |= {
        "answers": len(answers),
        "answers_per_second": len(answers) / seconds,
        "errors": errors.total(),
        "longest_pause_seconds": compute_longest_pause([one["end"] for one in answers]),
        "errors_by_kind": dict(errors.most_common()),
    }
    for kind in ["all", *dict.fromkeys(one["kind"] for one in answers)]:
        times = [one["seconds"] for one in answers if kind in ("all", one["kind"])]
        if times:
            report.add("Answers", kind, count=len(times), **summarise_times(times))


def compute_longest_pause(ends: list[float]) -> float:
    """Return the longest time between two answers, whoever got them."""
    return float(np.diff(np.sort(ends)).max()) if len(ends) > 1 else 0.0


def add_server(report: BenchmarkReport, server: ServerProcess, processor_seconds: float) -> None:
    """Add what the server used to a report."""
    report.facts["processor_ms_per_answer"] = 1e3 * processor_seconds / max(report.facts["answers"], 1)
    report.facts["memory_bytes"] = server.measure_memory()


def copy_library(library: Path, folder: Path) -> Path:
    """Copy a library so that it can be written to."""
    try:
        return Path(shutil.copytree(library, folder / "library"))
    except (OSError, shutil.Error) as error:
        raise BadInput(f"{library}: cannot be copied ({error})") from error


class Publisher:
    """Adds notes to a library and removes older ones with eqkin's own commands, in a thread.

    Args:
        library: The folder of the library; it is changed.
        folder: Where the notes are written.
    """

    def __init__(self, library: Path, folder: Path) -> None:
        self._library, self._notes = library, folder / "notes"
        self._notes.mkdir()
        self.published = 0
        self._error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the snapshot under way and stop; raises `BadInput` if a command failed."""
        self._stop.set()
        self._thread.join()
        if self._error:
            raise BadInput(self._error)

    def wait_until_visible(self, url: str) -> float:
        """Return the seconds until every process of the server finds the last note."""
        start, seen = time.perf_counter(), set()
        while time.perf_counter() - start < _VISIBLE_SECONDS:
            with urllib3.PoolManager(maxsize=1) as pool:  # one connection, so that one process answers both
                health = orjson.loads(pool.request("GET", f"{url}/health").data)
                fields = {"q": _make_formula(self.published, 0), "k": "1"}
                hits = orjson.loads(pool.request("GET", f"{url}/api/search", fields=fields).data).get("hits", [])
            if hits and hits[0]["equation"]["paper"]["key"].endswith(f"/n{self.published}.md"):
                seen.add(health["process"])
            if len(seen) == health["processes"]:
                return time.perf_counter() - start
        raise BadInput(f"the last paper is not found after {_VISIBLE_SECONDS:g} seconds")

    def _publish(self) -> None:
        while not self._stop.is_set() and not self._error:
            number = self.published + 1
            note = self._notes / f"n{number}.md"
            formulas = "\n\n".join(f"$$ {_make_formula(number, n)} $$" for n in range(_NOTE_EQUATIONS))
            note.write_text(f"# Note {number}\n\nProducts and sums, number{number}.\n\n{formulas}\n", "utf-8")
            self._run("add", str(note))
            if self.published >= _NOTES_KEPT:
                self._run("add", "--remove", str(self._notes / f"n{self.published - _NOTES_KEPT + 1}.md"))
            self.published += 1

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "eqkin", *arguments, "--library", str(self._library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self._error = f"{' '.join(command[2:])}: {done.stderr.strip()[-300:]}"


def _make_formula(note: int, number: int) -> str:
    return rf"\Xi_{{{note}}}^{{{number}}} = \prod_{{j<{note}}} \sum_{{i<{number + 2}}} w_{{ij}}^{{{note + number}}}"
