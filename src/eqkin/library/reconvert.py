"""Making the trees of a library again from its stored LaTeX: for a new converter, or after damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from eqkin.errors import CorruptData, LimitReached
from eqkin.executor import Executor
from eqkin.formulas import Forest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import MATHML_ENVIRONMENT
from eqkin.latex.macros import unpack_macros
from eqkin.latex.outline import Document, Equation
from eqkin.library.files import Integers, LibraryFiles, TreeNotFound
from eqkin.library.parsing import ParsedPaper, compute_content_digest, convert_document
from eqkin.library.verify import load_stored_paper
from eqkin.library.writer import LibraryWriter

_LOST = "its tree was damaged, and it has no LaTeX"


@dataclass(frozen=True)
class StoredPaper:
    """A paper to be converted again."""

    parsed: ParsedPaper
    # Trees of equations that came as MathML, by number; None: there is none.
    mathml: dict[int, Forest | None]
    # The version of the converter.
    version: str


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


def _load_task(library: LibraryFiles, number: int) -> StoredPaper:
    parsed, keys = load_stored_paper(library, number)
    mathml: dict[int, Forest | None] = {}
    for equation in parsed.equations:
        if equation.environment == MATHML_ENVIRONMENT:
            mathml[equation.number] = None
            if equation.tree >= 0:
                mathml[equation.number] = _find_tree(library, keys[[equation.tree]])
    return StoredPaper(parsed, mathml, get_converter_identity().version)


def _find_tree(library: LibraryFiles, keys: Integers) -> Forest | None:
    try:
        return library.get_trees(keys)
    except (CorruptData, TreeNotFound):
        return None


def convert_again(task: StoredPaper) -> ParsedPaper:
    """Convert the equations of a paper; trees that came as MathML are kept."""
    parsed = task.parsed
    tables, epochs = unpack_macros(parsed.macros, len(parsed.equations))
    equations = [
        Equation(e.environment, e.latex, e.section, e.mark, e.label, epoch, e.printed, e.whole, inline=e.inline)
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
