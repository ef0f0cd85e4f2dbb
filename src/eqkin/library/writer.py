"""Putting extracts into a library: batches that are committed whole, segments that are merged when they get many."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import CorruptData
from eqkin.library.database import begin_transaction
from eqkin.library.parsing import ParsedPaper, make_failed_paper
from eqkin.sources.paper import Paper
from eqkin.storage import hash_file, write_file
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import from_bytes, open_forest, to_bytes

_BATCH_EQUATIONS = 10_000
_BATCH_PAPERS = 2_000
_BATCH_SECONDS = 20.0
_MAX_SEGMENTS = 16
_MAX_MERGED_BYTES = 64_000_000  # bytes; larger ones are left as they are
_MAX_DEAD_FRACTION = 0.5  # of trees that belong to no equation any more, above which all trees are rewritten


class LibraryWriter:
    """Collects extracts and commits them batch by batch. The caller holds the writer lock."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, unseal: Callable[[], None]) -> None:
        self.folder, self.connection, self._unseal = folder, connection, unseal
        self.database = folder / "library.db"
        self._batch: dict[str, ParsedPaper] = {}
        self._equations = 0
        self._since = time.monotonic()
        self._has_members_table = False

    def find_digest(self, key: str) -> str:
        """The digest the library, or the batch under way, has for a paper; "" if it has none or could not read it."""
        waiting = self._batch.get(key)
        if waiting is not None:
            return "" if waiting.failure else waiting.digest
        row = self.connection.execute("SELECT digest FROM papers WHERE key = ? AND failure = ''", (key,)).fetchone()
        return str(row[0]) if row else ""

    def find_member_digests(self, archive: str) -> dict[str, str]:
        """Return the digests of the papers that came from an archive, by key."""
        if not self._has_members_table:  # one sorted copy instead of a scan per archive
            self.connection.execute(
                "CREATE TEMP TABLE members AS SELECT origin, key, digest FROM papers WHERE failure = ''"
            )
            self.connection.execute("CREATE INDEX temp.members_by_origin ON members (origin)")
            self._has_members_table = True
        first, end = f"{archive}!", f'{archive}"'  # the character after "!"
        rows = self.connection.execute("SELECT key, digest FROM members WHERE origin >= ? AND origin < ?", (first, end))
        return {row[0]: row[1] for row in rows}

    def add(self, extract: ParsedPaper) -> None:
        """Add or replace a paper; it is safe on disk after the next `flush`. A failure never replaces a paper."""
        if extract.failure and self.find_digest(extract.key):
            return
        self._batch[extract.key] = extract
        self._equations += len(extract.equations)
        full = self._equations >= _BATCH_EQUATIONS or len(self._batch) >= _BATCH_PAPERS
        if full or time.monotonic() - self._since > _BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit what was put: the forest file first, then the rows that refer to it."""
        if self._batch:
            latest = list(self._batch.values())
            first = self._find_next_tree()
            builder = ForestBuilder()
            for extract in latest:
                if extract.forest is not None:
                    builder.add_forest(extract.forest)
            forest = builder.build()
            segment = self._write_segment(to_bytes(forest), first, len(forest)) if len(forest) else None
            with self._begin_transaction():
                if segment:
                    self._insert_segment(segment)
                for extract in latest:
                    self._store_paper(extract, first)
                    first += sum(e.tree >= 0 for e in extract.equations)
            self._batch.clear()
            self._equations = 0
        self._since = time.monotonic()

    def remove(self, keys: list[str]) -> int:
        """Drop papers by key; returns how many there were."""
        self.flush()
        if not keys:
            return 0
        with self._begin_transaction():
            cursor = self.connection.executemany("DELETE FROM papers WHERE key = ?", [(key,) for key in keys])
        return cursor.rowcount

    def compact(self) -> None:
        """Merge small segments when there are many, and drop trees nobody uses when they are most."""
        self.flush()
        segments = self.connection.execute("SELECT * FROM segments ORDER BY first").fetchall()
        stored = sum(row["count"] for row in segments)
        (live,) = self.connection.execute("SELECT count(tree) FROM equations").fetchone()
        dropped = stored - live > _MAX_DEAD_FRACTION * stored and self._drop_dead_trees(segments)
        if not dropped and len(segments) > _MAX_SEGMENTS:
            self._merge_segments(segments)
        self.delete_unused_files()

    def delete_unused_files(self) -> None:
        """Delete forest files no row refers to: left by a killed writer, or merged away."""
        used = {row[0] for row in self.connection.execute("SELECT file FROM segments")}
        for path in (self.folder / "forest").iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def _begin_transaction(self) -> AbstractContextManager[None]:
        self._unseal()
        return begin_transaction(self.connection, self.database)

    def _store_paper(self, extract: ParsedPaper, first: int) -> None:
        """Write one paper's rows; one that the database refuses is stored as failed."""
        self.connection.execute("SAVEPOINT paper")
        try:
            self._replace_paper(extract, first)
        except (
            OverflowError,
            ValueError,
            sqlite3.InterfaceError,
            sqlite3.DataError,
            sqlite3.ProgrammingError,
        ) as error:
            self.connection.execute("ROLLBACK TO paper")
            refused = make_failed_paper(extract.key, extract.origin, "internal error", repr(error))
            refused.source = extract.source
            self._replace_paper(refused, first)
        self.connection.execute("RELEASE paper")

    def _find_next_tree(self) -> int:
        """A number no tree ever had: vectors are kept by the numbers of trees."""
        row = self.connection.execute(
            "SELECT max(n) FROM (SELECT max(first + count) AS n FROM segments "
            "UNION SELECT CAST(value AS INTEGER) FROM state WHERE key = 'next tree')"
        ).fetchone()
        return int(row[0] or 0)

    def _write_segment(self, content: bytes, first: int, count: int) -> tuple[int, int, str, str, int]:
        generation = self.connection.execute("SELECT value FROM state WHERE key = 'generation'").fetchone()[0]
        path = self.folder / "forest" / f"{first:010d}-{generation}.safetensors"
        write_file(path, content)
        return first, count, path.name, hash_file(path), len(content)

    def _insert_segment(self, segment: tuple[int, int, str, str, int]) -> None:
        self.connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", segment)

    def _replace_paper(self, extract: ParsedPaper, first: int) -> None:
        execute = self.connection.execute
        execute("DELETE FROM papers WHERE key = ?", (extract.key,))
        paper = extract.paper or Paper(extract.key, "")
        cursor = execute(
            "INSERT INTO papers VALUES (NULL" + ", ?" * 19 + ")",
            (
                extract.key,
                extract.origin,
                extract.source,
                paper.kind if extract.paper else "",
                extract.digest,
                extract.content,
                extract.title,
                _encode_json(paper.authors),
                paper.year,
                _encode_json(paper.fields),
                paper.lang,
                paper.license,
                paper.group,
                paper.abstract,
                None if extract.packages is None else _encode_json(extract.packages),
                extract.macros,
                _encode_json(paper.notes),
                extract.failure,
                extract.message,
            ),
        )
        owner = cursor.lastrowid
        sections = [
            execute("INSERT INTO sections VALUES (NULL, ?, ?, ?, ?, ?)", (owner, number, *section)).lastrowid
            for number, section in enumerate(extract.sections)
        ]
        self.connection.executemany(
            "INSERT INTO equations VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    owner,
                    sections[e.section],
                    e.number,
                    e.mark,
                    e.environment,
                    e.label,
                    e.latex,
                    e.status,
                    e.repaired,
                    e.reason,
                    e.message,
                    e.unknown,
                    None if e.tree < 0 else first + e.tree,
                )
                for e in extract.equations
            ],
        )
        self.connection.executemany("INSERT INTO citations VALUES (?, ?)", [(owner, cited) for cited in extract.cites])

    def _merge_segments(self, segments: list[sqlite3.Row]) -> None:
        """Neighbouring small segments become one file; trees keep their numbers."""
        runs: list[list[sqlite3.Row]] = [[]]
        for row in segments:
            run = runs[-1]
            follows = not run or run[-1]["first"] + run[-1]["count"] == row["first"]
            if not follows or row["bytes"] + sum(r["bytes"] for r in run) > _MAX_MERGED_BYTES:
                runs.append([])
            runs[-1].append(row)
        for run in runs:
            if len(run) > 1:
                self._join_segments(run)

    def _read_segment(self, row: sqlite3.Row) -> Forest:
        """A segment whose content was compared with its hash: damage is never copied under a new one."""
        path = self.folder / "forest" / row["file"]
        content = path.read_bytes()
        if sha256(content).hexdigest() != row["sha256"]:
            raise CorruptData(f"{path}: does not match its hash; run `eqkin verify`")
        return from_bytes(content)

    def _join_segments(self, run: list[sqlite3.Row]) -> None:
        builder = ForestBuilder()
        for row in run:
            builder.add_forest(self._read_segment(row))
        forest = builder.build()
        segment = self._write_segment(to_bytes(forest), run[0]["first"], len(forest))
        with self._begin_transaction():
            self.connection.executemany("DELETE FROM segments WHERE first = ?", [(row["first"],) for row in run])
            self._insert_segment(segment)

    def _drop_dead_trees(self, segments: list[sqlite3.Row]) -> bool:
        """Put a single node in the place of each tree nobody uses, if that saves much; whether it does.

        The others keep their numbers: vectors are kept by them, and readers that opened the index ask for them.
        """
        used = [self._find_live_trees(row) for row in segments]
        forests = [open_forest(self.folder / "forest" / row["file"]) for row in segments]
        nodes = sum(int(forest.offsets[-1]) for forest in forests)
        needed = [int(forest.sizes[here].sum()) for forest, here in zip(forests, used, strict=True)]
        dead = sum(len(forest) - len(here) for forest, here in zip(forests, used, strict=True))
        if nodes - sum(needed) - dead <= _MAX_DEAD_FRACTION * nodes:
            return False
        new = []
        for row, here in zip(segments, used, strict=True):
            if len(here):
                content = to_bytes(_replace_dead_trees(self._read_segment(row), here))
                new.append(self._write_segment(content, row["first"], row["count"]))
        following = str(self._find_next_tree())
        with self._begin_transaction():
            self.connection.execute("DELETE FROM segments")
            self.connection.execute("INSERT OR REPLACE INTO state VALUES ('next tree', ?)", (following,))
            for segment in new:
                self._insert_segment(segment)
        return True

    def _find_live_trees(self, row: sqlite3.Row) -> npt.NDArray[np.int64]:
        """The places within a segment of the trees in use."""
        first = row["first"]
        found = self.connection.execute(
            "SELECT tree FROM equations WHERE tree >= ? AND tree < ? ORDER BY tree", (first, first + row["count"])
        )
        return np.fromiter((tree[0] - first for tree in found), np.int64)


def _replace_dead_trees(forest: Forest, kept: npt.NDArray[np.int64]) -> Forest:
    """A forest with a single node in the place of each tree that is not to be kept."""
    builder = ForestBuilder()
    builder.add_forest(forest.select(kept))
    builder.add_batch(["math"], [""], [""], [[[0], [0], [0], [0]]])
    order = np.full(len(forest), len(kept))
    order[kept] = np.arange(len(kept))
    return builder.build().select(order)


def _encode_json(value: object) -> str:
    return orjson.dumps(value).decode()
