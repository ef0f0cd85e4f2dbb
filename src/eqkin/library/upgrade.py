"""Making a library's trees again from the LaTeX in it: for a new version of the converter, or after damage.

Prose that an older eqkin stored is compressed.

A paper's LaTeX, packages and macros are stored, so its sources are not needed. The digest of a paper names the
converter of its trees: so the next run continues one that was killed, and sources that are added again are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from eqkin.errors import LimitReached
from eqkin.executor import Executor
from eqkin.formulas import Forest
from eqkin.formulas.forest import open_forest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import MATHML_ENVIRONMENT
from eqkin.latex.macros import unpack_macros
from eqkin.latex.outline import Document, Equation
from eqkin.library.database import FOREST_FOLDER, compress_text
from eqkin.library.files import TreesEntry, list_segments
from eqkin.library.parsing import ParsedPaper, compute_content_digest, convert_document
from eqkin.library.verify import load_stored_paper
from eqkin.library.writer import LibraryWriter
from eqkin.storage.segments import is_intact

_SECTIONS_PER_COMMIT = 10_000
_LOST = "its tree was damaged, and it has no LaTeX"


@dataclass(frozen=True)
class StoredPaper:
    """A paper to be converted again."""

    parsed: ParsedPaper
    mathml: dict[int, Forest | None]  # trees of equations that came as MathML, by number; None: there is none
    version: str  # of the converter


def upgrade_trees(writer: LibraryWriter, executor: Executor, progress: Callable[[int, int], None] | None = None) -> int:
    """Convert the papers whose trees another converter made or that are damaged; return how many.

    Args:
        writer: of the library.
        executor: runs the conversion.
        progress: called with how many papers are done, and of how many.

    Raises:
        LimitReached: a worker crashed; what was converted before is kept.
    """
    forests: dict[int, Forest] = {}
    damaged: list[TreesEntry] = []
    for entry in list_segments(writer.connection):
        folder = writer.folder / FOREST_FOLDER
        if is_intact(folder, entry, force=True):
            forests[entry.first] = open_forest(folder / entry.file)
        else:
            damaged.append(entry)
    chosen = _choose_papers(writer, damaged)
    tasks = (_load_task(writer, number, forests) for number in chosen)
    for done, parsed in enumerate(executor.map(convert_again, tasks, on_failure=_fail_task), 1):
        writer.add(parsed)
        if progress:
            progress(done, len(chosen))
    writer.flush()
    writer.drop_segments(damaged)
    writer.set_converter(get_converter_identity())
    return len(chosen)


def compress_prose(writer: LibraryWriter) -> None:
    """Compress the prose of sections that an older eqkin stored; give the room that is free to the file system.

    A section may be compressed or not, so that this can be stopped at any moment.
    """
    last = -1
    while rows := writer.connection.execute(
        "SELECT id, latex FROM sections WHERE id > ? AND typeof(latex) = 'text' ORDER BY id LIMIT ?",
        (last, _SECTIONS_PER_COMMIT),
    ).fetchall():
        last = rows[-1]["id"]
        packed = [(compress_text(writer.compressor, latex), number) for number, latex in rows]
        writer.replace_prose([row for row in packed if isinstance(row[0], bytes)])
    writer.release_free_pages()


def _choose_papers(writer: LibraryWriter, damaged: list[TreesEntry]) -> list[int]:
    """Return the ids of the papers that must be converted."""
    mine, theirs = get_converter_identity(), writer.manifest.converter
    chosen: set[int] = set()
    if mine != theirs:
        done = "" if mine.version == theirs.version else mine.version
        rows = writer.connection.execute("SELECT id, digest FROM papers WHERE failure = ''")
        chosen = {row[0] for row in rows if not done or ".".join(row[1].split(".")[1:-1]) != done}
    for entry in damaged:
        rows = writer.connection.execute(
            "SELECT DISTINCT paper FROM equations WHERE tree >= ? AND tree < ?",
            (entry.first, entry.first + entry.count),
        )
        chosen.update(row[0] for row in rows)
    return sorted(chosen)


def _load_task(writer: LibraryWriter, number: int, forests: dict[int, Forest]) -> StoredPaper:
    row = writer.connection.execute("SELECT * FROM papers WHERE id = ?", (number,)).fetchone()
    parsed, trees = load_stored_paper(writer.connection, row)

    def find_tree(tree: int) -> Forest | None:
        for first, forest in forests.items():
            if first <= tree < first + len(forest):
                return forest.select(np.array([tree - first]))
        return None

    mathml = {
        equation.number: find_tree(trees[equation.tree]) if equation.tree >= 0 else None
        for equation in parsed.equations
        if equation.environment == MATHML_ENVIRONMENT
    }
    return StoredPaper(parsed, mathml, get_converter_identity().version)


def convert_again(task: StoredPaper) -> ParsedPaper:
    """Convert the equations of a paper; trees that came as MathML are kept."""
    parsed = task.parsed
    tables, epochs = unpack_macros(parsed.macros, len(parsed.equations))
    equations = [
        Equation(e.environment, e.latex, e.section, e.mark, e.label, epoch, e.printed, e.whole, e.spans, e.inline)
        for e, epoch in zip(parsed.equations, epochs, strict=True)
    ]
    stored = {}
    for number, tree in task.mathml.items():
        equation = replace(parsed.equations[number], tree=-1)
        if tree is None and parsed.equations[number].tree >= 0:
            equation = replace(equation, status="failed", reason="damaged", message=_LOST)
        stored[number] = equation, tree
    document = Document(equations=equations, packages=parsed.packages, macros=tables)
    parsed.equations, parsed.forest, parsed.operators = convert_document(document, stored)
    parts = parsed.digest.split(".")
    if len(parts) > 2:
        parsed.digest = ".".join([parts[0], task.version, parts[-1]])
    parsed.content = compute_content_digest(parsed)
    return parsed


def _fail_task(task: StoredPaper, reason: str, message: str) -> NoReturn:
    key = task.parsed.key
    raise LimitReached(f"{key}: could not be converted ({reason}: {message}); `eqkin index` continues there")
