"""Parse one paper: load it, find its sections and equations, and convert the equations to trees.

Runs in worker processes and knows nothing of the database.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any

import orjson

from eqkin.errors import EqkinError, LimitReached, StorageFailed
from eqkin.executor import UNREADABLE, WorkerEnvironmentError
from eqkin.formulas import Forest
from eqkin.formulas.conversion import convert_formulas, is_diagram_failure
from eqkin.formulas.engine import FormulaEngine, parse_operators
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import MATHML_ENVIRONMENT, is_diagram, to_converter_input
from eqkin.latex.macros import pack_macros
from eqkin.latex.outline import Document, parse
from eqkin.latex.titles import clean_authors, clean_title, detect_language, normalise_language
from eqkin.limits import LIMITS
from eqkin.sources.html import resolve_references
from eqkin.sources.paper import Paper, SourceItem, hash_paper, hash_parts

PARSER_VERSION = "3"  # raise it when the same source would give other content
FORMULAS = ("displays", "rows", "inline")  # displays as a whole; also their rows; also inline formulas
_TEX_ANNOTATION = re.compile(r'<annotation[^>]*encoding="application/x-(?:la)?tex"[^>]*>(.*?)</annotation>', re.DOTALL)
_COMMON_FILE_NAMES = frozenset("main paper ms article manuscript root thesis draft index readme notes report".split())
# Errors of one machine's disk or network drive that another machine may not have.
_MACHINE_ERROR_NAMES = (
    *("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE", "ETIMEDOUT", "ENOTCONN", "EHOSTDOWN"),
    *("ENOENT", "EACCES", "EPERM"),
)
_MACHINE_ERRNOS = {getattr(errno, name) for name in _MACHINE_ERROR_NAMES if hasattr(errno, name)}


@dataclass
class ParsedEquation:
    """One equation as it is stored."""

    section: int
    number: int
    mark: int
    environment: str
    label: str
    latex: str
    status: str  # converted, degraded, diagram or failed
    repaired: bool = False
    reason: str = ""
    message: str = ""
    unknown: str = ""  # commands that KaTeX does not know
    tree: int = -1  # position in the paper's forest, -1 for none
    printed: str = ""  # its number as printed
    whole: int = -1  # of a row: the number of its display
    inline: bool = False


@dataclass
class ParsedPaper:
    """Everything the library stores of one paper; with `failure` set, why nothing was read."""

    key: str
    origin: str
    digest: str
    paper: Paper | None = None
    title: str = ""
    packages: list[str] | None = None
    macros: bytes = b""
    sections: list[tuple[int, str, str]] = field(default_factory=list)  # level, title, LaTeX with marks
    equations: list[ParsedEquation] = field(default_factory=list)
    cites: list[str] = field(default_factory=list)
    forest: Forest | None = None  # presentation trees
    operators: OperatorForest | None = None  # their operator trees
    content: str = ""  # digest of all of the above
    failure: str = ""
    message: str = ""
    unchanged: bool = False  # the library has it already
    source: str = ""  # what the user added


_get_fields = attrgetter(*(field.name for field in fields(ParsedEquation)))


@cache
def get_engine() -> FormulaEngine:
    """Return this process's engine."""
    return FormulaEngine()


def parse_item(item: SourceItem, known: str = "", formulas: str = "rows") -> ParsedPaper:
    """Load and parse one source item. Bad input gives a paper with `failure` set.

    Args:
        item: what to parse.
        known: the digest that the library has for it, empty if none.
        formulas: which formulas become equations, one of `FORMULAS`.

    Raises:
        WorkerEnvironmentError: the machine is at fault (`is_machine_fault`).
    """
    digest = _add_version(item.digest, formulas) if item.digest else ""
    if digest and digest == known:
        return ParsedPaper(item.key, item.origin, digest, unchanged=True)
    try:
        paper = item.load()
        if not digest:
            digest = _add_version(hash_paper(paper), formulas)
            if digest == known:
                return ParsedPaper(item.key, item.origin, digest, unchanged=True)
        # without a digest, a paper whose source is missing is tried again
        parsed = parse_paper(paper, "" if paper.missing_source else digest, formulas)
    except (RecursionError, MemoryError) as error:
        parsed = make_failed_paper(item.key, item.origin, "limit: memory", repr(error), digest)
    except Exception as error:  # one surprising paper must not stop the others
        known_error = isinstance(error, EqkinError)
        if is_machine_fault(error):
            raise WorkerEnvironmentError(str(error) if known_error else f"{item.origin}: {error}") from error
        reason = _classify_error(error) if isinstance(error, EqkinError) else "internal error"
        parsed = make_failed_paper(item.key, item.origin, reason, str(error) if known_error else repr(error), digest)
    return parsed


