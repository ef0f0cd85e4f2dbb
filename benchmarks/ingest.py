"""`python -m benchmarks ingest`: how fast sources become trees, beside the bare converter on the same formulas in the same run.

Three timings over the same papers: KaTeX alone (`BareKatex`), handed the finished formulas; reading in one process
(LaTeX structure, macros, conversion, repairs, trees); reading in two or more. They take turns in short rounds, so
that a busy machine slows all of them alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

import orjson
from py_mini_racer import MiniRacer

from eqkin.latex import parse
from eqkin.latex.environments import MATHML_ENVIRONMENT, is_diagram, to_converter_input
from eqkin.library.parsing import ParsedPaper, parse_item
from eqkin.limits import LIMITS
from eqkin.sources import open_source
from eqkin.sources.paper import SourceItem

T = TypeVar("T")
_ROUND = 1_000  # papers a round


@dataclass
class IngestReport:
    """What was measured."""

    papers: int = 0
    bare_tried: int = 0
    bare_converted: int = 0
    bare_seconds: float = 0.0
    one_seconds: float = 0.0
    many_seconds: float = 0.0
    jobs: int = 2
    equations: Counter[str] = field(default_factory=Counter)  # by status
    reasons: Counter[str] = field(default_factory=Counter)
    failed_papers: Counter[str] = field(default_factory=Counter)
    peak_bytes: int = 0

    @property
    def found(self) -> int:
        """Equations, diagrams not counted."""
        return sum(n for status, n in self.equations.items() if status != "diagram")

    def summary(self) -> dict[str, float]:
        """The figures that matter; rates in equations converted per second."""
        found = max(self.found, 1)
        converted = self.equations["converted"] + self.equations["degraded"]
        bare = self.bare_converted / max(self.bare_seconds, 1e-9)
        one, many = converted / max(self.one_seconds, 1e-9), converted / max(self.many_seconds, 1e-9)
        return {
            "papers": self.papers,
            "equations": self.found,
            "converted_percent": 100 * converted / found,
            "degraded_percent": 100 * self.equations["degraded"] / max(converted, 1),
            "diagrams": self.equations["diagram"],
            "bare_converted_percent": 100 * self.bare_converted / max(self.bare_tried, 1),
            "bare_per_second": bare,
            "one_process_per_second": one,
            "many_processes_per_second": many,
            "jobs": self.jobs,
            "one_to_bare": one / max(bare, 1e-9),
            "many_to_one": many / max(one, 1e-9),
            "peak_megabytes_a_worker": self.peak_bytes / 1e6,
        }


def measure(
    source: str, *, limit: int | None = None, jobs: int = 2, progress: Callable[[IngestReport], None] | None = None
) -> IngestReport:
    """Time reading `source` (at most `limit` papers) against the bare converter."""
    report = IngestReport(jobs=jobs)
    items = islice(open_source(source), limit)
    parse_item(next(open_source("atlas:")), "")  # engines started and warm before the clock runs
    bare = BareKatex()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as executor:
        list(executor.map(_parse_batch, [[item] for item in islice(open_source("atlas:"), 4 * jobs)]))
        while chunk := list(islice(items, _ROUND)):
            _round(chunk, executor, bare, report)
            if progress:
                progress(report)
    return report


class BareKatex:
    """KaTeX in an engine of its own, called as anyone would: `renderToString` in batches, macros as strings."""

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
        self._engine.eval(resources.files("eqkin.mathml").joinpath("katex.min.js").read_text("utf-8"))
        self._engine.eval(self._SCRIPT)

    def render(self, formulas: list[str], macros: dict[str, str]) -> list[str | None]:
        """The markup of each formula, None where KaTeX refuses it."""
        payload = orjson.dumps(orjson.dumps({"formulas": formulas, "macros": macros}).decode()).decode()
        pages: list[str | None] = orjson.loads(str(self._engine.eval(f"render({payload})", timeout_sec=60)))
        return pages


def _round(items: list[SourceItem], executor: ProcessPoolExecutor, bare: BareKatex, report: IngestReport) -> None:
    report.papers += len(items)
    extracts, seconds = _timed(lambda: [parse_item(item, "") for item in items])
    report.one_seconds += seconds
    _count(extracts, report)
    parts = [items[at : at + 4] for at in range(0, len(items), 4)]
    parallel, seconds = _timed(lambda: [extract for part in executor.map(_parse_batch, parts) for extract in part])
    report.many_seconds += seconds
    report.peak_bytes = max([report.peak_bytes, *(extract.peak_bytes for extract in parallel)])
    for macros, texts in _prepared(items):
        for at in range(0, len(texts), LIMITS.batch_formulas):
            batch = texts[at : at + LIMITS.batch_formulas]
            pages, seconds = _timed(partial(bare.render, batch, macros))
            report.bare_seconds += seconds
            report.bare_tried += len(batch)
            report.bare_converted += sum(page is not None for page in pages)


def _parse_batch(items: list[SourceItem]) -> list[ParsedPaper]:
    return [parse_item(item) for item in items]


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _count(extracts: list[ParsedPaper], report: IngestReport) -> None:
    for extract in extracts:
        if extract.failure:
            report.failed_papers[extract.failure] += 1
        for record in extract.equations:
            report.equations[record.status] += 1
            if record.status == "failed":
                report.reasons[record.reason] += 1


def _prepared(items: list[SourceItem]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The same formulas, ready for KaTeX, with those macros of their document that KaTeX can take as strings."""
    for item in items:
        paper = item.load()
        document = parse(paper.text, paper.styles, paper.bibliography)
        for epoch, table in enumerate(document.macros):
            plain = (
                m for m in table.values() if not m.alias and not m.prefix and all(kind == ("m",) for kind in m.args)
            )
            chosen = [e for e in document.equations if e.epoch == epoch and e.environment != MATHML_ENVIRONMENT]
            texts = [to_converter_input(e.environment, e.body) for e in chosen if not is_diagram(e.body)]
            if texts:
                yield {m.name: m.body for m in plain if m.name not in m.body}, texts
