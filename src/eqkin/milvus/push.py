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
import orjson

from eqkin.errors import BadInput, StorageFailed, Unreachable
from eqkin.library import Library
from eqkin.milvus import documents
from eqkin.milvus.connection import LONG, Connection
from eqkin.milvus.expressions import listed
from eqkin.milvus.keys import BEGUN, key_of, part_key
from eqkin.milvus.lease import Lease
from eqkin.milvus.rows import PaperRows, Row, rows_of, size_of
from eqkin.milvus.schema import DEFAULT, Origin, checked_name, papers_of, prepare
from eqkin.milvus.summary import summarise
from eqkin.milvus.vectors import LibraryVectors
from eqkin.search import records

T = TypeVar("T")
_ASKED = 500  # papers looked up at a time
_BATCH = 1_000  # equations of a batch, and of a message
_MESSAGE_BYTES = 4_000_000  # of a message; Milvus takes 64 MB
_PATIENCE = (1.0, 4.0, 15.0, 30.0)  # seconds waited for a server that is away, before a batch is tried again
_PAPERS = """
SELECT p.id, p.key, p.content, json_group_array(e.tree) AS trees FROM papers p LEFT JOIN equations e ON e.paper = p.id
WHERE p.id IN (SELECT id FROM papers WHERE id > ? ORDER BY id LIMIT ?) GROUP BY p.id ORDER BY p.id
"""


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