def is_machine_fault(error: BaseException | None) -> bool:
    """Return whether an error or its cause comes from the machine, not from the input.

    For example its disk is full, or it does not see a file that another machine may see.
    """
    while error is not None:
        if isinstance(error, StorageFailed) or (isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS):
            return True
        error = error.__cause__
    return False


def make_failed_paper(key: str, origin: str, reason: str, message: str, digest: str = "") -> ParsedPaper:
    """Return what is stored of a paper that could not be read."""
    message = message[:1000].encode("utf-8", "replace").decode()
    parsed = ParsedPaper(key, origin, digest, failure=reason, message=message)
    parsed.content = compute_content_digest(parsed)
    return parsed


def _add_version(digest: str, chosen: str) -> str:
    return f"{PARSER_VERSION}{'' if chosen == 'rows' else chosen}.{get_converter_identity().version}.{digest}"


def _classify_error(error: EqkinError) -> str:
    return "limit" if isinstance(error, LimitReached) else UNREADABLE


def parse_paper(paper: Paper, digest: str, chosen: str = "rows") -> ParsedPaper:
    """Find sections, equations and citations of a paper and convert its equations; `chosen` is one of `FORMULAS`."""
    document = parse(paper.text, paper.styles, paper.bibliography, rows=chosen != "displays", inline=chosen == "inline")
    equations, forest, operators = convert_document(document)
    macros = document.macros[0] if document.macros else {}
    about = document.about
    paper.authors = clean_authors(paper.authors) or about.authors
    paper.year, paper.doi = paper.year or about.year, paper.doi or about.doi
    paper.lang = normalise_language(paper.lang) or detect_language(paper.text) or about.lang
    parsed = ParsedPaper(
        paper.key,
        paper.origin,
        digest,
        paper,
        title=clean_title(paper.title, macros) or about.title or _name_document(document, paper),
        packages=document.packages,
        macros=pack_macros(document.macros, [equation.epoch for equation in document.equations]),
        sections=[(section.level, section.title, section.latex) for section in document.sections],
        equations=equations,
        cites=sorted({*document.cites, *paper.cites} - {paper.key.removeprefix("arxiv:")}),
        forest=forest,
        operators=operators,
    )
    if document.truncated:
        paper.notes.append(f"only its first {len(document.equations)} equations were read")
    parsed.content = compute_content_digest(parsed)
    paper.text = ""  # not needed any more, and need not travel between processes
    paper.styles, paper.bibliography = [], []
    return parsed


def _name_document(document: Document, paper: Paper) -> str:
    """Return a title for a document without one: its only chapter or section, or else its file."""
    for level in (2, 3):
        headings = [section.title for section in document.sections if section.level == level and section.title]
        if len(headings) == 1:
            return headings[0]
        if headings:
            break
    parts = (paper.origin or paper.key).replace("!", "/").replace("\\", "/").rstrip("/").split("/")
    stem = re.sub(r"(?<=.)(?:\.[A-Za-z]{1,8}){1,2}\Z", "", parts[-1])
    return f"{parts[-2]}/{stem}" if stem.lower() in _COMMON_FILE_NAMES and len(parts) > 1 and parts[-2] else stem


