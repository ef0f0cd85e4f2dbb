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
from eqkin.library.database import DATABASE_NAME, FOREST_FOLDER, JOIN_WHOLE, LATEX, read_generation
from eqkin.library.files import LibraryFiles
from eqkin.library.judgements import LocalJudgements
from eqkin.library.parsing import ParsedEquation, ParsedPaper, compute_content_digest, make_failed_paper
from eqkin.sources.paper import Paper
from eqkin.storage import hash_file
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import from_bytes, open_forest


@dataclass
class VerificationReport:
    """Findings of a check; `problems` is empty if nothing is damaged, `notes` say what is unfinished."""

    papers: int = 0
    equations: int = 0
    trees: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: str = ""  # digest of the whole content; the same papers give the same digest, in whatever order they came


def verify_library(folder: Path, progress: Callable[[int], None] | None = None) -> VerificationReport:
    """Check papers, trees and judgements of a library; `progress` is called with the number of papers checked so far.

    The caller holds the writer lock. Raises `BadInput` if there is no library.
    """
    report = VerificationReport()
    try:
        with LibraryFiles.open(folder) as library:
            _check_database(library, report)
            segments = _check_segments(library, report)
            _check_papers(library, segments, report, progress or (lambda papers: None))
            report.problems += LocalJudgements(folder).find_problems()
    except (CorruptData, StorageFailed) as error:
        report.problems.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        report.problems.append(f"{folder}: damaged ({error!r})")
    return report


def _check_database(library: LibraryFiles, report: VerificationReport) -> None:
    path, manifest = library.folder / DATABASE_NAME, library.manifest
    if not manifest.sealed:
        report.notes.append("the last writer was stopped before it finished; run its command again to complete it")
    elif read_generation(library.connection) != manifest.generation or hash_file(path) != manifest.database:
        report.problems.append(f"{path}: does not match the hash in the manifest")
    for row in library.connection.execute("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            report.problems.append(f"{path}: {row[0]}")
    for row in library.connection.execute("PRAGMA foreign_key_check"):
        report.problems.append(f"{path}: a row of {row[0]} refers to a missing row of {row[2]}")


def _check_segments(library: LibraryFiles, report: VerificationReport) -> list[tuple[int, Forest]]:
    """Check all segments; return the intact ones with the number of their first tree."""
    segments: list[tuple[int, Forest]] = []
    folder, used, end = library.folder / FOREST_FOLDER, set(), None
    for row in library.connection.execute("SELECT * FROM segments ORDER BY first").fetchall():
        path = folder / row["file"]
        used.add(path.name)
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != row["sha256"]:
                raise CorruptData(f"{path}: does not match its hash")
            forest = from_bytes(content)
            forest.validate()
            if len(forest) != row["count"] or (end is not None and row["first"] < end):
                raise CorruptData(
                    f"{path}: has {len(forest)} trees, the database says {row['count']} from {row['first']}"
                )
            segments.append((row["first"], open_forest(path)))  # mapped: all of them may not fit in memory
        except OSError as error:
            report.problems.append(f"{path}: {error.strerror}")
        except CorruptData as error:
            report.problems.append(str(error))
        end = row["first"] + row["count"]
    unused = [path.name for path in folder.iterdir() if path.name not in used]
    if unused:
        report.notes.append(f"{len(unused)} unused segments of an interrupted write; the next `eqkin add` deletes them")
    return segments


def _check_papers(
    library: LibraryFiles,
    segments: list[tuple[int, Forest]],
    report: VerificationReport,
    progress: Callable[[int], None],
) -> None:
    starts = np.array([first for first, _ in segments], np.int64)
    digest, separator = sha256(), ""
    for row in library.connection.execute("SELECT * FROM papers ORDER BY key"):
        paper, trees = _load_paper(library.connection, row)
        report.papers += 1
        report.equations += len(paper.equations)
        report.trees += len(trees)
        digest.update(f"{separator}{row['key']}\0{row['content']}".encode())
        separator = "\n"
        try:
            if row["failure"]:
                paper = make_failed_paper(row["key"], row["origin"], row["failure"], row["message"])
            elif not trees:
                paper.forest = ForestBuilder().build()
            else:  # a paper's trees are neighbours in one segment
                at = int(np.searchsorted(starts, trees[0], "right")) - 1
                if at < 0:
                    raise CorruptData("its trees are in no segment")
                first, forest = segments[at]
                paper.forest = forest.select(np.array(trees) - first).canonicalise()
            if compute_content_digest(paper) != row["content"]:
                report.problems.append(f"paper {row['key']}: its content does not match its digest")
        except (CorruptData, IndexError) as error:
            report.problems.append(f"paper {row['key']}: {error}")
        progress(report.papers)
    report.content = digest.hexdigest()


def _load_paper(connection: sqlite3.Connection, row: sqlite3.Row) -> tuple[ParsedPaper, list[int]]:
    """Build a paper as it was parsed from its rows, without its forest; return it and the numbers of its trees."""
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
        row["doi"],
        row["url"],
        row["cite_key"],
        notes=orjson.loads(row["notes"]),
    )
    sections = connection.execute(
        "SELECT id, level, title, latex FROM sections WHERE paper = ? ORDER BY number", (row["id"],)
    ).fetchall()
    number_of = {section["id"]: number for number, section in enumerate(sections)}
    equations: list[ParsedEquation] = []
    trees: list[int] = []
    rows = connection.execute(
        f"SELECT e.section, e.number, e.mark, e.environment, e.label, {LATEX} AS latex, e.status, e.repaired, "
        "e.reason, e.message, e.unknown, e.tree, e.printed, coalesce(w.number, -1) AS whole, e.spans, e.inline "
        f"FROM equations e {JOIN_WHOLE} WHERE e.paper = ? ORDER BY e.number",
        (row["id"],),
    )
    for e in map(dict, rows):
        e["inline"] = bool(e["inline"])
        tree = -1 if e["tree"] is None else len(trees)
        trees += [] if e["tree"] is None else [e["tree"]]
        changed = {"section": number_of[e["section"]], "repaired": bool(e["repaired"]), "tree": tree}
        equations.append(ParsedEquation(**e | changed))
    cited = connection.execute("SELECT cited FROM citations WHERE paper = ? ORDER BY cited", (row["id"],))
    parsed = ParsedPaper(
        row["key"],
        row["origin"],
        row["digest"],
        paper,
        row["title"],
        None if row["packages"] is None else orjson.loads(row["packages"]),
        row["macros"],
        [(s["level"], s["title"], s["latex"]) for s in sections],
        equations,
        [key for (key,) in cited],
        failure=row["failure"],
        message=row["message"],
    )
    return parsed, trees