def push(
    library: Library,
    uri: str,
    model: str,
    collection: str = DEFAULT,
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
    connection = Connection(uri)
    try:
        vectors = LibraryVectors.open(library, model)
        origin = prepare(connection, checked_name(collection), model, vectors.dimensions)
        with Lease(connection, collection) as lease:
            pushing = _Push(library, connection, collection, vectors, origin, lease, progress or (lambda report: None))
            return pushing.run(prune)
    finally:
        connection.close()


@dataclass
class _Listed:
    """A paper of the library."""

    key: str
    content: str  # as its row has it when it is complete
    equations: int  # that have a vector
    parts: int = 0  # rows among the papers that the collection has of it


@dataclass
class _Push:
    library: Library
    connection: Connection
    collection: str
    vectors: LibraryVectors
    origin: Origin
    lease: Lease
    progress: Progress
    report: PushReport = field(default_factory=PushReport)

    def run(self, prune: bool) -> PushReport:
        start, report = time.monotonic(), self.report
        with self.library.reading():
            report.total = self.library.connection.execute("SELECT count(*) FROM papers").fetchone()[0]
        self._clear_begun()
        fresh = documents.count(self.connection, self.collection, strong=True) == 0
        for listed_ in self._listed():
            due = self._patiently(partial(self._due, listed_))
            report.unchanged += len(listed_) - len(due)
            for batch in _batches(due):
                self._patiently(partial(self._push, batch, fresh))
                self._told(start)
            self._told(start)
        self._drop_rows([BEGUN])
        if prune:
            self._prune()
        self._finish()
        self._told(start)
        return report

    def _told(self, start: float) -> None:
        self.report.seconds = time.monotonic() - start
        self.lease.renew()
        self.progress(self.report)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do what may be done twice; again if the server was away for a moment."""
        for pause in _PATIENCE:
            try:
                return work()
            except Unreachable:
                time.sleep(pause)
        return work()

    def _listed(self) -> Iterator[list[_Listed]]:
        """The library's papers, some at a time."""
        last = 0
        while True:
            with self.library.reading():
                rows = self.library.connection.execute(_PAPERS, (last, _ASKED)).fetchall()
            if not rows:
                return
            last = rows[-1]["id"]
            yield [self._counted(row["key"], row["content"], row["trees"]) for row in rows]

    def _counted(self, key: str, content: str, trees: str) -> _Listed:
        numbers = np.array([tree for tree in orjson.loads(trees) if tree is not None], np.int64)
        there = int(self.vectors.has(numbers).sum())
        self.report.missing += len(numbers) - there
        return _Listed(key, f"{content}-{there}", there)

    def _due(self, papers: Sequence[_Listed]) -> list[_Listed]:
        """Those of papers that the collection does not have as they are."""
        keys = [key_of(paper.key) for paper in papers]
        rows = documents.fetch(self.connection, papers_of(self.collection), keys, ("content", "parts"), strong=True)
        found = []
        for key, paper in zip(keys, papers, strict=True):
            row = rows.get(key, {"content": None, "parts": 0})
            if row["content"] != paper.content:
                found.append(replace(paper, parts=row["parts"]))
        return found

    def _push(self, papers: Sequence[_Listed], fresh: bool) -> None:
        """Write a batch: equations first, then what is to be deleted, then the papers."""
        ready = [rows for paper in papers if (rows := self._rows(paper)) is not None]
        equations = [row for rows in ready for row in rows.equations]
        begun = {rows.key: len(rows.papers) for rows in ready}
        documents.write(self.connection, self.collection, BEGUN, begun, secrets.token_hex(8))
        self._write(self.collection, equations)
        deleted = 0 if fresh else self._delete(list(begun), {row["key"] for row in equations})
        self._drop_rows(_parts((paper.key, begun.get(paper.key, paper.parts), paper.parts) for paper in papers))
        self.lease.renew()  # whoever took it over has deleted what was begun
        self._write(papers_of(self.collection), [row for rows in ready for row in rows.papers])
        report = self.report
        report.papers += len(ready)
        report.equations += len(equations)
        report.deleted += deleted
        report.oversized += [name for rows in ready for name in rows.oversized]

    def _rows(self, paper: _Listed) -> PaperRows | None:
        """A paper's rows; None if it was removed from the library meanwhile."""
        try:
            with self.library.reading():
                page = records.paper_page(self.library, paper.key)
        except BadInput:
            return None
        trees = np.array([e.tree for _, members in page.sections for e in members if e.tree >= 0], np.int64)
        trees = trees[self.vectors.has(trees)]
        vectors = dict(zip(trees.tolist(), self.vectors.take(trees), strict=True))
        return rows_of(page, vectors, paper.content, self.origin)

    def _write(self, collection: str, rows: Sequence[Row]) -> None:
        """Write rows, in messages of bounded size, in their order."""
        for message in _messages(rows):
            self.connection.call("upsert", collection, seconds=LONG, data=message)

    def _delete(self, papers: Sequence[str], keep: set[int]) -> int:
        """Delete the equations of papers that are not among those to keep. How many there were."""
        condition = f"paper_key in {listed(map(key_of, papers))}"
        rows = documents.scan(self.connection, self.collection, (), condition, rows=1)
        gone = [row["key"] for row in rows if row["key"] not in keep]
        for start in range(0, len(gone), _BATCH):
            self.connection.call("delete", self.collection, seconds=LONG, ids=gone[start : start + _BATCH])
        return len(gone)

    def _clear_begun(self) -> None:
        """Delete what an interrupted push has written of papers before their rows."""
        begun: dict[str, int] = documents.read(self.connection, self.collection, BEGUN) or {}
        keys = [key_of(paper) for paper in begun]
        rows = documents.fetch(self.connection, papers_of(self.collection), keys, ("parts",), strong=True)
        there = {paper: rows[key]["parts"] for key, paper in zip(keys, begun, strict=True) if key in rows}
        bare = [paper for paper in begun if paper not in there]
        if bare:
            self._delete(bare, set())
        self._drop_rows(_parts((paper, there.get(paper, 1), parts) for paper, parts in begun.items()))

    def _drop_rows(self, keys: Iterable[int]) -> None:
        """Delete rows among the papers."""
        gone = list(keys)
        for start in range(0, len(gone), _BATCH):
            part = gone[start : start + _BATCH]
            self.connection.call("delete", papers_of(self.collection), seconds=LONG, ids=part)

    def _prune(self) -> None:
        """Drop papers that the library does not have."""
        with self.library.reading():
            here = {row[0] for row in self.library.connection.execute("SELECT key FROM papers")}
        name = papers_of(self.collection)
        rows = documents.scan(
            self.connection,
            name,
            ("paper", "parts"),
            "equations >= 0",
            rows=documents.count(self.connection, name, strong=True),
        )
        gone = [row for row in rows if row["paper"] not in here]
        for start in range(0, len(gone), _ASKED):
            part = gone[start : start + _ASKED]
            self.report.deleted += self._delete([row["paper"] for row in part], set())
            self._drop_rows(_parts((row["paper"], 1, row["parts"]) for row in part))
            self._drop_rows(row["key"] for row in part)
            self.report.removed += len(part)
            self.lease.renew()

    def _finish(self) -> None:
        """Have what was pushed indexed, and say what the collection has now."""
        if self.report.papers or self.report.removed:
            with suppress(Unreachable, StorageFailed):  # it is safe already; the server comes to it in its own time
                self.connection.call("flush", self.collection, seconds=LONG)
            self.lease.renew()
        folder = str(self.library.folder)
        self.report.collection = summarise(self.connection, self.collection, folder, self.lease.renew)


def _parts(papers: Iterable[tuple[str, int, int]]) -> Iterator[int]:
    """Keys of further rows of papers, of each from one number to another."""
    for paper, first, end in papers:
        yield from (part_key(key_of(paper), at) for at in range(max(first, 1), end))


def _batches(papers: Sequence[_Listed]) -> Iterator[list[_Listed]]:
    """Papers in groups of about as many equations."""
    batch: list[_Listed] = []
    for paper in papers:
        if batch and sum(one.equations for one in batch) + paper.equations > _BATCH:
            yield batch
            batch = []
        batch.append(paper)
    if batch:
        yield batch


def _messages(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in groups that make messages of bounded size."""
    message: list[Row] = []
    size = 0
    for row in rows:
        here = size_of(row)
        if message and (size + here > _MESSAGE_BYTES or len(message) >= _BATCH):
            yield message
            message, size = [], 0
        message.append(row)
        size += here
    if message:
        yield message
