"""A server under load: many clients, each waiting for its answer before it asks again.

Everything that is not answered with status 200 is an error, "come again in a second" included.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import orjson
import typer
import urllib3

from benchmarks.processes import MeasuredServer, run_server
from benchmarks.report import BenchmarkReport, log, summarise_times
from benchmarks.search import list_atlas_formulas
from eqkin.cli.options import LibraryFolder
from eqkin.errors import BadInput

_TEXTS = ("energy", "probability of an event", "stability", "wave equation", "matrix", "limit theorem", "entropy")
# How often each kind of request is asked.
_KINDS = {"formula": 50, "explained": 12, "filtered": 10, "with words": 8, "words": 5, "page": 10, "paper": 5}
_TIMEOUT = 60.0

# Kind, seconds, error or "".
Answer = tuple[str, float, str]


def measure_load(
    library: LibraryFolder,
    url: Annotated[str, typer.Argument(metavar="[URL]", help="A running server; otherwise one is started.")] = "",
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="Concurrent clients.")] = 64,
    seconds: Annotated[int, typer.Option(min=1, help="How long the clients ask.")] = 60,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of the server.")] = 1,
) -> BenchmarkReport:
    """Let many clients query a server; count errors and answers, and time the answers.

    They search for formulas of the atlas, with words, filters and explanations, and look at pages.

    **Example**

        python -m benchmarks load --library papers --workers 4 --seconds 60
    """
    report = BenchmarkReport("load", {"clients": clients, "seconds": seconds})
    with ExitStack() as stack:
        server = MeasuredServer(url.rstrip("/"), 0)
        if not url:
            server = stack.enter_context(run_server("--library", str(library), "--workers", str(workers)))
        before = server.get_processor_seconds()
        answers = run_clients(server.url, clients, seconds)
        used = server.get_processor_seconds() - before
        times = [one[1] for one in answers if not one[2]]
        errors = Counter(f"{kind}: {error}" for kind, _, error in answers if error)
        report.facts |= {"answers": len(times), "answers_per_second": len(times) / seconds}
        report.facts |= {"errors": errors.total(), "errors_by_kind": dict(errors.most_common())}
        if server.pid:
            report.facts["processor_ms_per_answer"] = 1e3 * used / max(len(times), 1)
            report.facts["memory_bytes"] = server.measure_memory()
        for kind in ("all", *_KINDS):
            chosen = [one[1] for one in answers if not one[2] and kind in ("all", one[0])]
            if chosen:
                report.add("Answers", kind, count=len(chosen), **summarise_times(chosen))
    return report


def run_clients(url: str, clients: int, seconds: float) -> list[Answer]:
    """Ask a server with many clients for some time; raises `BadInput` if no server answers."""
    pool = urllib3.PoolManager(maxsize=clients, retries=False, timeout=_TIMEOUT)
    formulas = list_atlas_formulas(400)
    try:
        fields = list(orjson.loads(pool.request("GET", f"{url}/api/facets").data)["fields"])
        found = [pool.request("GET", f"{url}/api/search", fields={"q": one}).data for one in formulas[:20]]
        papers = [hit["equation"]["paper"]["key"] for data in found for hit in orjson.loads(data)["hits"]]
    except (urllib3.exceptions.HTTPError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{url}: no server of eqkin answers there ({error})") from error
    if not papers:
        raise BadInput(f"{url}: finds nothing; serve a library that has equations")

    def choose(kind: str, chance: random.Random) -> tuple[str, dict[str, str]]:
        """Return the path and the parameters of a request."""
        search = {"q": chance.choice(formulas), "k": "10"}
        more = {
            "explained": {"explain": "true"},
            "filtered": {"field": chance.choice(fields or [""])},
            "with words": {"text": chance.choice(_TEXTS)},
        }
        if kind == "words":
            return "/api/search", {"text": chance.choice(_TEXTS), "k": "10"}
        if kind == "paper":
            return "/paper", {"key": chance.choice(papers)}
        if kind == "page":
            return chance.choice([("/", {}), ("/search", search), ("/search", search)])
        return "/api/search", search | more.get(kind, {})

    end = time.monotonic() + seconds

    def ask(client: int) -> list[Answer]:
        chance = random.Random(client)
        answers = []
        while time.monotonic() < end:
            (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
            path, parameters = choose(kind, chance)
            start = time.perf_counter()
            try:
                status = pool.request("GET", url + path, fields=parameters).status
                error = "" if status == 200 else f"HTTP {status}"
            except urllib3.exceptions.HTTPError as failure:
                error = type(failure).__name__
            answers.append((kind, time.perf_counter() - start, error))
        return answers

    log(f"{clients} clients, {seconds} seconds")
    with ThreadPoolExecutor(clients) as threads:
        return [one for answers in threads.map(ask, range(clients)) for one in answers]
