"""Ingest sources: parse papers with an executor and write them to the library, in source order and exactly once."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from eqkin.errors import BadInput, EqkinError
from eqkin.executor import Executor
from eqkin.formulas.engine import check_address_space
from eqkin.formulas.scripts import get_converter_identity
from eqkin.library.files import normalise_source
from eqkin.library.parsing import PARSER_VERSION, ParsedPaper, make_failed_paper, parse_item
from eqkin.library.writer import LibraryWriter
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Paper, SourceItem, make_failed_item
from eqkin.sources.readers import open_source
from eqkin.version import __version__

# More problems are counted, but not listed.
_MAX_PROBLEMS = 200


@dataclass(frozen=True)
class PaperTask:
    """A paper to be parsed."""

    item: SourceItem
    # The digest that the library has for it, empty if none.
    known: str
    # What the user added.
    source: str
    # Which formulas become equations.
    formulas: str = "rows"


@dataclass
class AddReport:
    """Counts of what `Library.add` did: so far, or in the end."""

    # Added or replaced.
    papers: int = 0
    unchanged: int = 0
    # Papers that could not be read, by reason.
    failed: Counter[str] = field(default_factory=Counter)
    # Displays, by status.
    equations: Counter[str] = field(default_factory=Counter)
    # Rows and inline formulas with a tree.
    more: Counter[str] = field(default_factory=Counter)
    # Papers and sources that could not be read.
    problems: list[str] = field(default_factory=list)
    # Files within sources that were not read, by reason.
    skipped: Counter[str] = field(default_factory=Counter)
    # Papers of which only the metadata is known, and why.
    without_source: list[str] = field(default_factory=list)

    def count_skipped(self, what: str, why: str) -> None:
        """Count a file within a source that was not read."""
        self.skipped[why] += 1

    def add_problem(self, reason: str, message: str) -> None:
        """Count a paper or a source that could not be read, or not to its end."""
        self.failed[reason] += 1
        self.problems.append(message)
        del self.problems[_MAX_PROBLEMS:]

    def count_paper(self, parsed: ParsedPaper) -> None:
        """Count a paper."""
        if parsed.unchanged:
            self.unchanged += 1
        elif parsed.failure:
            named = parsed.message.startswith(parsed.origin) or parsed.origin in parsed.message[:300]
            self.add_problem(parsed.failure, parsed.message if named else f"{parsed.origin}: {parsed.message}")
        else:
            self.papers += 1
            for equation in parsed.equations:
                if equation.whole < 0 and not equation.inline:
                    self.equations[equation.status] += 1
                elif equation.tree >= 0:
                    self.more["rows" if equation.whole >= 0 else "inline"] += 1


def ingest(
    writer: LibraryWriter,
    sources: Iterable[str],
    executor: Executor,
    *,
    metadata: MetadataSnapshot | None = None,
    fetch: bool = False,
    progress: Callable[[AddReport], None] | None = None,
) -> AddReport:
    """Parse the papers of `sources` and write those that are new or changed; the library does not depend on `executor`.

    Raises `BadInput` if a source does not exist or is of an unknown kind (nothing was written).
    """
    check_address_space()
    run = _Ingest(writer, executor, metadata, fetch, {normalise_source(source): source for source in sources})
    for parsed in executor.map(partial(parse_task, describe_parser()), run.iter_tasks(), on_failure=fail_task):
        run.add(parsed)
        if progress:
            progress(run.report)
    return run.report


def parse_task(parser: str, task: PaperTask) -> ParsedPaper:
    """Parse a paper on a worker.

    Raises:
        BadInput: the worker's parser is not `parser`.
        WorkerEnvironmentError: the worker's machine is at fault.
    """
    if parser != describe_parser():
        raise BadInput(
            f"{socket.gethostname()} has {describe_parser()}, this machine {parser}: install the same eqkin on both"
        )
    parsed = parse_item(task.item, task.known, task.formulas)
    parsed.source = task.source
    return parsed


def describe_parser() -> str:
    """Name what must be the same on all machines: trees of two parsers or converters are never mixed."""
    converter = get_converter_identity()
    return f"eqkin {__version__}, parser {PARSER_VERSION}, {converter.name} {converter.version} {converter.sha256[:12]}"


def fail_task(task: PaperTask, reason: str, message: str) -> ParsedPaper:
    """Return a paper that no worker could parse, as a failed one."""
    parsed = make_failed_paper(task.item.key, task.item.origin, reason, message)
    parsed.source = task.source
    return parsed


class _Ingest:
    """One run: makes tasks of sources, and merges what comes back into the library."""

    def __init__(
        self,
        writer: LibraryWriter,
        executor: Executor,
        metadata: MetadataSnapshot | None,
        fetch: bool,
        sources: dict[str, str],
    ) -> None:
        self.report = AddReport()
        self._writer = writer
        self._executor = executor
        self._formulas = writer.read_setting("formulas") or "rows"
        self._opened = {
            name: open_source(source, metadata=metadata, fetch=fetch, on_skip=self.report.count_skipped)
            for name, source in sources.items()
        }
        # Of the papers sent to workers. A paper that comes again may have been replaced: it is always parsed.
        self._sent: set[str] = set()

    def iter_tasks(self) -> Iterator[PaperTask]:
        """Yield the papers of all sources, in order. A source that ends in an error goes to the report."""
        for source, items in self._opened.items():
            with self._reporting_errors():
                for item in items:
                    # other machines do not see the files and packages of this one
                    loaded = _preload(item) if self._executor.is_remote else item
                    known = "" if item.key in self._sent else self._writer.find_digest(item.key)
                    self._sent.add(item.key)
                    yield PaperTask(loaded, known, source, self._formulas)

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        try:
            yield
        except EqkinError as error:
            self.report.add_problem("damaged source", str(error))

    def add(self, parsed: ParsedPaper) -> None:
        """Write and count what a worker found."""
        known = self._writer.find_digest(parsed.key)
        missing = parsed.paper.missing_source if parsed.paper else ""
        if missing:
            self.report.without_source.append(f"{parsed.origin}: {missing}")
            # Its source was fetched before.
            if known:
                parsed.digest = known
        if parsed.digest and not parsed.failure and parsed.digest == known:
            parsed.unchanged = True
        if not parsed.unchanged:
            self._writer.add(parsed)
        self.report.count_paper(parsed)


def _preload(item: SourceItem) -> SourceItem:
    """Load a paper here whose source only this machine can reach; any machine can parse it then."""
    try:
        return replace(item, load=partial(_return_paper, item.load()))
    # One surprising paper must not stop the others.
    except Exception as error:
        known = error if isinstance(error, EqkinError) else BadInput(f"{item.origin}: {error!r}")
        return make_failed_item(item.key, item.origin, known)


def _return_paper(paper: Paper) -> Paper:
    return paper
