"""`python -m benchmarks search`: how long a search takes, stage by stage, over formulas of the atlas against any library.

What asks can be anything that takes a formula and tells its stages' seconds: the engine in this process, or a client
of a server. Several clients ask at the same time, each waiting for its answer.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from eqkin.atlas import list_articles
from eqkin.errors import BadInput, EqkinError
from eqkin.latex import parse

Ask = Callable[[str], dict[str, float]]  # a formula -> seconds of each stage, as far as they are known


@dataclass
class SearchReport:
    """What was measured; all in seconds."""

    clients: int
    whole: list[float] = field(default_factory=list)  # of each search
    stages: dict[str, list[float]] = field(default_factory=dict)
    elapsed: float = 0.0
    first: float = 0.0  # from the start to the first answer
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """The figures that matter, in milliseconds."""
        figures: dict[str, float] = {
            "clients": self.clients,
            "searches": len(self.whole),
            "errors": len(self.errors),
            "searches_per_second": len(self.whole) / max(self.elapsed, 1e-9),
            "first_answer_ms": 1e3 * self.first,
        }
        for name, seconds in {"whole": self.whole, **self.stages}.items():
            if seconds:
                figures[f"{name}_p50_ms"] = 1e3 * float(np.percentile(seconds, 50))
                figures[f"{name}_p99_ms"] = 1e3 * float(np.percentile(seconds, 99))
        return figures


def measure_engine(
    library: Path, *, searches: int = 500, clients: int = 1, k: int = 10, explain: bool = False
) -> SearchReport:
    """Search a library in this process."""
    from eqkin.search.engine import SearchEngine

    start = time.perf_counter()
    with SearchEngine(library) as engine:

        def ask(formula: str) -> dict[str, float]:
            return engine.search(formula, k=k, explain=explain).seconds

        ask("E = mc^2")
        first = time.perf_counter() - start
        report = measure(ask, formulas(searches), clients)
    report.first = first
    return report


def measure_server(
    library: Path, *, searches: int = 500, clients: Sequence[int] = (1, 32), k: int = 10, explain: bool = False
) -> list[SearchReport]:
    """Start `eqkin serve` over a library and search it over HTTP, with each number of clients in turn."""
    start = time.perf_counter()
    with serving("--library", str(library)) as (place, _), closing(Client(place, k, explain)) as ask:
        ask("E = mc^2")
        first = time.perf_counter() - start
        reports = [measure(ask, formulas(searches), number) for number in clients]
    for report in reports:
        report.first = first
    return reports


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, int]]:
    """Start `eqkin serve` with some arguments on a free port and end it afterwards: its host and port, its process.

    Raises:
        BadInput: it does not start; it has said why.
    """
    command = [sys.executable, "-m", "eqkin", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            places = re.findall(r"http://([^/\s]+)/", server.stdout.readline())
            if not places:
                raise BadInput(f"eqkin serve {' '.join(arguments)}: the server did not start")
            yield places[-1], server.pid  # the one before may be that of what it serves from
        finally:
            server.terminate()


class Client:
    """Asks a server; every thread has a connection of its own."""

    def __init__(self, place: str, k: int = 10, explain: bool = False) -> None:
        self._place, self._settings = place, {"k": k, "explain": "true" if explain else "false"}
        self._own = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def __call__(self, formula: str, text: str = "") -> dict[str, float]:
        """Search for a formula, words, or both: the seconds of each stage; raises `BadInput` if it is refused."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection(self._place, timeout=60)
            self._all.append(connection)
        connection.request("GET", f"/api/search?{urlencode({'q': formula, 'text': text, **self._settings})}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise BadInput(f"HTTP {answer.status}: {body[:200].decode(errors='replace')}")
        seconds: dict[str, float] = json.loads(body)["seconds"]
        return seconds

    def close(self) -> None:
        """Let the connections go."""
        for connection in self._all:
            connection.close()


def measure(ask: Ask, queries: Sequence[str], clients: int = 1) -> SearchReport:
    """Put all queries, shared out among clients; a query that fails is an error of the report."""
    if not queries:
        raise BadInput("no formulas to search for")
    report, lock = SearchReport(clients), threading.Lock()

    def client(number: int) -> None:
        for formula in queries[number::clients]:
            start = time.perf_counter()
            try:
                stages = ask(formula)
            except (EqkinError, OSError, http.client.HTTPException) as error:
                with lock:
                    report.errors.append(f"{formula[:80]!r}: {error}")
                continue
            seconds = time.perf_counter() - start
            with lock:
                report.whole.append(seconds)
                for name, part in stages.items():
                    report.stages.setdefault(name, []).append(part)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.elapsed = time.perf_counter() - start
    return report


def formulas(number: int) -> list[str]:
    """So many formulas of the atlas, in turn from all of its fields, as a person might paste them."""
    pasted = [
        f"\\begin{{{equation.environment}}}{equation.body}\\end{{{equation.environment}}}"
        for article in list_articles()
        for equation in parse(article.read_text("utf-8")).equations
    ]
    order = np.random.default_rng(0).permutation(len(pasted)).tolist()
    return [pasted[order[i % len(order)]] for i in range(number)]
