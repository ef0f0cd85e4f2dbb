"""What workers read: some papers or a whole tar shard a task; and what comes of it, paper by paper."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from sqlite3 import Connection

from eqkin.errors import EqkinError
from eqkin.executors import Grain, Work, WorkerEnvironmentError
from eqkin.library.reading import READING_VERSION, ParsedPaper, is_machine_fault, make_failed_paper, parse_item
from eqkin.mathml.converter import get_converter_identity
from eqkin.sources.archive import Shard
from eqkin.sources.files import display_path
from eqkin.sources.paper import SourceItem

_UNSEEN = "workers have to see the same paths as the machine that runs the command: use a shared file system"


@dataclass(frozen=True)
class PaperTask:
    """A paper to be read."""

    item: SourceItem
    known: str  # the digest the library has for it, "" if none
    source: str  # what the user added


@dataclass(frozen=True)
class PaperBatch:
    """Some papers."""

    wanted: list[PaperTask]
    paths: frozenset[str] = frozenset()  # a worker has to see
    at_home: bool = False  # can be read only where the command was started


@dataclass(frozen=True)
class ShardTask:
    """A tar shard that its worker opens itself."""

    shard: Shard
    source: str
    known: dict[str, str] = field(default_factory=dict)  # digests the library has for papers that came from it


@dataclass(frozen=True)
class SkippedFiles:
    """What was left out within a shard: how many, by reason."""

    reasons: Counter[str]


@dataclass(frozen=True)
class SourceError:
    """A source that could not be read, or not to its end."""

    message: str
    reason: str = "damaged source"


IngestEvent = ParsedPaper | SkippedFiles | SourceError
IngestTask = (
    PaperBatch | ShardTask | SkippedFiles | SourceError
)  # the last two are what is left of a shard that is read part by part


class Reading(Work[IngestTask, IngestEvent]):
    """Sources become extracts."""

    def do(self, task: IngestTask, last: bool = True) -> Iterator[IngestEvent]:
        """The extracts of a task; a shard's are followed by what was left out, and by the damage that ended it."""
        if isinstance(task, PaperBatch):
            if not last:  # at last the reading itself fails, and says of which file
                _check_paths(task.paths)
            yield from (_parse_task(wanted, last) for wanted in task.wanted)
        elif isinstance(task, ShardTask):
            for part in _open_shard(task, last):
                yield _parse_task(part, last) if isinstance(part, PaperTask) else part
        else:
            yield task

    def parts(self, task: IngestTask, last: bool = True) -> Iterator[IngestTask]:
        """Paper by paper."""
        if isinstance(task, PaperBatch):
            yield from (PaperBatch([wanted], task.paths, task.at_home) for wanted in task.wanted)
        elif isinstance(task, ShardTask):
            for part in _open_shard(task, last):
                yield PaperBatch([part]) if isinstance(part, PaperTask) else part
        else:
            yield task

    def given_up(self, task: IngestTask, reason: str, message: str) -> Iterator[IngestEvent]:
        """Papers that failed; of a shard nobody could read, that alone: no paper is called failed that may be well."""
        if isinstance(task, PaperBatch):
            for wanted in task.wanted:
                extract = make_failed_paper(wanted.item.key, wanted.item.origin, reason, message)
                extract.source = wanted.source
                yield extract
        elif isinstance(task, ShardTask):
            yield SourceError(
                f"{display_path(task.shard.path)}: was not read: {message}; run the command again", reason
            )

    def at_home(self, task: IngestTask) -> bool:
        """Whether only the machine that runs the command has what is read, or may ask for it."""
        return isinstance(task, PaperBatch) and task.at_home

    def stamp(self) -> str:
        """Version, converter and way of reading: trees of two are never mixed."""
        made_by = get_converter_identity()
        return f"{super().stamp()}, reading {READING_VERSION}, {made_by.name} {made_by.version} {made_by.sha256[:12]}"


def _parse_task(wanted: PaperTask, last: bool) -> ParsedPaper:
    extract = parse_item(wanted.item, wanted.known, last)
    extract.source = wanted.source
    return extract


def _check_paths(paths: Iterable[str]) -> None:
    missing = next((path for path in sorted(paths) if not os.path.lexists(path)), None)
    if missing is not None:
        raise WorkerEnvironmentError(f"{missing}: is not there; {_UNSEEN}")


