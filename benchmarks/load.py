"""A server under load: many clients, each waiting for its answer before it asks again.

The clients are users of locust (`locustfile.py`), in a process of their own. Everything that is not answered with
status 200 is an error, "come again in a second" included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer
import urllib3

from benchmarks.processes import MeasuredServer, find_server, run_server
from benchmarks.report import BenchmarkReport, log, summarise_times
from benchmarks.search import list_atlas_formulas
from eqkin.cli.options import CollectionName, LibraryFolder
from eqkin.cli.serve import WorkerCount
from eqkin.errors import BadInput

_TURNS = 3  # of each of two servers


def measure_load(
    library: LibraryFolder,
    url: Annotated[str, typer.Argument(metavar="[URL]", help="A running server; otherwise one is started.")] = "",
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="Concurrent clients.")] = 64,
    seconds: Annotated[int, typer.Option(min=1, help="How long the clients ask.")] = 300,
    against: Annotated[str, typer.Option(metavar="URL", help="Another running server, asked in turns.")] = "",
    workers: WorkerCount = 1,
    milvus: Annotated[str, typer.Option(metavar="URI", help="Serve from this Milvus server.")] = "",
    collection: CollectionName = "eqkin",
) -> BenchmarkReport:
    """Let many clients query a server; count errors and answers, and time the answers.

    They search for formulas of the atlas, with words, filters and explanations, and look at pages. Two servers, of two
    versions or settings, are compared in turns, since whatever else the machine does slows both.

    **Examples**

        python -m benchmarks load --library papers --workers 4 --seconds 60

        python -m benchmarks load http://localhost:8017 --clients 128 --against http://localhost:8018
    """
    if url and milvus:
        raise BadInput("--milvus cannot be used with a URL")
    count = _TURNS if against else 1
    length = -(-seconds // count)  # of a turn: locust takes whole seconds
    seconds = count * length
    report = BenchmarkReport("load", {"clients": clients, "seconds": seconds})
    target = ["--milvus", milvus, "--collection", collection] if milvus else ["--library", str(library)]
    with ExitStack() as stack:
        first = find_server(url) if url else stack.enter_context(run_server(*target, "--workers", str(workers)))
        servers = [first, *([find_server(against)] if against else [])]
        database = find_server(milvus) if milvus else MeasuredServer("", 0)
        began = database.get_processor_seconds()
        turns: list[list[list[dict[str, Any]]]] = [[] for _ in servers]
        used = [0.0] * len(servers)
        for _ in range(count):
            for number, server in enumerate(servers):
                before = server.get_processor_seconds()
                turns[number].append(run_clients(server.url, clients, length))
                used[number] += server.get_processor_seconds() - before
        add_requests(report, turns[0], seconds)
        for server, asked, spent in zip(servers, turns, used, strict=True):
            times = [one["seconds"] for turn in asked for one in turn if not one["error"]]
            costs = {"processor_ms": 1e3 * spent / max(len(times), 1), "own_bytes": server.measure_memory()["own"]}
            if times:
                known = costs if server.pid else {}
                report.add("Servers", server.url, per_second=len(times) / seconds, **known, **summarise_times(times))
        if first.pid:
            report.facts["processor_ms_per_answer"] = 1e3 * used[0] / max(report.facts["answers"], 1)
            report.facts["memory_bytes"] = first.measure_memory()
        if database.pid:
            spent = database.get_processor_seconds() - began
            report.facts["milvus_processor_ms_per_answer"] = 1e3 * spent / max(report.facts["answers"], 1)
            report.facts["milvus_memory_bytes"] = database.measure_memory()
    return report


def run_clients(url: str, clients: int, seconds: int) -> list[dict[str, Any]]:
    """Run locust against a server and return all requests: kind, seconds, end (a time stamp), error or ""."""
    setup = prepare_requests(url)
    log(f"{clients} clients, {seconds} seconds")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "setup.json").write_bytes(orjson.dumps(setup))
        script = str(Path(__file__).resolve().with_name("locustfile.py"))
        command = [sys.executable, "-m", "locust", "-f", script, "--headless", "--only-summary", "--host", url]
        command += ["-u", str(clients), "-r", str(clients), "-t", f"{seconds}s", "--stop-timeout", "60"]
        command += ["--exit-code-on-error", "0"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        results = Path(folder, "requests.json")
        if done.returncode or not results.exists():
            raise BadInput(f"locust failed: {done.stderr.strip()[-2_000:]}")
        requests: list[dict[str, Any]] = orjson.loads(results.read_bytes())
        return requests


def prepare_requests(url: str) -> dict[str, list[str]]:
    """Find formulas of the atlas, fields and papers to ask a server for; raises `BadInput` if none answers."""
    formulas = list_atlas_formulas(400)
    try:
        with urllib3.PoolManager(retries=False, timeout=60) as pool:
            fields = orjson.loads(pool.request("GET", f"{url}/api/facets").data)["fields"]
            answers = [pool.request("GET", f"{url}/api/search", fields={"q": q, "k": "5"}) for q in formulas[:20]]
        hits = [hit for answer in answers for hit in orjson.loads(answer.data)["hits"]]
        papers = sorted({hit["equation"]["paper"]["key"] for hit in hits})
    except (urllib3.exceptions.HTTPError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{url}: no server of eqkin answers there ({error})") from error
    if not papers:
        raise BadInput(f"{url}: finds nothing; serve a library that has equations")
    return {"formulas": formulas, "fields": list(fields)[:5], "papers": papers}


def add_requests(report: BenchmarkReport, turns: list[list[dict[str, Any]]], seconds: float) -> None:
    """Add throughput, errors and times by kind of request to a report."""
    requests = [one for turn in turns for one in turn]
    answers = [one for one in requests if not one["error"]]
    errors = Counter(f"{one['kind']}: {one['error']}" for one in requests if one["error"])
    report.facts |= {
        "answers": len(answers),
        "answers_per_second": len(answers) / seconds,
        "errors": errors.total(),
        "longest_pause_seconds": max(
            compute_longest_pause([one["end"] for one in turn if not one["error"]]) for turn in turns
        ),
        "errors_by_kind": dict(errors.most_common()),
    }
    for kind in ["all", *dict.fromkeys(one["kind"] for one in answers)]:
        times = [one["seconds"] for one in answers if kind in ("all", one["kind"])]
        if times:
            report.add("Answers", kind, count=len(times), **summarise_times(times))


def compute_longest_pause(ends: list[float]) -> float:
    """Return the longest time between two answers to any client."""
    return float(np.diff(np.sort(ends)).max()) if len(ends) > 1 else 0.0
