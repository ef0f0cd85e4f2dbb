"""Checking a library: every file against its hash, every tree for its shape, every paper against its digest."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson

from eqkin.errors import CorruptData, StorageFailed
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import from_bytes, open_forest
from eqkin.library.database import (
    DATABASE_NAME,
    FOREST_FOLDER,
    JOIN_WHOLE,
    LATEX,
    LIBRARY_NAMES,
    LIBRARY_REMEDY,
    MANIFEST_NAME,
    OWN_FILES,
    OWN_JUDGEMENT_FILES,
    OWN_SEGMENTS,
    PAPER_FIELDS,
    PARSED_FIELDS,
    PROSE,
    LibraryManifest,
    check_links,
    connect,
    read_generation,
)
from eqkin.library.files import TREES_REMEDY, LibraryFiles, list_segments
from eqkin.library.judgements import LocalJudgements
from eqkin.library.parsing import ParsedEquation, ParsedPaper, compute_content_digest, make_failed_paper
from eqkin.sources.paper import Paper
from eqkin.storage.files import find_unknown_files, hash_file
from eqkin.storage.segments import HASH_CACHE_NAME, is_cache_damaged


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
    report, folder = VerificationReport(), folder.expanduser().absolute()
    for path in (folder / HASH_CACHE_NAME, folder / FOREST_FOLDER / HASH_CACHE_NAME):
        if is_cache_damaged(path.parent):
            report.problems.append(f"{path}: damaged; delete it, eqkin makes a new one")
    try:
        if not (folder / MANIFEST_NAME).exists():
            LibraryFiles.open(folder)  # says what is wrong
        check_links(folder)
        # without the check of its hash, which would be all that is found in a damaged database
        with LibraryFiles(folder, LibraryManifest.load(folder), connect(folder / DATABASE_NAME)) as library:
            _check_database(library, report)
            segments = _check_segments(library, report)
            _check_papers(library, segments, report, progress or (lambda papers: None))
            _check_folders(library, report)
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
        report.problems.append(f"{path}: does not match the hash in the manifest; {LIBRARY_REMEDY}")
    for row in library.connection.execute("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            report.problems.append(f"{path}: {row[0]}")
    for row in library.connection.execute("PRAGMA foreign_key_check"):
        report.problems.append(f"{path}: a row of {row[0]} refers to a missing row of {row[2]}")


def _check_segments(library: LibraryFiles, report: VerificationReport) -> list[tuple[int, Forest]]:
    """Check all segments; return the intact ones with the number of their first tree."""
    segments: list[tuple[int, Forest]] = []
    end = 0
    for entry in list_segments(library.connection):
        path = library.folder / FOREST_FOLDER / entry.file
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != entry.sha256:
                raise CorruptData(f"{path}: does not match its hash; {TREES_REMEDY}")
            forest = from_bytes(content)
            forest.validate()
            if len(forest) != entry.count or entry.first < end:
                raise CorruptData(
                    f"{path}: has {len(forest)} trees, the database says {entry.count} from {entry.first}"
                )
            segments.append((entry.first, open_forest(path)))  # mapped: all of them may not fit in memory
        except OSError as error:
            report.problems.append(f"{path}: {error.strerror}; {TREES_REMEDY}")
        except CorruptData as error:
            report.problems.append(str(error))
        end = entry.first + entry.count
    return segments


def _check_folders(library: LibraryFiles, report: VerificationReport) -> None:
    """Name the files that do not belong to the library, and count those of killed processes."""
    root, forest = library.folder, library.folder / FOREST_FOLDER
    segments = {HASH_CACHE_NAME, *(entry.file for entry in list_segments(library.connection))}
    unused = 0
    own_files = re.compile(f"{OWN_FILES.pattern}|{OWN_JUDGEMENT_FILES.pattern}")
    for folder, known, own in ((root, LIBRARY_NAMES, own_files), (forest, segments, OWN_SEGMENTS)):
        leftover, foreign = find_unknown_files(folder, known, own)
        unused += len(leftover)
        report.notes += [f"{folder / name}: does not belong to the library; eqkin leaves it alone" for name in foreign]
    if unused:
        report.notes.append(f"{unused} unused files of an interrupted write; the next one deletes them")


def _check_papers(
    library: LibraryFiles,
    segments: list[tuple[int, Forest]],
    report: VerificationReport,
    progress: Callable[[int], None],
) -> None:
    starts = np.array([first for first, _ in segments], np.int64)
    digest, separator = sha256(), ""
    for row in library.connection.execute("SELECT * FROM papers ORDER BY key"):
        paper, trees = load_stored_paper(library.connection, row)
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


def load_stored_paper(connection: sqlite3.Connection, row: sqlite3.Row) -> tuple[ParsedPaper, list[int]]:
    """Build a paper as it was parsed from its rows, without its forest; return it and the numbers of its trees."""
    values = {name: row[name] for name in (*PAPER_FIELDS, *PARSED_FIELDS)}
    values |= {name: orjson.loads(row[name] or "null") for name in ("authors", "fields", "notes", "packages")}
    about = {name: values[name] for name in (*PAPER_FIELDS, "title")}
    paper = Paper(row["key"], "", row["origin"], group=row["work"], **about)
    sections = connection.execute(
        f"SELECT id, level, title, {PROSE} AS latex FROM sections s WHERE paper = ? ORDER BY number", (row["id"],)
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
        changed = {"section": number_of[e["section"]], "repaired": bool(e["repaired"]), "inline": bool(e["inline"])}
        changed["tree"] = -1 if e["tree"] is None else len(trees)
        trees += [] if e["tree"] is None else [e["tree"]]
        equations.append(ParsedEquation(**e | changed))
    cited = connection.execute("SELECT cited FROM citations WHERE paper = ? ORDER BY cited", (row["id"],))
    parsed = ParsedPaper(
        **{name: values[name] for name in PARSED_FIELDS},
        paper=paper,
        sections=[(s["level"], s["title"], s["latex"]) for s in sections],
        equations=equations,
        cites=[key for (key,) in cited],
    )
    return parsed, trees
