"""Checking a library: every file against its hash, every tree for its shape, every paper against its digest."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson

from eqkin.errors import CorruptData, StorageFailed
from eqkin.library import database
from eqkin.library.database import LibraryManifest
from eqkin.library.files import LibraryFiles
from eqkin.library.judgements import LocalJudgements
from eqkin.library.parsing import ParsedEquation, ParsedPaper, compute_content_digest, make_failed_paper
from eqkin.sources.paper import Paper
from eqkin.storage import hash_file
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import from_bytes, open_forest


@dataclass
class VerificationReport:
    """What `verify` found: `problems` is empty if the library is whole."""

    papers: int = 0
    equations: int = 0
    trees: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: str = ""  # digest of the whole content, equal for libraries with the same papers however they were built


def verify_library(folder: Path, progress: Callable[[int], None] | None = None) -> VerificationReport:
    """Check the papers, trees and judgements of a library; `progress` is called with the number of papers checked so far.

    The caller holds the writer lock. Raises `BadInput` if there is no library.
    """
    report = VerificationReport()
    try:
        with LibraryFiles.open(folder, create=False) as library:
            _check_database(library, library.manifest, report)
            segments = _check_segments(library, report)
            _check_papers(library, segments, report, progress)
            _check_unused_files(library, report)
            report.problems += LocalJudgements(folder).find_problems()
    except (CorruptData, StorageFailed) as error:
        report.problems.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        report.problems.append(f"{folder}: damaged ({error!r})")
    return report


def _check_database(library: LibraryFiles, manifest: LibraryManifest, report: VerificationReport) -> None:
    path = library.folder / database.DATABASE_NAME
    generation = database.read_generation(library.connection)
    if not manifest.sealed:
        report.notes.append("the last writer was stopped before it finished; run its command again to complete it")
    elif generation != manifest.generation or hash_file(path) != manifest.database:
        report.problems.append(f"{path}: does not match the hash in the manifest")
    for row in library.connection.execute("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            report.problems.append(f"{path}: {row[0]}")
    for row in library.connection.execute("PRAGMA foreign_key_check"):
        report.problems.append(f"{path}: a row of {row[0]} refers to a missing row of {row[2]}")


def _check_segments(library: LibraryFiles, report: VerificationReport) -> list[tuple[int, Forest]]:
    segments: list[tuple[int, Forest]] = []
    expected = None
    for row in library.connection.execute("SELECT * FROM segments ORDER BY first").fetchall():
        path = library.folder / "forest" / row["file"]
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != row["sha256"]:
                raise CorruptData(f"{path}: does not match its hash")
            forest = from_bytes(content)
            forest.validate()
            if len(forest) != row["count"] or (expected is not None and row["first"] < expected):
                raise CorruptData(
                    f"{path}: holds {len(forest)} trees, the database says {row['count']} from {row['first']}"
                )
            segments.append((row["first"], open_forest(path)))  # mapped: all of them together may not fit in memory
        except OSError as error:
            report.problems.append(f"{path}: {error.strerror}")
        except CorruptData as error:
            report.problems.append(str(error))
        expected = row["first"] + row["count"]
    return segments


def _check_papers(
    library: LibraryFiles,
    segments: list[tuple[int, Forest]],
    report: VerificationReport,
    progress: Callable[[int], None] | None,
) -> None:
    starts = np.array([first for first, _ in segments], np.int64)
    digest, before = sha256(), ""
    for row in library.connection.execute("SELECT * FROM papers ORDER BY key"):
        extract, trees = load_parsed_paper(library.connection, row)
        report.papers += 1
        report.equations += len(extract.equations)
        report.trees += len(trees)
        digest.update(f"{before}{row['key']}\0{row['content']}".encode())
        before = "\n"
        try:
            if row["failure"]:
                extract = make_failed_paper(row["key"], row["origin"], row["failure"], row["message"])
            else:
                extract.forest = _select_trees(segments, starts, trees).canonicalise()
            if compute_content_digest(extract) != row["content"]:
                report.problems.append(f"paper {row['key']}: its content does not match its digest")
        except (CorruptData, IndexError) as error:
            report.problems.append(f"paper {row['key']}: {error}")
        if progress:
            progress(report.papers)
    report.content = digest.hexdigest()


def _select_trees(
    segments: list[tuple[int, Forest]], starts: np.ndarray[tuple[int], np.dtype[np.int64]], trees: list[int]
) -> Forest:
    """A paper's trees; they lie side by side in one segment."""
    if not trees:
        return ForestBuilder().build()
    at = int(np.searchsorted(starts, trees[0], "right")) - 1
    if at < 0:
        raise CorruptData("its trees are in no segment")
    first, forest = segments[at]
    return forest.select(np.array(trees) - first)


def load_parsed_paper(connection: sqlite3.Connection, row: sqlite3.Row) -> tuple[ParsedPaper, list[int]]:
    """A paper as it was read, from its rows, and the numbers of its trees."""
    paper = Paper(
        row["key"],
        "",
        row["origin"],
        row["kind"],
        row["title"],
        orjson.loads(row["authors"]),
        row["year"],
        orjson.loads(row["fields"]),
        row["lang"],
        row["license"],
        row["work"],
        row["abstract"],
        notes=orjson.loads(row["notes"]),
    )
    sections = connection.execute(
        "SELECT id, level, title, latex FROM sections WHERE paper = ? ORDER BY number", (row["id"],)
    ).fetchall()
    number_of = {section["id"]: number for number, section in enumerate(sections)}
    records: list[ParsedEquation] = []
    trees: list[int] = []
    for e in connection.execute("SELECT * FROM equations WHERE paper = ? ORDER BY number", (row["id"],)):
        tree = -1 if e["tree"] is None else len(trees)
        if e["tree"] is not None:
            trees.append(e["tree"])
        records.append(
            ParsedEquation(
                number_of[e["section"]],
                e["number"],
                e["mark"],
                e["environment"],
                e["label"],
                e["latex"],
                e["status"],
                bool(e["repaired"]),
                e["reason"],
                e["message"],
                e["unknown"],
                tree,
            )
        )
    cites = [
        c[0] for c in connection.execute("SELECT cited FROM citations WHERE paper = ? ORDER BY cited", (row["id"],))
    ]
    packages = None if row["packages"] is None else orjson.loads(row["packages"])
    extract = ParsedPaper(
        row["key"],
        row["origin"],
        row["digest"],
        paper,
        row["title"],
        packages,
        row["macros"],
        [(s["level"], s["title"], s["latex"]) for s in sections],
        records,
        cites,
        failure=row["failure"],
        message=row["message"],
    )
    return extract, trees


def _check_unused_files(library: LibraryFiles, report: VerificationReport) -> None:
    used = {row[0] for row in library.connection.execute("SELECT file FROM segments")}
    strays = [path.name for path in (library.folder / "forest").iterdir() if path.name not in used]
    if strays:
        report.notes.append(
            f"{len(strays)} unused forest files of an interrupted or earlier write; the next `eqkin add` deletes them"
        )
