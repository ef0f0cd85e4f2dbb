"""Reading all that a library has stored: to check it, or to make its trees again from the stored LaTeX.

Trees are made again for a new converter, or after damage.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NoReturn
from xml.sax.saxutils import escape

import numpy as np
import orjson

from eqkin.errors import CorruptData, EqkinError, LimitReached, StorageFailed
from eqkin.executor import Executor
from eqkin.files import find_unknown_files
from eqkin.formulas.mathml import to_mathml
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import MATHML_ENVIRONMENT
from eqkin.latex.macros import unpack_macros
from eqkin.latex.outline import Document, Equation
from eqkin.library.database import (
    DATABASE_NAME,
    INTACT_JUDGEMENT,
    INTACT_STATE,
    LIBRARY_NAMES,
    OWN_FILES,
    require_schema,
)
from eqkin.library.files import Integers, LibraryFiles, TreeNotFound
from eqkin.library.parsing import (
    ParsedEquation,
    ParsedPaper,
    compute_content_digest,
    convert_document,
    make_failed_paper,
)
from eqkin.library.queries import read_paper_rows
from eqkin.library.writer import PAPER_FIELDS, PARSED_FIELDS, LibraryWriter
from eqkin.sources.paper import Paper

_MAX_MESSAGES = 20


@dataclass
class VerificationReport:
    """Findings of a check; `problems` is empty if nothing is damaged, `notes` say what is unfinished."""

    papers: int = 0
    equations: int = 0
    trees: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Digest of the whole content; the same papers give the same digest, in whatever order they came.
    content: str = ""


def verify_library(folder: Path, progress: Callable[[int], None] | None = None) -> VerificationReport:
    """Check papers, trees and judgements of a library; `progress` is called with the number of papers checked so far.

    The caller holds the writer lock.

    Raises:
        BadInput: There is no library.
    """
    report = VerificationReport()
    folder = folder.expanduser().absolute()
    with _collecting_problems(folder, report):
        with LibraryFiles.open(folder) as library:
            # Each step may fail for itself, so that all damage is named.
            for check in (_check_database, _check_judgements, _check_folder):
                with _collecting_problems(folder, report):
                    check(library, report)
            with _collecting_problems(folder, report):
                _check_papers(library, report, progress or (lambda papers: None))
    return report


@contextmanager
def _collecting_problems(folder: Path, report: VerificationReport) -> Iterator[None]:
    """Add damage that ends the block to the problems."""
    try:
        yield
    except (CorruptData, StorageFailed) as error:
        if str(error) not in report.problems:
            report.problems.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        report.problems.append(f"{folder}: damaged ({error!r})")


def _check_database(library: LibraryFiles, report: VerificationReport) -> None:
    path = library.folder / DATABASE_NAME
    with library.translate_errors():
        execute = library.connection.execute
        for row in execute(f"PRAGMA integrity_check({_MAX_MESSAGES})"):
            if row[0] != "ok":
                report.problems.append(f"{path}: {row[0]}")
        size = execute("PRAGMA page_count").fetchone()[0] * execute("PRAGMA page_size").fetchone()[0]
        if path.stat().st_size != size:
            report.problems.append(f"{path}: has {path.stat().st_size:,} bytes instead of {size:,}")
        require_schema(library.connection, path)
        execute(f"SELECT count(*) FROM state s WHERE {INTACT_STATE}").fetchone()
        strays = execute(
            "SELECT (SELECT count(*) FROM sections) - total(n_sections), "
            "(SELECT count(*) FROM equations) - total(n_equations) FROM papers"
        ).fetchone()
        if any(strays):
            report.problems.append(f"{path}: some sections or equations belong to no paper, or are lost")
    library.check_rows("papers")


def _check_judgements(library: LibraryFiles, report: VerificationReport) -> None:
    with library.translate_errors():
        library.connection.execute(f"SELECT count(*) FROM judgements j WHERE {INTACT_JUDGEMENT}").fetchone()


def _check_folder(library: LibraryFiles, report: VerificationReport) -> None:
    """Name the files that do not belong to the library, and count those of killed processes."""
    leftover, foreign = find_unknown_files(library.folder, LIBRARY_NAMES, OWN_FILES)
    report.notes += [
        f"{library.folder / name}: does not belong to the library; eqkin leaves it alone" for name in foreign
    ]
    if leftover:
        report.notes.append(f"{len(leftover)} unused files of an interrupted write; the next one deletes them")


def _check_papers(library: LibraryFiles, report: VerificationReport, progress: Callable[[int], None]) -> None:
    """Compute the digest of every paper again."""
    digest = sha256()
    with library.translate_errors():
        papers = library.connection.execute("SELECT id, key, content FROM papers ORDER BY key").fetchall()
    for number, key, content in papers:
        separator = "\n" if report.papers else ""
        digest.update(f"{separator}{key}\0{content}".encode())
        report.papers += 1
        try:
            paper, keys = load_stored_paper(library, number)
            report.equations += len(paper.equations)
            report.trees += len(keys)
            if paper.failure:
                paper = make_failed_paper(paper.key, paper.origin, paper.failure, paper.message)
            else:
                paper.forest, paper.operators = library.get_trees(keys).canonicalise(), library.get_operators(keys)
                paper.forest.validate()
                paper.operators.validate()
            if compute_content_digest(paper) != content:
                report.problems.append(f"paper {key}: its content does not match its digest")
        except EqkinError as error:
            report.problems.append(f"paper {key}: {error}; `eqkin index --rebuild` makes its trees again")
        progress(report.papers)
    report.content = digest.hexdigest()
    if len(library.list_tree_keys()) != report.trees:
        report.problems.append(f"{library.folder}: some trees belong to no equation")


def load_stored_paper(library: LibraryFiles, number: int) -> tuple[ParsedPaper, Integers]:
    """Build a paper as it was parsed from its rows, without its trees; return it and the keys of its trees."""
    rows = read_paper_rows(library, "p.id IS ?", number)
    if rows is None:
        raise CorruptData(f"{library.folder}: the paper {number} is lost; run `eqkin verify`")
    stored = rows.paper
    values = {name: stored[name] for name in (*PAPER_FIELDS, *PARSED_FIELDS)}
    for name in ("authors", "fields", "notes", "packages", "cites"):
        values[name] = orjson.loads(values[name] or "null")
    about = {name: values[name] for name in (*PAPER_FIELDS, "title")}
    keys: list[int] = []
    equations: list[ParsedEquation] = []
    for row in rows.equations:
        changed = {
            "section": row["section"] - stored["first_section"],
            "tree": len(keys) if row["has_tree"] else -1,
            "whole": -1 if row["whole"] is None else row["whole"],
            "repaired": bool(row["repaired"]),
            "inline": bool(row["inline"]),
        }
        keys += [row["id"]] if row["has_tree"] else []
        kept = {name: row[name] for name in ParsedEquation.__dataclass_fields__ if name not in changed}
        equations.append(ParsedEquation(**kept, **changed))
    parsed = ParsedPaper(
        **{name: values[name] for name in PARSED_FIELDS},
        paper=Paper(stored["key"], "", stored["origin"], group=stored["work"], **about),
        macros=stored["unpacked_macros"],
        sections=[(row["level"], row["title"], row["text"]) for row in rows.sections],
        equations=equations,
    )
    return parsed, np.array(keys, np.int64)


def reconvert_papers(
    library: LibraryFiles,
    writer: LibraryWriter,
    executor: Executor,
    progress: Callable[[int, int], None] | None = None,
    *,
    check_trees: bool = False,
) -> int:
    """Convert the papers whose trees another converter made; return how many.

    Args:
        library: The library.
        writer: Its writer.
        executor: Runs the conversion.
        progress: Called with how many papers are done, and of how many.
        check_trees: Read all trees, and convert the papers whose trees are damaged too.

    Raises:
        LimitReached: A worker crashed; what was converted before is kept.
    """
    chosen = _choose_papers(library, check_trees)
    tasks = (_load_task(library, number) for number in chosen)
    for done, parsed in enumerate(executor.map(convert_again, tasks, on_failure=_fail_task), 1):
        writer.add(parsed)
        if progress:
            progress(done, len(chosen))
    writer.flush()
    writer.set_converter(get_converter_identity())
    return len(chosen)


def _choose_papers(library: LibraryFiles, check_trees: bool) -> list[int]:
    """Return the ids of the papers that must be converted."""
    mine, theirs = get_converter_identity(), library.converter
    if mine == theirs and not check_trees:
        return []
    # A paper that an interrupted run has converted has the version of this converter in its digest.
    done = "" if mine.version == theirs.version else mine.version
    chosen = []
    library.check_rows("papers")
    papers = library.connection.execute("SELECT id, digest FROM papers WHERE failure = '' ORDER BY id").fetchall()
    for number, digest in papers:
        is_old = mine != theirs and (not done or ".".join(digest.split(".")[1:-1]) != done)
        if is_old or (check_trees and _has_damaged_trees(library, number)):
            chosen.append(number)
    return chosen


def _has_damaged_trees(library: LibraryFiles, paper: int) -> bool:
    try:
        _, keys = load_stored_paper(library, paper)
        library.get_trees(keys)
        library.get_operators(keys)
    except (CorruptData, TreeNotFound):
        return True
    return False


def _load_task(library: LibraryFiles, number: int) -> ParsedPaper:
    """Return a paper to be converted again; equations that came as MathML have it in the place of their LaTeX."""
    parsed, keys = load_stored_paper(library, number)
    for equation in parsed.equations:
        if equation.environment == MATHML_ENVIRONMENT:
            latex = escape(equation.latex)
            mathml = _write_mathml(library, keys[equation.tree : equation.tree + 1]) if equation.tree >= 0 else ""
            equation.latex = f'<math>{mathml}<annotation encoding="application/x-tex">{latex}</annotation></math>'
    return parsed


def _write_mathml(library: LibraryFiles, key: Integers) -> str:
    """Return the MathML of an equation, "" if its tree is damaged."""
    try:
        return to_mathml(*library.get_nodes(key.tolist()))
    except (CorruptData, TreeNotFound):
        return ""


def convert_again(parsed: ParsedPaper) -> ParsedPaper:
    """Convert the equations of a paper."""
    tables, epochs = unpack_macros(parsed.macros, len(parsed.equations))
    equations = [
        Equation(e.environment, e.latex, e.section, e.mark, e.label, epoch, e.printed, e.whole, inline=e.inline)
        for e, epoch in zip(parsed.equations, epochs, strict=True)
    ]
    document = Document(equations=equations, packages=parsed.packages, macros=tables)
    parsed.equations, parsed.forest, parsed.operators = convert_document(document)
    # The versions of parser and converter, and the hash of the source.
    parts = parsed.digest.split(".")
    if len(parts) > 2:
        parsed.digest = ".".join([parts[0], get_converter_identity().version, parts[-1]])
    parsed.content = compute_content_digest(parsed)
    return parsed


def _fail_task(task: ParsedPaper, reason: str, message: str) -> NoReturn:
    raise LimitReached(f"{task.key}: could not be converted ({reason}: {message}); `eqkin index` continues there")
