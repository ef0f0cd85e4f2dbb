"""One source item -> everything the library stores of it. Runs in worker processes; knows nothing of the database."""

from __future__ import annotations

import errno
import html
import re
import sys
from dataclasses import dataclass, field

import orjson
import zstandard

from eqkin.errors import EqkinError, LimitReached, StorageFailed
from eqkin.executors import WorkerEnvironmentError
from eqkin.latex import Document, Equation, parse
from eqkin.latex.environments import MATHML_ENVIRONMENT, is_diagram, to_converter_input
from eqkin.mathml import formulas
from eqkin.mathml.converter import Converter, Failure, get_converter_identity
from eqkin.sources.paper import Paper, SourceItem, hash_paper, hash_parts
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import to_bytes
from eqkin.trees.mathml import parse_mathml, to_forest

READING_VERSION = "2"  # raise it when the same source would give other content
_TEX_ANNOTATION = re.compile(r'<annotation[^>]*encoding="application/x-(?:la)?tex"[^>]*>(.*?)</annotation>', re.DOTALL)
# What the disk or the network drive of one machine may answer, and that of another may not.
_MACHINE_ERROR_NAMES = (
    *("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE", "ETIMEDOUT", "ENOTCONN", "EHOSTDOWN"),
    *("ENOENT", "EACCES", "EPERM"),
)
_MACHINE_ERRNOS = {getattr(errno, name) for name in _MACHINE_ERROR_NAMES if hasattr(errno, name)}


@dataclass
class ParsedEquation:
    """One equation as it is stored; `tree` counts within the paper's forest, -1 for none."""

    section: int
    number: int
    mark: int
    environment: str
    label: str
    latex: str
    status: str
    repaired: bool = False
    reason: str = ""
    message: str = ""
    unknown: str = ""
    tree: int = -1


@dataclass
class ParsedPaper:
    """What was read of one paper; with `failure` set, why nothing was."""

    key: str
    origin: str
    digest: str
    paper: Paper | None = None
    title: str = ""
    packages: list[str] | None = None
    macros: bytes = b""
    sections: list[tuple[int, str, str]] = field(default_factory=list)  # level, title, latex with marks
    equations: list[ParsedEquation] = field(default_factory=list)
    cites: list[str] = field(default_factory=list)
    forest: bytes = b""
    content: str = ""
    failure: str = ""
    message: str = ""
    unchanged: bool = False
    source: str = ""  # what the user added
    peak_bytes: int = 0  # of the process that read it


_converter: Converter | None = None


def get_converter() -> Converter:
    """This process's converter."""
    global _converter
    if _converter is None:
        _converter = Converter()
    return _converter


def parse_item(item: SourceItem, known: str, last: bool = True) -> ParsedPaper:
    """Read one item; `known` is the digest the library has for it ("" if none). Never raises for bad input.

    Raises `Trouble` where the machine is at fault, unless this is the `last` try.
    """
    digest = _add_version(item.digest) if item.digest else ""
    if digest and digest == known:
        return ParsedPaper(item.key, item.origin, digest, unchanged=True)
    try:
        paper = item.load()
        if not digest:
            digest = _add_version(hash_paper(paper))
            if digest == known:
                return ParsedPaper(item.key, item.origin, digest, unchanged=True)
        extract = parse_paper(paper, digest)
    except EqkinError as error:
        if not last and is_machine_fault(error):
            raise WorkerEnvironmentError(str(error)) from error
        extract = make_failed_paper(item.key, item.origin, _classify_error(error), str(error), digest)
    except (RecursionError, MemoryError) as error:
        extract = make_failed_paper(item.key, item.origin, "limit: memory", repr(error), digest)
    except Exception as error:  # the border between papers: one that surprises us is not the others' loss
        if not last and is_machine_fault(error):
            raise WorkerEnvironmentError(f"{item.origin}: {error}") from error
        extract = make_failed_paper(item.key, item.origin, "internal error", repr(error), digest)
    extract.peak_bytes = measure_peak_bytes()
    return extract


