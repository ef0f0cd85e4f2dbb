"""How fast sources become trees, compared with the bare converter on the same formulas in the same run.

Four timings over the same papers: KaTeX alone (`BareKatex`), given the finished formulas; parsing in one process
(document outline, macros, conversion, repairs, trees); parsing in several; from these trees to operator trees and all
their forms. They take turns in short rounds, so that other load on the machine slows all of them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import resources
from itertools import islice
from multiprocessing import get_context
from typing import Annotated, Any, TypeVar

import orjson
import typer
from py_mini_racer import MiniRacer

from benchmarks.encode import sample_trees
from benchmarks.processes import MeasuredServer
from benchmarks.report import BenchmarkReport, log, time_call
from eqkin.formulas.engine import parse_operators
from eqkin.latex.environments import MATHML_ENVIRONMENT, is_diagram, to_converter_input
from eqkin.latex.outline import parse
from eqkin.library.parsing import parse_item
from eqkin.limits import LIMITS
from eqkin.sources.paper import SourceItem
from eqkin.sources.readers import open_source

T = TypeVar("T")

_ROUND_PAPERS = 1_000


def measure_ingest(
    source: Annotated[str, typer.Argument(help="What to read: anything `eqkin add` takes.")] = "atlas:",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most this many papers.", show_default="all")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=2, help="Processes of the parallel timing.")] = 2,
) -> BenchmarkReport:
    """Time parsing and conversion of papers against the bare converter on the same formulas.

    Also reports coverage and reasons of failure.

    **Example**

        python -m benchmarks ingest papers.jsonl.zst --limit 500
    """
    report = BenchmarkReport("ingest", {"jobs": jobs})
    names = ("KaTeX alone", "eqkin, one process", f"eqkin, {jobs} processes", "operator trees")
    seconds, used, converted = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    statuses, reasons, papers, given = Counter[str](), Counter[str](), 0, 0
    items, processes = islice(open_source(source), limit), MeasuredServer("", os.getpid())

    def measure(name: str, function: Callable[..., T], *arguments: Any) -> T:
        before = processes.get_processor_seconds()
        result, elapsed = time_call(function, *arguments)
        seconds[name] += elapsed
        used[name] += processes.get_processor_seconds() - before
        return result

    # The atlas warms up the engines before anything is timed.
    warm = map(parse_item, open_source("atlas:"))
    parse_operators(sample_trees((paper.forest for paper in warm if paper.forest is not None), sys.maxsize))
    # V8 keeps the flags of its first engine: this one must come after eqkin's.
    katex = BareKatex()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        # The engines of the workers start, too.
        list(pool.map(parse_item, islice(open_source("atlas:"), 4 * jobs)))
        while chunk := list(islice(items, _ROUND_PAPERS)):
            papers += len(chunk)
            log(f"{papers:,} papers")
            parsed = measure(names[1], lambda papers: list(map(parse_item, papers)), chunk)
            measure(names[2], lambda papers: list(pool.map(parse_item, papers, chunksize=4)), chunk)
            trees = sample_trees((paper.forest for paper in parsed if paper.forest is not None), sys.maxsize)
            measure(names[3], parse_operators, trees)
            converted[names[3]] += len(trees)
            reasons.update(f"paper: {paper.failure}" for paper in parsed if paper.failure)
            equations = [equation for paper in parsed for equation in paper.equations]
            statuses.update(equation.status for equation in equations)
            reasons.update(equation.reason for equation in equations if equation.status == "failed")
            for macros, formulas in iter_katex_batches(chunk):
                pages = measure(names[0], katex.render, formulas, macros)
                given += len(formulas)
                converted[names[0]] += sum(page is not None for page in pages)
    found = sum(count for status, count in statuses.items() if status != "diagram")
    converted[names[1]] = converted[names[2]] = statuses["converted"] + statuses["degraded"]
    report.facts |= {"papers": papers, "equations": found, "diagrams": statuses["diagram"]}
    report.facts |= {"degraded": statuses["degraded"], "failed": dict(reasons)}
    base = converted[names[0]] / max(seconds[names[0]], 1e-9)
    for name in names:
        rate = converted[name] / max(seconds[name], 1e-9)
        percent = 100 * converted[name] / max(given if name == names[0] else found, 1)
        report.add(
            *("Ingest", name),
            equations_per_second=rate,
            times_katex=rate / max(base, 1e-9),
            processor_ms=1e3 * used[name] / max(converted[name], 1),
            converted_percent=percent,
        )
    return report


class BareKatex:
    """KaTeX in an engine of its own, called in the usual way: `renderToString` in batches, macros as strings."""

    _SCRIPT = """
    function render(json) {
      const { formulas, macros } = JSON.parse(json);
      const options = { displayMode: true, output: "mathml", strict: "ignore", macros };
      return JSON.stringify(formulas.map((latex) => {
        try { return katex.renderToString(latex, options); } catch (error) { return null; }
      }));
    }"""

    def __init__(self) -> None:
        self._engine = MiniRacer()
        self._engine.eval(resources.files("eqkin.formulas").joinpath("katex.min.js").read_text("utf-8"))
        self._engine.eval(self._SCRIPT)

    def render(self, formulas: list[str], macros: dict[str, str]) -> list[str | None]:
        """Return the markup of each formula, None where KaTeX refuses it."""
        payload = orjson.dumps(orjson.dumps({"formulas": formulas, "macros": macros}).decode()).decode()
        pages: list[str | None] = orjson.loads(str(self._engine.eval(f"render({payload})", timeout_sec=60)))
        return pages


def iter_katex_batches(items: list[SourceItem]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the formulas of papers, ready for KaTeX, with those macros that KaTeX takes as strings."""
    for item in items:
        paper = item.load()
        document = parse(paper.text, paper.styles, paper.bibliography, rows=True)
        for epoch, table in enumerate(document.macros):
            simple = (m for m in table.values() if not m.alias and not m.prefix and set(m.args) <= {("m",)})
            macros = {macro.name: macro.body for macro in simple if macro.name not in macro.body}
            chosen = [e for e in document.equations if e.epoch == epoch and e.environment != MATHML_ENVIRONMENT]
            texts = [to_converter_input(e.environment, e.body) for e in chosen if not is_diagram(e.body)]
            for at in range(0, len(texts), LIMITS.batch_formulas):
                yield macros, texts[at : at + LIMITS.batch_formulas]
