"""Parse one paper: load it, find its sections and equations, and convert the equations to trees.

Runs in worker processes and knows nothing of the database.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple
from xml.sax.saxutils import unescape

import orjson

from eqkin.errors import EqkinError, LimitReached, StorageFailed
from eqkin.executor import UNREADABLE, WorkerEnvironmentError
from eqkin.formulas import Forest
from eqkin.formulas.conversion import convert_formulas, is_diagram_failure
from eqkin.formulas.engine import borrow_engine, parse_operators
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import MATHML_ENVIRONMENT, is_diagram, to_converter_input
from eqkin.latex.macros import pack_macros
from eqkin.latex.outline import Document, parse
from eqkin.latex.titles import clean_authors, clean_title, detect_language, normalise_language
from eqkin.limits import LIMITS
from eqkin.sources.paper import Paper, SourceItem, hash_paper, hash_parts

# Raise it when the same source would give other content.
PARSER_VERSION = "3"
# Displays as a whole; also their rows; also inline formulas.
FORMULAS = ("displays", "rows", "inline")
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
    # Converted, degraded, diagram or failed.
    status: str
    repaired: bool = False
    reason: str = ""
    message: str = ""
    # Commands that KaTeX does not know.
    unknown: str = ""
    # Position in the paper's forest, -1 for none.
    tree: int = -1
    # Its number as printed.
    printed: str = ""
    # Of a row: the number of its display.
    whole: int = -1
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
    # Level, title, LaTeX with marks.
    sections: list[tuple[int, str, str]] = field(default_factory=list)
    equations: list[ParsedEquation] = field(default_factory=list)
    cites: list[str] = field(default_factory=list)
    # Presentation trees.
    forest: Forest | None = None
    # Their operator trees.
    operators: OperatorForest | None = None
    # Digest of all of the above.
    content: str = ""
    failure: str = ""
    message: str = ""
    # The library has it already.
    unchanged: bool = False
    # What the user added.
    source: str = ""


_get_fields = attrgetter(*(field.name for field in fields(ParsedEquation)))


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
    # One surprising paper must not stop the others.
    except Exception as error:
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
    # Not needed any more, and need not travel between processes.
    paper.text = ""
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


def convert_document(document: Document) -> tuple[list[ParsedEquation], Forest, OperatorForest]:
    """Convert a document's equations, each with the macros that are defined at its position.

    Returns:
        The equations, and the presentation and operator trees of those that have one.
    """
    equations = [
        ParsedEquation(
            section=source.section,
            number=number,
            mark=source.mark,
            environment=source.environment,
            label=source.label,
            latex=source.body,
            status="failed",
            printed=source.printed,
            whole=source.whole,
            inline=source.inline,
        )
        for number, source in enumerate(document.equations)
    ]
    for equation in equations:
        if equation.environment != MATHML_ENVIRONMENT and is_diagram(equation.latex):
            equation.status = "diagram"
    conversions = [*_iter_conversions(document, equations), _read_mathml(equations)]
    forest = Forest.concatenate([conversion.forest for conversion in conversions])
    operators = OperatorForest.concatenate([conversion.operators for conversion in conversions])
    # The numbers of trees began at zero in each conversion.
    order = []
    first = 0
    for conversion in conversions:
        for number in conversion.numbers:
            order.append((number, first + equations[number].tree))
        first += len(conversion.forest)
    order.sort()
    # Trees in the order of their equations, and sorted strings: equal content has equal digests.
    for position, (number, _) in enumerate(order):
        equations[number].tree = position
    places = [place for _, place in order]
    if places != list(range(len(forest))):
        forest, operators = forest.select(places), operators.select(places)
    return equations, forest.canonicalise(), operators


class _ConvertedTrees(NamedTuple):
    """Trees of some equations of a paper."""

    numbers: list[int]  # of the equations that have one
    forest: Forest
    operators: OperatorForest


def _iter_conversions(document: Document, equations: list[ParsedEquation]) -> Iterator[_ConvertedTrees]:
    """Convert the equations that are LaTeX, those with the same macros at once."""
    deadline = time.monotonic() + LIMITS.paper_seconds
    for epoch, macros in enumerate(document.macros):
        chosen = [
            equation
            for equation, source in zip(equations, document.equations, strict=True)
            if source.epoch == epoch and source.environment != MATHML_ENVIRONMENT and equation.status != "diagram"
        ]
        if not chosen:
            continue
        texts = [to_converter_input(equation.environment, equation.latex) for equation in chosen]
        with borrow_engine() as engine:
            conversion = convert_formulas(engine, texts, document.packages, macros, deadline)
        for equation, outcome in zip(chosen, conversion.outcomes, strict=True):
            if outcome.failure is None:
                equation.tree = outcome.tree
                equation.status = "degraded" if outcome.unknown else "converted"
                equation.unknown = " ".join(outcome.unknown)
                equation.repaired = outcome.repaired
            elif is_diagram_failure(outcome.failure):
                equation.status = "diagram"
            else:
                equation.reason = outcome.failure.reason
                equation.message = outcome.failure.message[:300]
        numbers = [equation.number for equation in chosen if equation.tree >= 0]
        yield _ConvertedTrees(numbers, conversion.forest, conversion.operators)


def _read_mathml(equations: list[ParsedEquation]) -> _ConvertedTrees:
    """Make trees of the equations that are MathML."""
    found: dict[int, Forest] = {}
    for equation in equations:
        if equation.environment == MATHML_ENVIRONMENT:
            mathml = equation.latex
            annotation = _TEX_ANNOTATION.search(mathml)
            equation.latex = unescape(annotation[1], {"&#92;": "\\"}).strip() if annotation else ""
            try:
                found[equation.number] = to_forest(parse_mathml(mathml))
                equation.status = "converted"
            except EqkinError as error:
                equation.reason = f"MathML: {_classify_error(error)}"
                equation.message = str(error)[:300]
    for position, number in enumerate(found):
        equations[number].tree = position
    forest = Forest.concatenate(list(found.values()))
    return _ConvertedTrees(list(found), forest, parse_operators(forest))


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
