"""How long a search takes, stage by stage: formulas of the atlas against any library, over HTTP or in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Annotated

import numpy as np
import orjson
import typer
import urllib3

from benchmarks.processes import run_server
from benchmarks.report import BenchmarkReport, Figure, log, summarise_times, time_call
from eqkin.atlas import list_articles
from eqkin.cli.options import LibraryFolder
from eqkin.errors import BadInput, EqkinError
from eqkin.latex.outline import parse
from eqkin.search.engine import SearchEngine

_PATTERNS = (
    *(r"\int ? d?", r"?a^2 + ?b^2 = ?c^2", r"\sqrt{?b^2-4?a?c}", r"\frac{?a}{?a+?b}", r"\sum_{?i=1}^{?n} ?x"),
    *(r"e^{-?x^2}", r"\frac{\partial ?u}{\partial t} = ?a \frac{\partial^2 ?u}{\partial x^2}", r"\log ?x"),
    *(r"\int_0^\infty ?f dx", r"?x = \frac{?a}{?b}", r"P(?A|?B)", r"\|?x\|_2", r"\mathbb{E}[?x]", r"?a \le ?b"),
    *(r"\nabla \cdot ?F = 0", r"?f(?x) = ?x^2"),
)

# Takes a query, returns the seconds of each stage.
Search = Callable[[str], dict[str, float]]


@dataclass
class SearchTimes:
    """Times of many searches, in seconds."""

    clients: int
    elapsed: float = 0.0
    whole: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def summarise(self) -> dict[str, Figure]:
        """Return throughput, errors, and percentiles of the whole search."""
        figures: dict[str, Figure] = {"searches": len(self.whole), "errors": len(self.errors)}
        figures["searches_per_second"] = len(self.whole) / max(self.elapsed, 1e-9)
        return figures | (summarise_times(self.whole) if self.whole else {})


def measure_search(
    library: LibraryFolder,
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Formulas of the atlas to search for.")] = 500,
    clients: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Concurrent clients; repeatable.", show_default="1 and 32"),
    ] = None,
    in_process: Annotated[bool, typer.Option("--in-process", help="Search without a server.")] = False,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of the server.")] = 1,
    k: Annotated[int, typer.Option("-k", min=1, help="Hits per search.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Search with explanations.")] = False,
    patterns: Annotated[bool, typer.Option("--patterns", help="Search for formulas with wildcards instead.")] = False,
) -> BenchmarkReport:
    """Time searches of a library end to end: throughput, percentiles of each stage, time to the first answer.

    Starts a server of its own and queries it over HTTP. Without a server, processor time (of all clients) is a stage.

    **Example**

        python -m benchmarks search --library papers --in-process --clients 4
    """
    start = time.perf_counter()
    read_processor_seconds: Callable[[], float] = time.process_time
    with ExitStack() as stack:
        if in_process:
            engine = stack.enter_context(SearchEngine(library))

            def search(formula: str) -> dict[str, float]:
                before = time.process_time()
                seconds = engine.search(formula, k=k, explain=explain).seconds
                return {**seconds, "processor time": time.process_time() - before}
        else:
            server = stack.enter_context(run_server("--library", str(library), "--workers", str(workers)))
            search, read_processor_seconds = make_http_search(server.url, k, explain), server.get_processor_seconds
        search("E = mc^2")
        report = BenchmarkReport("search", {"first_answer_seconds": time.perf_counter() - start})
        formulas = list(islice(cycle(_PATTERNS), searches)) if patterns else list_atlas_formulas(searches)
        errors: list[str] = []
        for count in clients or ([1] if in_process else [1, 32]):
            before = read_processor_seconds()
            times = time_searches(search, formulas, count)
            cost = (read_processor_seconds() - before) / max(len(times.whole), 1)
            title = f"{count} client{'s' if count > 1 else ''}"
            report.add("Searches", title, **times.summarise(), processor_seconds_per_search=cost)
            for stage, seconds in times.stages.items():
                report.add(f"Stages, {title}", stage, **summarise_times(seconds))
            errors += times.errors
    report.facts["errors"] = errors[:20]
    return report


def make_http_search(url: str, k: int = 10, explain: bool = False) -> Callable[..., dict[str, float]]:
    """Return a thread-safe function that searches a server by formula or words and returns the seconds per stage."""
    pool = urllib3.PoolManager(maxsize=256, retries=False, timeout=60)

    def search(formula: str, text: str = "") -> dict[str, float]:
        fields = {"q": formula, "text": text, "k": str(k), "explain": str(explain).lower()}
        try:
            response = pool.request("GET", f"{url}/api/search", fields=fields)
        except urllib3.exceptions.HTTPError as error:
            raise BadInput(f"{url}: {error}") from error
        if response.status != 200:
            raise BadInput(f"HTTP {response.status}: {response.data[:200].decode(errors='replace')}")
        seconds: dict[str, float] = orjson.loads(response.data)["seconds"]
        return seconds

    return search


def time_searches(search: Search, queries: Sequence[str], clients: int = 1) -> SearchTimes:
    """Run all queries with several concurrent clients; a query that fails counts as an error."""
    log(f"{len(queries):,} searches, {clients} concurrent")
    times = SearchTimes(clients)

    def run(query: str) -> tuple[dict[str, float] | str, float]:
        try:
            return time_call(search, query)
        except (EqkinError, OSError) as error:
            return f"{query[:80]!r}: {error}", 0.0

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        outcomes = list(threads.map(run, queries))
    times.elapsed = time.perf_counter() - start
    for stages, seconds in outcomes:
        if isinstance(stages, str):
            times.errors.append(stages)
            continue
        times.whole.append(seconds)
        for name, part in stages.items():
            times.stages.setdefault(name, []).append(part)
    return times


def list_atlas_formulas(count: int | None = None) -> list[str]:
    """Return formulas of the atlas in a fixed random order, as a person would paste them; repeated if there are few."""
    formulas = [
        f"\\begin{{{equation.environment}}}{equation.body}\\end{{{equation.environment}}}"
        for article in list_articles()
        for equation in parse(article.read_text("utf-8")).equations
    ]
    order = np.random.default_rng(0).permutation(len(formulas)).tolist()
    return [formulas[number] for number in islice(cycle(order), len(order) if count is None else count)]