def is_machine_fault(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, comes from the machine and not from what was read.

    Its disk is full, say, or it does not see a file that another machine may see.
    """
    while error is not None:
        if isinstance(error, StorageFailed) or (isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS):
            return True
        error = error.__cause__
    return False


def make_failed_paper(key: str, origin: str, reason: str, message: str, digest: str = "") -> ParsedPaper:
    """What is stored of a paper that could not be read."""
    extract = ParsedPaper(
        key, origin, digest, failure=reason, message=message[:1000].encode("utf-8", "replace").decode()
    )
    extract.content = compute_content_digest(extract)
    return extract


def _add_version(digest: str) -> str:
    return f"{READING_VERSION}.{get_converter_identity().version}.{digest}"


def _classify_error(error: EqkinError) -> str:
    return "limit" if isinstance(error, LimitReached) else "unreadable"


def parse_paper(paper: Paper, digest: str) -> ParsedPaper:
    """Sections, equations, trees and citations of a paper."""
    document = parse(paper.text, paper.styles, paper.bibliography)
    records, forest = convert_document(document)
    paper.authors = paper.authors or document.authors
    extract = ParsedPaper(
        paper.key,
        paper.origin,
        digest,
        paper,
        title=paper.title or document.title,
        packages=document.packages,
        macros=_pack_macros(document),
        sections=[(section.level, section.title, section.latex) for section in document.sections],
        equations=records,
        cites=sorted({*document.cites, *paper.cites} - {paper.key.removeprefix("arxiv:")}),
        forest=to_bytes(forest),
    )
    if document.truncated:
        paper.notes.append(f"only its first {len(document.equations)} equations were read")
    extract.content = compute_content_digest(extract)
    paper.text = ""  # has done its work; need not travel between processes
    paper.styles, paper.bibliography = [], []
    return extract


def convert_document(document: Document) -> tuple[list[ParsedEquation], Forest]:
    """Convert a document's equations, each with the macros that hold where it stands."""
    records = [
        ParsedEquation(e.section, number, e.mark, e.environment, e.label, _get_latex(e), "failed")
        for number, e in enumerate(document.equations)
    ]
    builder, trees = ForestBuilder(), 0
    for epoch, macros in enumerate(document.macros):
        chosen = [
            i for i, e in enumerate(document.equations) if e.epoch == epoch and e.environment != MATHML_ENVIRONMENT
        ]
        drawn = {i for i in chosen if is_diagram(document.equations[i].body)}
        chosen = [i for i in chosen if i not in drawn]
        for i in drawn:
            records[i].status = "diagram"
        if not chosen:
            continue
        texts = [to_converter_input(document.equations[i].environment, document.equations[i].body) for i in chosen]
        conversion = formulas.convert_formulas(get_converter(), texts, document.packages, macros)
        builder.add_forest(conversion.forest)
        for i, outcome in zip(chosen, conversion.outcomes, strict=True):
            _apply_outcome(records[i], outcome, trees)
        trees += len(conversion.forest)
    for record, equation in zip(records, document.equations, strict=True):
        if equation.environment == MATHML_ENVIRONMENT:
            trees += _convert_mathml(record, equation, builder, trees)
    return _sort_trees(records, builder.build())


def _apply_outcome(record: ParsedEquation, outcome: formulas.FormulaOutcome, before: int) -> None:
    if outcome.failure is None:
        record.tree = before + outcome.tree
        record.status = "degraded" if outcome.unknown else "converted"
        record.unknown, record.repaired = " ".join(outcome.unknown), outcome.repaired
    elif formulas.is_diagram_failure(outcome.failure):
        record.status = "diagram"
    else:
        _set_failure(record, outcome.failure)


def _set_failure(record: ParsedEquation, failure: Failure) -> None:
    record.reason, record.message = failure.reason, failure.message[:300]


def _convert_mathml(record: ParsedEquation, equation: Equation, builder: ForestBuilder, before: int) -> int:
    try:
        builder.add_forest(to_forest(parse_mathml(equation.body)))
    except EqkinError as error:
        _set_failure(record, Failure(f"MathML: {_classify_error(error)}", str(error)))
        return 0
    record.status, record.tree = "converted", before
    return 1


def _sort_trees(records: list[ParsedEquation], forest: Forest) -> tuple[list[ParsedEquation], Forest]:
    """Trees in the order of their equations, strings sorted: the same content is the same bytes."""
    order = [record.tree for record in records if record.tree >= 0]
    for rank, record in enumerate(record for record in records if record.tree >= 0):
        record.tree = rank
    return records, (forest if order == list(range(len(forest))) else forest.select(order)).canonicalise()


def _get_latex(equation: Equation) -> str:
    if equation.environment != MATHML_ENVIRONMENT:
        return equation.body
    annotation = _TEX_ANNOTATION.search(equation.body)
    return html.unescape(annotation[1]).strip() if annotation else ""


def _pack_macros(document: Document) -> bytes:
    """The document's macros, so that its LaTeX can be converted again without its source."""
    table = document.macros[0] if document.macros else {}
    return zstandard.compress(orjson.dumps(list(table.values())), 1) if table else b""


def compute_content_digest(extract: ParsedPaper) -> str:
    """Digest of all that is stored of a paper; `verify` computes it again from the database and the forest."""
    paper = extract.paper or Paper(extract.key, "")
    described = [
        extract.key,
        extract.origin,
        extract.title,
        paper.kind,
        paper.authors,
        paper.year,
        paper.fields,
        paper.lang,
        paper.license,
        paper.group,
        paper.abstract,
        paper.notes,
        extract.packages,
        extract.sections,
        extract.cites,
        extract.failure,
        extract.message,
        extract.equations,
    ]
    return hash_parts(orjson.dumps(described, default=str), extract.macros, extract.forest)


def measure_peak_bytes() -> int:
    """The most memory this process has held so far, 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