def _open_shard(task: ShardTask, last: bool) -> Iterator[PaperTask | SkippedFiles | SourceError]:
    """The papers of a shard; then what was left out, and the damage that ended it."""
    skipped: Counter[str] = Counter()

    def skip(what: str, why: str) -> None:
        skipped[why] += 1

    shard, end = task.shard, None
    try:
        for item in shard.iter_members(skip):
            yield PaperTask(item, task.known.get(item.key, ""), task.source)
    except EqkinError as error:
        unseen = isinstance(error.__cause__, FileNotFoundError | PermissionError)
        if unseen or is_machine_fault(error):
            message = f"{error} on {socket.gethostname()}{f'; {_UNSEEN}' if unseen else ''}"
            if not last:
                raise WorkerEnvironmentError(message) from error
            end = SourceError(message, "unreadable source")
        elif shard.in_folder:
            yield PaperTask(shard.make_failed_item(error), "", task.source)
        else:
            end = SourceError(str(error))
    if skipped:
        yield SkippedFiles(skipped)
    if end:
        yield end


def iter_tasks(
    opened: dict[str, Iterator[SourceItem] | Iterator[SourceItem | Shard]],
    grain: Grain,
    known: Callable[[str], str],
    digests: Callable[[Shard], dict[str, str]],
    on_damage: Callable[[SourceError], None],
) -> Iterator[IngestTask]:
    """Tasks for all that is behind some sources, in order.

    Args:
        opened: sources by the name they are kept under.
        grain: how large a task should be.
        known: the digest the library has for a paper's key.
        digests: the digests the library has for papers of a shard, by key.
        on_damage: called for a source that ends in an error; its papers before that are read.
    """
    group = _BatchBuilder(grain)
    for source, parts in opened.items():
        at_home = source.startswith(("arxiv:", "python:"))
        try:
            for part in parts:
                if isinstance(part, Shard):
                    yield from group.flush()
                    yield ShardTask(part, source, digests(part))
                else:
                    yield from group.add(PaperTask(part, known(part.key), source), at_home)
        except EqkinError as error:  # a bulk archive or a record file damaged half-way
            on_damage(SourceError(str(error)))
    yield from group.flush()


class _BatchBuilder:
    """Papers that will be one task."""

    def __init__(self, grain: Grain) -> None:
        self._grain = grain
        self._wanted: list[PaperTask] = []
        self._bytes = 0
        self._at_home = False

    def add(self, wanted: PaperTask, at_home: bool) -> Iterator[PaperBatch]:
        if at_home != self._at_home:
            yield from self.flush()
            self._at_home = at_home
        self._wanted.append(wanted)
        self._bytes += _count_carried_bytes(wanted.item)
        if len(self._wanted) >= self._grain.papers or self._bytes >= self._grain.bytes:
            yield from self.flush()

    def flush(self) -> Iterator[PaperBatch]:
        """The papers as a task, and a new group begins; nothing if there are none."""
        if self._wanted:
            paths = frozenset(
                w.source for w in self._wanted if os.path.isabs(w.source) and not _count_carried_bytes(w.item)
            )
            yield PaperBatch(self._wanted, paths, self._at_home)
            self._wanted, self._bytes = [], 0


def _count_carried_bytes(item: SourceItem) -> int:
    """Bytes that an item carries: members of archives and records of files do; others know where to look."""
    arguments = item.load.args if isinstance(item.load, partial) else ()
    return sum(len(value) for value in arguments if isinstance(value, bytes))


class ShardDigests:
    """Which papers the library has from which shard: a table beside the database, made when the first is asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._made = False

    def __call__(self, shard: Shard) -> dict[str, str]:
        """Digests of papers that came from a shard, by key."""
        if not self._made:
            self._connection.execute(
                "CREATE TEMP TABLE members AS SELECT origin, key, digest FROM papers WHERE failure = ''"
            )
            self._connection.execute("CREATE INDEX temp.members_by_origin ON members (origin)")
            self._made = True
        first, end = f"{display_path(shard.path)}!", f'{display_path(shard.path)}"'  # the character after "!"
        rows = self._connection.execute(
            "SELECT key, digest FROM members WHERE origin >= ? AND origin < ?", (first, end)
        )
        return {row[0]: row[1] for row in rows}