def convert_document(
    document: Document, stored: Mapping[int, tuple[ParsedEquation, Forest | None]] | None = None
) -> tuple[list[ParsedEquation], Forest, OperatorForest]:
    """Convert a document's equations, each with the macros that are defined at its position.

    Args:
        document: The document.
        stored: Equations, by number, that came as MathML and are kept, with their trees.

    Returns:
        The equations, and the presentation and operator trees of those that have one.
    """
    equations = [
        ParsedEquation(
            *(e.section, number, e.mark, e.environment, e.label, e.body, "failed"),
            printed=e.printed,
            whole=e.whole,
            inline=e.inline,
        )
        for number, e in enumerate(document.equations)
    ]
    forests: list[Forest] = []
    n_trees = 0
    parsed: list[OperatorForest] = []
    deadline = time.monotonic() + LIMITS.paper_seconds
    for epoch, macros in enumerate(document.macros):
        chosen = []
        for e, source in zip(equations, document.equations, strict=True):
            if source.epoch != epoch or source.environment == MATHML_ENVIRONMENT:
                continue
            if is_diagram(source.body):
                e.status = "diagram"
            else:
                chosen.append(e)
        if not chosen:
            continue
        texts = [to_converter_input(e.environment, e.latex) for e in chosen]
        conversion = convert_formulas(get_engine(), texts, document.packages, macros, deadline)
        forests.append(conversion.forest)
        parsed.append(conversion.operators)
        for e, outcome in zip(chosen, conversion.outcomes, strict=True):
            if outcome.failure is None:
                e.tree = n_trees + outcome.tree
                e.status = "degraded" if outcome.unknown else "converted"
                e.unknown, e.repaired = " ".join(outcome.unknown), outcome.repaired
            elif is_diagram_failure(outcome.failure):
                e.status = "diagram"
            else:
                e.reason, e.message = outcome.failure.reason, outcome.failure.message[:300]
        n_trees += len(conversion.forest)
    given = _convert_mathml(equations, stored, n_trees)
    forests.append(given)
    parsed.append(parse_operators(given))
    # Trees in the order of their equations, and sorted strings: equal content has equal digests.
    forest = Forest.concatenate(forests)
    with_tree = [e for e in equations if e.tree >= 0]
    order = [e.tree for e in with_tree]
    for position, e in enumerate(with_tree):
        e.tree = position
    operators = OperatorForest.concatenate(parsed)
    if order != list(range(len(forest))):
        forest, operators = forest.select(order), operators.select(order)
    return equations, forest.canonicalise(), operators


def _convert_mathml(
    equations: list[ParsedEquation],
    stored: Mapping[int, tuple[ParsedEquation, Forest | None]] | None,
    n_trees: int,
) -> Forest:
    """Return the trees of equations that are MathML already, or those that are stored of them."""
    forests: list[Forest] = []
    for number, e in enumerate(equations):
        if e.environment != MATHML_ENVIRONMENT:
            continue
        if stored is not None:
            e, forest = stored[number]
            equations[number] = e
        else:
            mathml, forest = e.latex, None
            annotation = _TEX_ANNOTATION.search(mathml)
            e.latex = resolve_references(annotation[1]).strip() if annotation else ""
            try:
                forest, e.status = to_forest(parse_mathml(mathml)), "converted"
            except EqkinError as error:
                e.reason, e.message = f"MathML: {_classify_error(error)}", str(error)[:300]
        if forest is not None:
            forests.append(forest)
            e.tree, n_trees = n_trees, n_trees + 1
    return Forest.concatenate(forests)


def compute_content_digest(parsed: ParsedPaper) -> str:
    """Return the digest of all that is stored of a paper; `verify` computes it again from the database."""
    paper = parsed.paper or Paper(parsed.key, "")
    described: list[Any] = [
        *(parsed.key, parsed.origin, parsed.title, paper.kind, paper.authors, paper.year, paper.fields, paper.lang),
        *(paper.license, paper.group, paper.abstract, paper.notes, paper.doi, paper.url, paper.cite_key),
        *(parsed.packages, parsed.sections, parsed.cites, parsed.failure, parsed.message),
        [_get_fields(equation) for equation in parsed.equations],
        "" if parsed.forest is None else parsed.forest.compute_digest(),
        "" if parsed.operators is None else parsed.operators.compute_digest(),
    ]
    return hash_parts(orjson.dumps(described, default=str), parsed.macros)
