"""Push a library into Milvus: in batches, resumable, each equation once however often it is pushed.

A paper's equations are written before its row, which holds a digest of its content: papers with this digest are
complete and skipped. Equations that a changed paper has no more are deleted. A record lists the papers that are being
written: if a push was killed, the next one first deletes the equations of those that have no row yet, since they may
never be pushed again.

One push at a time writes into a collection: it holds a lease, a record that names it and is renewed while it runs.
Milvus cannot compare and set, so a push that wrote the lease reads it again a moment later, and before each renewal: of
two that begin at the same instant the later one stays, the other stops. Clocks of machines must agree to within the
time after which a lease expires.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import numpy as np

from eqkin.cluster.milvus.collection import (
    DEFAULT_COLLECTION,
    LEASE_KEY,
    NO_YEAR,
    PENDING_KEY,
    SUMMARY_KEY,
    CollectionInfo,
    MilvusCollection,
    Row,
    format_list,
    hash_name,
    pack_record,
)
from eqkin.cluster.milvus.connection import WRITE_SECONDS, MilvusConnection
from eqkin.cluster.milvus.rows import PaperRows, build_paper_rows, estimate_size
from eqkin.errors import BadInput, CorruptData, EqkinError, LibraryBusy, StorageFailed, Unreachable
from eqkin.index.manifest import INDEX_FOLDER, IndexManifest
from eqkin.index.vectors import VectorFiles
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_contents, list_paper_trees
from eqkin.library.records import get_paper_page
from eqkin.storage.files import is_process_running
from eqkin.version import __version__

T = TypeVar("T")
_PAPERS_PER_LOOKUP = 500
_MAX_MESSAGE_BYTES = 4_000_000  # Milvus takes 64 MB
_RETRY_PAUSES = (1.0, 4.0, 15.0, 30.0)  # seconds before each new attempt to write a batch while the server is away


@dataclass(frozen=True)
class PushSettings:
    """Sizes and times of a push."""

    equations_per_batch: int = 1_000  # also of a message
    lease_seconds: float = 60.0  # after which a lease that was not renewed expires
    renew_seconds: float = 5.0  # between renewals
    settle_seconds: float = 0.3  # until a new lease is read again


SETTINGS = PushSettings()


@dataclass
class PushReport:
    """Counts of what a push did: so far, or in the end."""

    papers: int = 0  # pushed, new or changed
    unchanged: int = 0
    equations: int = 0  # pushed
    deleted: int = 0  # equations that changed or removed papers have no more
    removed: int = 0  # papers deleted, with `prune`
    missing: int = 0  # equations of the library without a vector: `eqkin index` makes them
    oversized: list[str] = field(default_factory=list)  # ids of equations too large for Milvus
    total: int = 0  # papers of the library
    seconds: float = 0.0
    collection: int = 0  # equations in the collection at the end


Progress = Callable[[PushReport], None]


def push_library(
    library: LibraryFiles,
    uri: str,
    model: str,
    collection: str = DEFAULT_COLLECTION,
    *,
    prune: bool = False,
    progress: Progress | None = None,
    settings: PushSettings = SETTINGS,
) -> PushReport:
    """Push a library into a collection, which is created if it does not exist; `progress` is called after every batch.

    The collection may also contain papers of other libraries; with `prune`, they are deleted.

    Raises:
        BadInput: the library is not indexed, or another model or another program made the collection.
        LibraryBusy: another push is running.
        Unreachable: the server does not answer; what was pushed stays, the next push continues.
        StorageFailed: the server cannot take more.
    """
    connection = MilvusConnection(uri)
    try:
        vectors, target = _open_vectors(library, model), MilvusCollection(connection, collection)
        info = target.prepare(model, vectors.dimensions)
        with PushLease(target, settings) as lease:
            return _Pusher(library, target, vectors, info, lease, progress or (lambda report: None), settings).run(
                prune
            )
    finally:
        connection.close()


def _open_vectors(library: LibraryFiles, model: str) -> VectorFiles:
    """Open the vectors that a model made of a library, without the nearest-neighbour index."""
    folder = library.folder / INDEX_FOLDER
    while True:
        manifest = IndexManifest.load(folder)
        if manifest is None:
            raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
        if manifest.model != model:
            raise BadInput(
                f"{library.folder}: its vectors are of the model {manifest.model}, not of {model}; run `eqkin index`"
            )
        try:
            return VectorFiles(folder, manifest.files, manifest.dimensions)
        except CorruptData:
            if IndexManifest.load(folder) == manifest:  # otherwise an update has just replaced files
                raise


class PushLease:
    """Context manager that holds the lease of a collection; raises `LibraryBusy` if another push does."""

    def __init__(self, collection: MilvusCollection, settings: PushSettings = SETTINGS) -> None:
        self._collection, self._settings = collection, settings
        self._token, self._renewed = secrets.token_hex(8), 0.0

    def __enter__(self) -> PushLease:
        holder = self._read_holder()
        if holder and self._is_alive(holder):
            raise self._make_busy_error(holder)
        self._write()
        time.sleep(self._settings.settle_seconds)
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(EqkinError):  # then it expires
            if self._read_holder().get("token") == self._token:
                self._collection.write_record(LEASE_KEY, {})

    def renew(self) -> None:
        """Write the lease again if it is time; raises `LibraryBusy` if another push has taken it."""
        if time.monotonic() - self._renewed > self._settings.renew_seconds:
            self._check()
            self._write()

    def _check(self) -> None:
        holder = self._read_holder()
        if holder.get("token") != self._token:
            raise self._make_busy_error(holder)

    def _read_holder(self) -> dict[str, Any]:
        return self._collection.read_record(LEASE_KEY) or {}

    def _write(self) -> None:
        holder = {"token": self._token, "host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
        self._collection.write_record(LEASE_KEY, holder)
        self._renewed = time.monotonic()

    def _make_busy_error(self, holder: dict[str, Any]) -> LibraryBusy:
        who = f"process {holder.get('process')} on {holder.get('host')}" if holder else "unknown"
        return LibraryBusy(f"{self._collection}: another push into it is running ({who}); try again when it is done")

    def _is_alive(self, holder: dict[str, Any]) -> bool:
        """Return whether a lease counts: renewed lately, by a process that is not known to have ended."""
        if time.time() - holder["time"] > self._settings.lease_seconds:
            return False
        return holder["host"] != socket.gethostname() or is_process_running(holder["process"])


@dataclass(frozen=True)
class _ListedPaper:
    """A paper of the library."""

    key: str
    content: str  # as in its row when it is complete
    equations: int  # with a vector


@dataclass
class _Pusher:
    library: LibraryFiles
    collection: MilvusCollection
    vectors: VectorFiles
    info: CollectionInfo
    lease: PushLease
    progress: Progress
    settings: PushSettings
    report: PushReport = field(default_factory=PushReport)

    def run(self, prune: bool) -> PushReport:
        start, report, collection = time.monotonic(), self.report, self.collection
        here = {hash_name(key) for key in list_contents(self.library)}
        report.total = len(here)
        self._delete_pending()
        fresh = collection.count(collection.name, strong=True) == 0 and not any(
            collection.scan(collection.papers, (), "paper_key != 0", rows=1)
        )
        last = 0
        while listed := list_paper_trees(self.library, last, _PAPERS_PER_LOOKUP):
            last, papers = listed[-1].id, []
            for paper in listed:
                count = int(self.vectors.rows.find_known(np.array(paper.trees, np.int64)).sum())
                report.missing += len(paper.trees) - count
                papers.append(_ListedPaper(paper.key, f"{paper.content}-{count}", count))
            due = self._retry(partial(self._find_due, papers))
            report.unchanged += len(papers) - len(due)
            for batch in self._iter_batches(due):
                self._retry(partial(self._push_batch, batch, fresh))
                self._report_progress(start)
            self._report_progress(start)
        collection.delete(collection.papers, [PENDING_KEY])
        if prune:
            self._prune(here)
        if report.papers or report.removed:
            with suppress(Unreachable, StorageFailed):  # what was written is safe; the server will index it
                collection.connection.call("flush", collection.name, seconds=WRITE_SECONDS)
            self.lease.renew()
        self._write_summary()
        report.collection = collection.count(collection.name, strong=True)
        self._report_progress(start)
        return report

    def _report_progress(self, start: float) -> None:
        self.report.seconds = time.monotonic() - start
        self.lease.renew()
        self.progress(self.report)

    def _retry(self, work: Callable[[], T]) -> T:
        """Do what may be done twice; again if the server was away for a moment."""
        for pause in _RETRY_PAUSES:
            try:
                return work()
            except Unreachable:
                time.sleep(pause)
        return work()

    def _find_due(self, papers: Sequence[_ListedPaper]) -> list[_ListedPaper]:
        """Return the papers that the collection does not have as they are."""
        keys = [hash_name(paper.key) for paper in papers]
        rows = self.collection.fetch(self.collection.papers, keys, ("content",), strong=True)
        known = {key: row["content"] for key, row in rows.items()}
        return [paper for key, paper in zip(keys, papers, strict=True) if known.get(key) != paper.content]

    def _iter_batches(self, papers: Sequence[_ListedPaper]) -> Iterator[list[_ListedPaper]]:
        """Group papers into batches with about the same number of equations."""
        batch: list[_ListedPaper] = []
        for paper in papers:
            if batch and sum(one.equations for one in batch) + paper.equations > self.settings.equations_per_batch:
                yield batch
                batch = []
            batch.append(paper)
        if batch:
            yield batch

    def _push_batch(self, papers: Sequence[_ListedPaper], fresh: bool) -> None:
        """Write a batch: equations first, then delete what papers have no more, then write the papers' rows."""
        ready = [rows for paper in papers if (rows := self._build_rows(paper)) is not None]
        equations = [row for rows in ready for row in rows.equations]
        unindexed = [row for rows in ready for row in rows.unindexed]
        complete = [row for rows in ready for row in rows.papers]
        name, keys = self.collection.name, [rows.key for rows in ready]
        self.collection.write_record(PENDING_KEY, keys)
        self._write(name, equations)
        self._write(self.collection.papers, unindexed)
        deleted = 0
        if not fresh:
            deleted = self._delete_papers(name, keys, {row["key"] for row in equations})
            self._delete_papers(self.collection.papers, keys, {row["key"] for row in (*unindexed, *complete)})
        self.lease.renew()  # a push that has taken it over has deleted what is pending
        self._write(self.collection.papers, complete)
        self.report.papers += len(ready)
        self.report.equations += len(equations)
        self.report.deleted += deleted
        self.report.oversized += [name for rows in ready for name in rows.oversized]

    def _build_rows(self, paper: _ListedPaper) -> PaperRows | None:
        """Return a paper's rows; None if it was removed from the library in the meantime."""
        try:
            with self.library.translate_errors():
                page = get_paper_page(self.library, paper.key, only_displays=False)
        except BadInput:
            return None
        trees = np.array([e.tree for _, members in page.sections for e in members if e.tree >= 0], np.int64)
        indexed = trees[self.vectors.rows.find_known(trees)]
        found = self.vectors.take(self.vectors.rows.find_rows(indexed))
        vectors = dict(zip(indexed.tolist(), found, strict=True))
        return build_paper_rows(page, self.library.get_trees(trees), vectors, paper.content, self.info)

    def _write(self, where: str, rows: Sequence[Row]) -> None:
        """Write rows in their order, in messages of bounded size."""
        message: list[Row] = []
        size = 0
        for row in rows:
            bytes_ = estimate_size(row)
            if message and (size + bytes_ > _MAX_MESSAGE_BYTES or len(message) >= self.settings.equations_per_batch):
                self.collection.upsert(where, message)
                message, size = [], 0
            message.append(row)
            size += bytes_
        if message:
            self.collection.upsert(where, message)

    def _delete_papers(self, where: str, papers: Iterable[int], keep: Iterable[int] = ()) -> int:
        """Delete all rows of papers except those to keep; return how many there were."""
        kept = set(keep)
        rows = self.collection.scan(where, (), f"paper_key in {format_list(papers)}", rows=1)
        return self.collection.delete(where, [row["key"] for row in rows if row["key"] not in kept])

    def _delete_pending(self) -> None:
        """Delete what an interrupted push has written of papers without a row."""
        pending = self.collection.read_record(PENDING_KEY) or []
        known = self.collection.fetch(self.collection.papers, pending, (), strong=True)
        incomplete = [key for key in pending if key not in known]
        if incomplete:
            for name in (self.collection.name, self.collection.papers):
                self._delete_papers(name, incomplete)

    def _prune(self, here: set[int]) -> None:
        """Delete papers that the library does not have."""
        name = self.collection.papers
        rows = self.collection.scan(name, (), "equations >= 0", rows=self.collection.count(name, strong=True))
        gone = [row["key"] for row in rows if row["key"] not in here]
        for start in range(0, len(gone), _PAPERS_PER_LOOKUP):
            part = gone[start : start + _PAPERS_PER_LOOKUP]
            self.report.deleted += self._delete_papers(self.collection.name, part)
            self._delete_papers(name, part)
            self.report.removed += len(part)
            self.lease.renew()

    def _write_summary(self) -> None:
        """Count the papers of the collection, whatever libraries they came from, and write what was counted."""
        name = self.collection.papers
        fields: Counter[str] = Counter()
        years: Counter[int] = Counter()
        total: Counter[str] = Counter()
        columns = ("equations", "missing", "year", "fields")
        rows = self.collection.count(name, strong=True)
        for row in self.collection.scan(name, columns, "equations >= 0", rows=rows):
            self.lease.renew()
            total.update(papers=1, equations=row["equations"], missing=row["missing"])
            if row["equations"]:
                fields.update(dict.fromkeys(row["fields"], row["equations"]))
            if row["equations"] and row["year"] != NO_YEAR:
                years[row["year"]] += row["equations"]
        summary: Row = {name: total[name] for name in ("papers", "equations", "missing")}
        summary |= {"library": str(self.library.folder), "eqkin": __version__}
        summary["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        summary["years"] = {str(year): years[year] for year in sorted(years)}
        self.collection.write_record(SUMMARY_KEY, add_fields(summary, fields))


def add_fields(summary: Row, fields: Mapping[str, int]) -> Row:
    """Return a summary with the numbers of equations by field: of all fields, or of the most frequent ones that fit."""
    ordered = sorted(fields.items(), key=lambda one: (-one[1], one[0]))
    while ordered and pack_record(summary | {"fields": dict(ordered)}) is None:
        ordered = ordered[: len(ordered) // 2]
    return summary | {"fields": dict(ordered)}
