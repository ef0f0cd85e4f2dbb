"""Putting extracts into a library: batches that are committed whole, segments that are merged when they get many."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import numpy as np
import orjson

from eqkin.forest import ForestBuilder
from eqkin.forest.storage import from_bytes, open_forest, to_bytes
from eqkin.library.database import transaction
from eqkin.library.durable import sha256_of, write_file
from eqkin.library.reading import Extract
from eqkin.sources.paper import Paper

_BATCH_EQUATIONS = 10_000
_BATCH_PAPERS = 2_000
_BATCH_SECONDS = 20.0
_MANY_SEGMENTS = 16
_SMALL_SEGMENT = 64_000_000  # bytes; larger ones are left as they are
_DEAD_SHARE = 0.5  # of trees that belong to no equation any more, above which all trees are rewritten


class Writer:
    """Collects extracts and commits them batch by batch. The caller holds the writer lock."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder, self.connection = folder, connection
        self.database = folder / "library.db"
        self._batch: list[Extract] = []
        self._equations = 0
        self._since = time.monotonic()

    def known(self, key: str) -> str:
        """The digest the library, or the batch under way, has for a paper; "" if it has none or could not read it."""
        for extract in reversed(self._batch):
            if extract.key == key:
                return extract.digest
        row = self.connection.execute("SELECT digest FROM papers WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def put(self, extract: Extract) -> None:
        """Add or replace a paper; it is safe on disk after the next `flush`."""
        self._batch.append(extract)
        self._equations += len(extract.equations)
        full = self._equations >= _BATCH_EQUATIONS or len(self._batch) >= _BATCH_PAPERS
        if full or time.monotonic() - self._since > _BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit what was put: the forest file first, then the rows that refer to it."""
        if self._batch:
            latest = list({extract.key: extract for extract in self._batch}.values())
            first = self._next_tree()
            builder = ForestBuilder()
            for extract in latest:
                if extract.forest:
                    builder.add_forest(from_bytes(extract.forest))
            forest = builder.build()
            segment = self._write_segment(to_bytes(forest), first, len(forest)) if len(forest) else None
            with transaction(self.connection, self.database):
                if segment:
                    self._insert_segment(segment)
                for extract in latest:
                    first += self._replace(extract, first)
            self._batch.clear()
            self._equations = 0
        self._since = time.monotonic()

    def remove(self, keys: list[str]) -> int:
        """Drop papers by key; returns how many there were."""
        self.flush()
        with transaction(self.connection, self.database):
            cursor = self.connection.executemany("DELETE FROM papers WHERE key = ?", [(key,) for key in keys])
        return cursor.rowcount

    def tidy(self) -> None:
        """Merge small segments when there are many, and drop trees nobody uses when they are most."""
        self.flush()
        segments = self.connection.execute("SELECT * FROM segments ORDER BY first").fetchall()
        stored = sum(row["count"] for row in segments)
        (live,) = self.connection.execute("SELECT count(tree) FROM equations").fetchone()
        if stored and stored - live > _DEAD_SHARE * stored:
            self._rewrite(segments)
        elif len(segments) > _MANY_SEGMENTS:
            self._merge(segments)
        self.sweep()

    def sweep(self) -> None:
        """Delete forest files no row refers to: left by a killed writer, or merged away."""
        used = {row[0] for row in self.connection.execute("SELECT file FROM segments")}
        for path in (self.folder / "forest").iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def _next_tree(self) -> int:
        row = self.connection.execute("SELECT max(first + count) FROM segments").fetchone()
        return int(row[0] or 0)

    def _write_segment(self, content: bytes, first: int, count: int) -> tuple[int, int, str, str, int]:
        generation = self.connection.execute("SELECT value FROM state WHERE key = 'generation'").fetchone()[0]
        path = self.folder / "forest" / f"{first:010d}-{generation}.safetensors"
        write_file(path, content)
        return first, count, path.name, sha256_of(path), len(content)

    def _insert_segment(self, segment: tuple[int, int, str, str, int]) -> None:
        self.connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", segment)

    def _replace(self, extract: Extract, first: int) -> int:
        """Write one paper's rows; its trees start at `first`. Returns the number of its trees."""
        execute = self.connection.execute
        execute("DELETE FROM papers WHERE key = ?", (extract.key,))
        paper = extract.paper or Paper(extract.key, "")
        cursor = execute(
            "INSERT INTO papers VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                extract.key,
                extract.origin,
                paper.kind if extract.paper else "",
                extract.digest,
                extract.content,
                extract.title,
                _json(paper.authors),
                paper.year,
                _json(paper.fields),
                paper.lang,
                paper.license,
                paper.group,
                paper.abstract,
                None if extract.packages is None else _json(extract.packages),
                extract.macros,
                _json(paper.notes),
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
        return sum(e.tree >= 0 for e in extract.equations)

    def _merge(self, segments: list[sqlite3.Row]) -> None:
        """Neighbouring small segments become one file; trees keep their numbers."""
        runs: list[list[sqlite3.Row]] = [[]]
        for row in segments:
            run = runs[-1]
            follows = not run or run[-1]["first"] + run[-1]["count"] == row["first"]
            if not follows or row["bytes"] + sum(r["bytes"] for r in run) > _SMALL_SEGMENT:
                runs.append([])
            runs[-1].append(row)
        for run in runs:
            if len(run) > 1:
                self._join(run)

    def _join(self, run: list[sqlite3.Row]) -> None:
        builder = ForestBuilder()
        for row in run:
            builder.add_forest(open_forest(self.folder / "forest" / row["file"]))
        forest = builder.build()
        segment = self._write_segment(to_bytes(forest), run[0]["first"], len(forest))
        with transaction(self.connection, self.database):
            self.connection.executemany("DELETE FROM segments WHERE first = ?", [(row["first"],) for row in run])
            self._insert_segment(segment)

    def _rewrite(self, segments: list[sqlite3.Row]) -> None:
        """Keep only trees in use, renumbered in the same order."""
        live = np.array(
            [
                row[0]
                for row in self.connection.execute("SELECT tree FROM equations WHERE tree IS NOT NULL ORDER BY tree")
            ]
        )
        builder = ForestBuilder()
        for row in segments:
            here = live[(live >= row["first"]) & (live < row["first"] + row["count"])] - row["first"]
            builder.add_forest(open_forest(self.folder / "forest" / row["file"]).select(here))
        forest = builder.build()
        start = self._next_tree()  # numbers nobody uses yet: old and new ones never meet
        segment = self._write_segment(to_bytes(forest), start, len(forest)) if len(forest) else None
        with transaction(self.connection, self.database):
            self.connection.execute("CREATE TEMP TABLE moved (old INTEGER PRIMARY KEY, new INTEGER)")
            self.connection.executemany(
                "INSERT INTO moved VALUES (?, ?)", [(int(old), start + i) for i, old in enumerate(live)]
            )
            self.connection.execute(
                "UPDATE equations SET tree = (SELECT new FROM moved WHERE old = tree) WHERE tree IS NOT NULL"
            )
            self.connection.execute("DROP TABLE moved")
            self.connection.execute("DELETE FROM segments")
            if segment:
                self._insert_segment(segment)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
