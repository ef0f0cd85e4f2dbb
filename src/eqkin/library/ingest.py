"""Ingest sources: parse papers with an executor and write them to the library, in source order and exactly once."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from eqkin.errors import BadInput, EqkinError
from eqkin.executor import Executor, WorkerEnvironmentError
from eqkin.formulas.converter import check_address_space, get_converter_identity
from eqkin.library.files import normalise_source
from eqkin.library.parsing import PARSER_VERSION, ParsedPaper, is_machine_fault, make_failed_paper, parse_item
from eqkin.library.writer import LibraryWriter
from eqkin.sources.eprints import Shard
from eqkin.sources.files import display_path
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Paper, SourceItem, make_failed_item
from eqkin.sources.readers import open_source, open_source_shards
from eqkin.version import __version__

_BATCH_BYTES = 32_000_000  # of archive members in one task for another machine
_MAX_PROBLEMS = 200  # listed in a report


@dataclass(frozen=True)
class PaperTask:
    """A paper to be parsed."""

    item: SourceItem
    known: str  # the digest that the library has for it, empty if none
    source: str  # what the user added
    formulas: str = "rows"  # which formulas become equations


@dataclass(frozen=True)
class ShardTask:
    """A tar shard that its worker opens itself."""

    shard: Shard
    source: str
    known: dict[str, str] = field(default_factory=dict)  # digests that the library has for papers from this shard
    formulas: str = "rows"


@dataclass(frozen=True)
class SkippedFiles:
    """Files within a shard that were not read: how many, by reason."""

    reasons: Counter[str]


@dataclass(frozen=True)
class SourceError:
    """A source that could not be read, or not to its end."""

    message: str
    reason: str = "damaged source"


IngestTask = list[PaperTask] | ShardTask
IngestEvent = ParsedPaper | SkippedFiles | SourceError


@dataclass
class AddReport:
    """Counts of what `Library.add` did: so far, or in the end."""

    papers: int = 0  # added or replaced
    unchanged: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # papers that could not be read, by reason
    equations: Counter[str] = field(default_factory=Counter)  # displays, by status
    more: Counter[str] = field(default_factory=Counter)  # rows and inline formulas with a tree
    problems: list[str] = field(default_factory=list)  # papers and sources that could not be read
    skipped: Counter[str] = field(default_factory=Counter)  # files within sources that were not read, by reason
    without_source: list[str] = field(default_factory=list)  # papers of which only the metadata is known, and why

    def count_skipped(self, what: str, why: str) -> None:
        """Count a file within a source that was not read."""
        self.skipped[why] += 1

    def add_source_error(self, error: SourceError) -> None:
        """Add a source that could not be read, or not to its end."""
        self._add_problem(error.reason, error.message)

    def count_paper(self, parsed: ParsedPaper) -> None:
        """Count a paper."""
        if parsed.unchanged:
            self.unchanged += 1
        elif parsed.failure:
            named = parsed.message.startswith(parsed.origin) or parsed.origin in parsed.message[:300]
            self._add_problem(parsed.failure, parsed.message if named else f"{parsed.origin}: {parsed.message}")
        else:
            self.papers += 1
            for equation in parsed.equations:
                if equation.whole < 0 and not equation.inline:
                    self.equations[equation.status] += 1
                elif equation.tree >= 0:
                    self.more["rows" if equation.whole >= 0 else "inline"] += 1

    def _add_problem(self, reason: str, message: str) -> None:
        self.failed[reason] += 1
        self.problems.append(message)
        del self.problems[_MAX_PROBLEMS:]


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
    for events in executor.map(
        partial(parse_task, describe_parser()), run.iter_tasks(), on_failure=fail_task, split=run.split_task
    ):
        for event in events:
            run.add(event)
            if progress:
                progress(run.report)
    run.reread_stale()
    return run.report


def parse_task(parser: str, task: IngestTask) -> list[IngestEvent]:
    """Parse a task's papers on a worker. A shard's papers are followed by what was skipped and what ended it.

    Raises:
        BadInput: the worker's parser is not `parser`.
        WorkerEnvironmentError: the worker's machine is at fault.
    """
    if parser != describe_parser():
        raise BadInput(
            f"{socket.gethostname()} has {describe_parser()}, this machine {parser}: install the same eqkin on both"
        )
    if isinstance(task, list):
        return [_parse_paper_task(paper) for paper in task]
    skipped: Counter[str] = Counter()

    def skip(what: str, why: str) -> None:
        skipped[why] += 1

    events: list[IngestEvent] = []
    end: list[IngestEvent] = []
    try:
        for item in task.shard.iter_members(skip):
            events.append(_parse_paper_task(PaperTask(item, task.known.get(item.key, ""), task.source, task.formulas)))
    except WorkerEnvironmentError:
        raise
    except Exception as error:  # one surprising shard must not stop the others
        if is_machine_fault(error):
            raise WorkerEnvironmentError(f"{error} on {socket.gethostname()}") from error
        if not isinstance(error, EqkinError):
            end.append(SourceError(f"{display_path(task.shard.path)}: {error!r}", "internal error"))
        elif task.shard.in_folder:
            events.append(_parse_paper_task(PaperTask(task.shard.make_failed_item(error), "", task.source)))
        else:
            end.append(SourceError(str(error)))
    return [*events, *([SkippedFiles(skipped)] if skipped else []), *end]


def _parse_paper_task(task: PaperTask) -> ParsedPaper:
    parsed = parse_item(task.item, task.known, task.formulas)
    parsed.source = task.source
    return parsed


def describe_parser() -> str:
    """Name what must be the same on all machines: trees of two parsers or converters are never mixed."""
    converter = get_converter_identity()
    return f"eqkin {__version__}, parser {PARSER_VERSION}, {converter.name} {converter.version} {converter.sha256[:12]}"


def fail_task(task: IngestTask, reason: str, message: str) -> list[IngestEvent]:
    """Return the papers of a task that no worker could parse, as failed ones."""
    if isinstance(task, ShardTask):  # none of its papers may be called failed
        path = display_path(task.shard.path)
        return [SourceError(f"{path}: was not read: {message}; run the command again", reason)]
    failed = [make_failed_paper(paper.item.key, paper.item.origin, reason, message) for paper in task]
    for parsed, paper in zip(failed, task, strict=True):
        parsed.source = paper.source
    return list(failed)


class _Ingest:
    """One run: makes tasks of sources, and merges what comes back into the library.

    A task names the papers that the library had when it was sent; whether that is still true is known only here.
    """

    def __init__(
        self,
        writer: LibraryWriter,
        executor: Executor,
        metadata: MetadataSnapshot | None,
        fetch: bool,
        sources: dict[str, str],
    ) -> None:
        self.report = AddReport()
        self._writer, self._executor, self._metadata, self._sources = writer, executor, metadata, sources
        self._formulas = writer.read_setting("formulas") or "rows"
        self._fetch = fetch
        opener = open_source_shards if executor.is_remote else open_source
        self._opened = {
            name: opener(source, metadata=metadata, fetch=fetch, on_skip=self.report.count_skipped)
            for name, source in sources.items()
        }
        self._stale: dict[str, str] = {}  # papers taken for unchanged that were replaced since, with their source

    def iter_tasks(self) -> Iterator[IngestTask]:
        """Yield the tasks of all sources, in order. A source that ends in an error goes to the report."""
        batch: list[PaperTask] = []
        n_bytes = 0
        for source, parts in self._opened.items():
            is_local = self._executor.is_remote and (self._fetch or source.startswith(("arxiv:", "python:", "zotero:")))
            with self._reporting_errors():
                for part in parts:
                    if isinstance(part, SourceItem):
                        item = _preload(part) if is_local else part
                        batch.append(PaperTask(item, self._writer.find_digest(part.key), source, self._formulas))
                        n_bytes += part.size
                        if len(batch) < self._executor.batch_size and n_bytes < _BATCH_BYTES:
                            continue
                    if batch:
                        yield batch
                        batch, n_bytes = [], 0
                    if isinstance(part, Shard):
                        origin = display_path(part.path)
                        yield ShardTask(part, source, self._writer.find_member_digests(origin), self._formulas)
        if batch:
            yield batch

    def split_task(self, task: IngestTask) -> Iterator[IngestTask]:
        """Yield the papers of a task one by one; a shard is opened here."""
        if isinstance(task, list):
            yield from ([paper] for paper in task)
            return
        with self._reporting_errors():
            for item in task.shard.iter_items(self.report.count_skipped):
                yield [PaperTask(item, self._writer.find_digest(item.key), task.source, self._formulas)]

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        try:
            yield
        except EqkinError as error:
            self.report.add_source_error(SourceError(str(error)))

    def add(self, event: IngestEvent) -> None:
        """Write or count what a worker found."""
        if isinstance(event, SourceError):
            self.report.add_source_error(event)
        elif isinstance(event, SkippedFiles):
            self.report.skipped += event.reasons
        else:
            self._add_paper(event)

    def _add_paper(self, parsed: ParsedPaper) -> None:
        known = self._writer.find_digest(parsed.key)
        missing = parsed.paper.missing_source if parsed.paper else ""
        if missing:
            self.report.without_source.append(f"{parsed.origin}: {missing}")
            if known:  # its source was fetched before
                parsed.digest = known
        is_current = bool(parsed.digest) and not parsed.failure and parsed.digest == known
        if parsed.unchanged and not is_current:
            self._stale[parsed.key] = parsed.source
            return
        self._stale.pop(parsed.key, None)
        parsed.unchanged = is_current
        if not is_current:
            self._writer.add(parsed)
        self.report.count_paper(parsed)

    def reread_stale(self) -> None:
        """Parse papers again that sources hold in two versions: the last version counts."""
        for source in dict.fromkeys(self._stale.values()):
            stale = {key for key, name in self._stale.items() if name == source}
            with suppress(EqkinError):  # reported when the source was read first
                for item in open_source(self._sources[source], metadata=self._metadata, fetch=self._fetch):
                    if item.key in stale:
                        known = self._writer.find_digest(item.key)
                        self._add_paper(_parse_paper_task(PaperTask(item, known, source, self._formulas)))


def _preload(item: SourceItem) -> SourceItem:
    """Load a paper here whose source only this machine can reach; any machine can parse it then."""
    try:
        return replace(item, load=partial(_return_paper, item.load()))
    except Exception as error:  # one surprising paper must not stop the others
        known = error if isinstance(error, EqkinError) else BadInput(f"{item.origin}: {error!r}")
        return make_failed_item(item.key, item.origin, known)


def _return_paper(paper: Paper) -> Paper:
    return paper
