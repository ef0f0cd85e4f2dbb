"""Pushing a library into Milvus: in batches, resumable, each equation once however often it is pushed.

A paper's equations are written before its row, which holds a digest of its content: papers whose row says so are
complete and passed over. What a changed paper had and has no more is deleted. Killed at any moment, the next push goes
on with the papers that have no row. A record says which papers are being written: what is there of those that did not
come to their row is deleted first, since nobody may ever push them again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from eqkin.backends.milvus import documents
from eqkin.backends.milvus.connection import WRITE_SECONDS, MilvusConnection
from eqkin.backends.milvus.expressions import format_list
from eqkin.backends.milvus.keys import PENDING_KEY, hash_name, hash_part
from eqkin.backends.milvus.lease import PushLease
from eqkin.backends.milvus.rows import PaperRows, Row, build_paper_rows, estimate_size
from eqkin.backends.milvus.schema import (
    DEFAULT_COLLECTION,
    CollectionInfo,
    check_name,
    name_papers_collection,
    prepare_collections,
)
from eqkin.backends.milvus.summary import summarise
from eqkin.backends.milvus.vectors import LibraryVectors
from eqkin.errors import BadInput, StorageFailed, Unreachable
from eqkin.library import LibraryFiles, records
from eqkin.library.queries import list_contents, list_paper_trees

T = TypeVar("T")
_PAPERS_PER_LOOKUP = 500  # papers looked up at a time
_EQUATIONS_PER_BATCH = 1_000  # equations of a batch, and of a message
_MAX_MESSAGE_BYTES = 4_000_000  # of a message; Milvus takes 64 MB
_RETRY_PAUSES = (1.0, 4.0, 15.0, 30.0)  # seconds waited for a server that is away, before a batch is tried again


@dataclass
class PushReport:
    """What a push did, so far or in the end."""

    papers: int = 0  # pushed, new or changed
    unchanged: int = 0
    equations: int = 0  # pushed
    deleted: int = 0  # equations that changed or removed papers have no more
    removed: int = 0  # papers dropped, with `prune`
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
) -> PushReport:
    """Push a library into a collection, which is made if it is not there.

    Args:
        library: what to push; it has to be indexed.
        uri: the server's address.
        model: digest of the network that made the library's vectors.
        collection: its name; other libraries' papers may be there, too.
        prune: also drop papers that are in the collection but not in the library.
        progress: called after every batch.

    Raises:
        BadInput: the library is not indexed, or the collection is of another model or not eqkin's.
        LibraryBusy: another push is at work there.
        Unreachable: the server does not answer; what was pushed stays, the next push goes on.
        StorageFailed: the server cannot take more.
    """
    connection = MilvusConnection(uri)
    try:
        vectors = LibraryVectors.open(library, model)
        origin = prepare_collections(connection, check_name(collection), model, vectors.dimensions)
        with PushLease(connection, collection) as lease:
            pushing = _Pusher(
                library, connection, collection, vectors, origin, lease, progress or (lambda report: None)
            )
            return pushing.run(prune)
    finally:
        connection.close()


@dataclass
class _ListedPaper:
    """A paper of the library."""

    key: str
    content: str  # as its row has it when it is complete
    equations: int  # that have a vector
    parts: int = 0  # rows among the papers that the collection has of it


@dataclass
class _Pusher:
    library: LibraryFiles
    connection: MilvusConnection
    collection: str
    vectors: LibraryVectors
    origin: CollectionInfo
    lease: PushLease
    progress: Progress
    report: PushReport = field(default_factory=PushReport)

    def run(self, prune: bool) -> PushReport:
        start, report = time.monotonic(), self.report
        report.total = len(list_contents(self.library))
        self._clear_pending()
        fresh = documents.count_rows(self.connection, self.collection, strong=True) == 0
        for listed_ in self._iter_listed():
            due = self._retry(partial(self._find_due, listed_))
            report.unchanged += len(listed_) - len(due)
            for batch in _iter_batches(due):
                self._retry(partial(self._push_batch, batch, fresh))
                self._report_progress(start)
            self._report_progress(start)
        self._drop_rows([PENDING_KEY])
        if prune:
            self._prune()
        self._finish()
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

    def _iter_listed(self) -> Iterator[list[_ListedPaper]]:
        """The library's papers, some at a time."""
        last = 0
        while True:
            papers = list_paper_trees(self.library, last, _PAPERS_PER_LOOKUP)
            if not papers:
                return
            last = papers[-1].id
            yield [self._list_paper(paper.key, paper.content, paper.trees) for paper in papers]

    def _list_paper(self, key: str, content: str, trees: Sequence[int]) -> _ListedPaper:
        numbers = np.array(trees, np.int64)
        there = int(self.vectors.has(numbers).sum())
        self.report.missing += len(numbers) - there
        return _ListedPaper(key, f"{content}-{there}", there)

    def _find_due(self, papers: Sequence[_ListedPaper]) -> list[_ListedPaper]:
        """Those of papers that the collection does not have as they are."""
        keys = [hash_name(paper.key) for paper in papers]
        rows = documents.fetch_rows(
            self.connection, name_papers_collection(self.collection), keys, ("content", "parts"), strong=True
        )
        found = []
        for key, paper in zip(keys, papers, strict=True):
            row = rows.get(key, {"content": None, "parts": 0})
            if row["content"] != paper.content:
                found.append(replace(paper, parts=row["parts"]))
        return found

    def _push_batch(self, papers: Sequence[_ListedPaper], fresh: bool) -> None:
        """Write a batch: equations first, then what is to be deleted, then the papers."""
        ready = [rows for paper in papers if (rows := self._build_rows(paper)) is not None]
        equations = [row for rows in ready for row in rows.equations]
        begun = {rows.key: len(rows.papers) for rows in ready}
        documents.write_record(self.connection, self.collection, PENDING_KEY, begun, secrets.token_hex(8))
        self._write(self.collection, equations)
        deleted = 0 if fresh else self._delete(list(begun), {row["key"] for row in equations})
        self._drop_rows(
            _iter_part_keys((paper.key, begun.get(paper.key, paper.parts), paper.parts) for paper in papers)
        )
        self.lease.renew()  # whoever took it over has deleted what was begun
        self._write(name_papers_collection(self.collection), [row for rows in ready for row in rows.papers])
        report = self.report
        report.papers += len(ready)
        report.equations += len(equations)
        report.deleted += deleted
        report.oversized += [name for rows in ready for name in rows.oversized]

    def _build_rows(self, paper: _ListedPaper) -> PaperRows | None:
        """A paper's rows; None if it was removed from the library meanwhile."""
        try:
            with self.library.translate_errors():
                page = records.get_paper_page(self.library, paper.key)
        except BadInput:
            return None
        trees = np.array([e.tree for _, members in page.sections for e in members if e.tree >= 0], np.int64)
        trees = trees[self.vectors.has(trees)]
        vectors = dict(zip(trees.tolist(), self.vectors.take(trees), strict=True))
        return build_paper_rows(page, vectors, paper.content, self.origin)

    def _write(self, collection: str, rows: Sequence[Row]) -> None:
        """Write rows, in messages of bounded size, in their order."""
        for message in _iter_messages(rows):
            self.connection.call("upsert", collection, seconds=WRITE_SECONDS, data=message)

    def _delete(self, papers: Sequence[str], keep: set[int]) -> int:
        """Delete the equations of papers that are not among those to keep. How many there were."""
        condition = f"paper_key in {format_list(map(hash_name, papers))}"
        rows = documents.scan_rows(self.connection, self.collection, (), condition, rows=1)
        gone = [row["key"] for row in rows if row["key"] not in keep]
        for start in range(0, len(gone), _EQUATIONS_PER_BATCH):
            self.connection.call(
                "delete", self.collection, seconds=WRITE_SECONDS, ids=gone[start : start + _EQUATIONS_PER_BATCH]
            )
        return len(gone)

    def _clear_pending(self) -> None:
        """Delete what an interrupted push has written of papers before their rows."""
        begun: dict[str, int] = documents.read_record(self.connection, self.collection, PENDING_KEY) or {}
        keys = [hash_name(paper) for paper in begun]
        rows = documents.fetch_rows(
            self.connection, name_papers_collection(self.collection), keys, ("parts",), strong=True
        )
        there = {paper: rows[key]["parts"] for key, paper in zip(keys, begun, strict=True) if key in rows}
        bare = [paper for paper in begun if paper not in there]
        if bare:
            self._delete(bare, set())
        self._drop_rows(_iter_part_keys((paper, there.get(paper, 1), parts) for paper, parts in begun.items()))

    def _drop_rows(self, keys: Iterable[int]) -> None:
        """Delete rows among the papers."""
        gone = list(keys)
        for start in range(0, len(gone), _EQUATIONS_PER_BATCH):
            part = gone[start : start + _EQUATIONS_PER_BATCH]
            self.connection.call("delete", name_papers_collection(self.collection), seconds=WRITE_SECONDS, ids=part)

    def _prune(self) -> None:
        """Drop papers that the library does not have."""
        here = list_contents(self.library)
        name = name_papers_collection(self.collection)
        rows = documents.scan_rows(
            self.connection,
            name,
            ("paper", "parts"),
            "equations >= 0",
            rows=documents.count_rows(self.connection, name, strong=True),
        )
        gone = [row for row in rows if row["paper"] not in here]
        for start in range(0, len(gone), _PAPERS_PER_LOOKUP):
            part = gone[start : start + _PAPERS_PER_LOOKUP]
            self.report.deleted += self._delete([row["paper"] for row in part], set())
            self._drop_rows(_iter_part_keys((row["paper"], 1, row["parts"]) for row in part))
            self._drop_rows(row["key"] for row in part)
            self.report.removed += len(part)
            self.lease.renew()

    def _finish(self) -> None:
        """Have what was pushed indexed, and say what the collection has now."""
        if self.report.papers or self.report.removed:
            with suppress(Unreachable, StorageFailed):  # it is safe already; the server comes to it in its own time
                self.connection.call("flush", self.collection, seconds=WRITE_SECONDS)
            self.lease.renew()
        folder = str(self.library.folder)
        self.report.collection = summarise(self.connection, self.collection, folder, self.lease.renew)


def _iter_part_keys(papers: Iterable[tuple[str, int, int]]) -> Iterator[int]:
    """Keys of further rows of papers, of each from one number to another."""
    for paper, first, end in papers:
        yield from (hash_part(hash_name(paper), at) for at in range(max(first, 1), end))


def _iter_batches(papers: Sequence[_ListedPaper]) -> Iterator[list[_ListedPaper]]:
    """Papers in groups of about as many equations."""
    batch: list[_ListedPaper] = []
    for paper in papers:
        if batch and sum(one.equations for one in batch) + paper.equations > _EQUATIONS_PER_BATCH:
            yield batch
            batch = []
        batch.append(paper)
    if batch:
        yield batch


def _iter_messages(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in groups that make messages of bounded size."""
    message: list[Row] = []
    size = 0
    for row in rows:
        here = estimate_size(row)
        if message and (size + here > _MAX_MESSAGE_BYTES or len(message) >= _EQUATIONS_PER_BATCH):
            yield message
            message, size = [], 0
        message.append(row)
        size += here
    if message:
        yield message
