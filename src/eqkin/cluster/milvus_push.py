"""Push a library into Milvus: in batches, resumable, each equation once however often it is pushed.

A paper's equations are written before its row, which holds a digest of its content: papers with this digest are
complete and skipped. Equations that a changed paper has no more are deleted before the row is written.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

import numpy as np

from eqkin.cluster.milvus_collection import (
    COLLECTION_FORMAT,
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    MAX_TEXT_BYTES,
    NO_YEAR,
    STATE_KEY,
    MilvusCollection,
    Row,
    build_paper_row,
    format_list,
    hash_name,
    pack_record,
)
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import extract_terms
from eqkin.index.features import normalise_length
from eqkin.latex.prose import to_plain_text
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_contents, simplify_name
from eqkin.search.backend import Snapshot
from eqkin.search.local import LocalBackend
from eqkin.search.results import EquationRecord, PaperPage

DESCRIBED_FIELDS = ("latex", "label", "section", "before", "after", "printed", "whole", "inline")
AUTHOR_SEPARATOR = "|"
# Milvus takes smaller numbers.
NO_TERM = (1 << 32) - 1
# These rows are far smaller than the 64 MB that Milvus takes at once.
_ROWS_PER_MESSAGE = 500
_PAPERS_PER_BATCH = 50
# How often a heading is repeated.
_HEADING_WEIGHT = 4
_TITLE_WEIGHT = 3
_ABSTRACT_WEIGHT = 2
_MAX_PASSAGE_CHARS = 15_000
_MAX_COUNTED_FIELDS = 500


@dataclass
class PushReport:
    """Counts of what a push did: so far, or in the end."""

    # Pushed, new or changed.
    papers: int = 0
    unchanged: int = 0
    # Pushed.
    equations: int = 0
    # Equations that changed or removed papers have no more.
    deleted: int = 0
    # Papers deleted, with `prune`.
    removed: int = 0
    # Ids of equations too large for Milvus, which are left out.
    oversized: list[str] = field(default_factory=list)
    # Papers of the library.
    total: int = 0
    seconds: float = 0.0
    # Equations in the collection at the end.
    collection: int = 0


def push_library(
    library: LibraryFiles,
    uri: str,
    model: str,
    collection: str = "eqkin",
    *,
    prune: bool = False,
    progress: Callable[[PushReport], None] = lambda report: None,
) -> PushReport:
    """Push an indexed library into a collection, which is created if it does not exist.

    Args:
        library: The library. The collection may also contain papers of other libraries.
        uri: Address of the server.
        model: Digest of the network of the library's vectors.
        collection: Name of the collection.
        prune: Delete papers that this library does not have.
        progress: Called after every batch.

    Raises:
        BadInput: another network or another program made the collection.
        Unreachable: the server does not answer; what was pushed stays, the next push continues.
        StorageFailed: the server cannot take more.
    """
    start = time.monotonic()
    target = MilvusCollection(uri, collection)
    backend = LocalBackend(library.folder, model)
    contents = list_contents(library, failed=False)
    report = PushReport(total=len(contents))
    keys = list(contents)
    try:
        with backend.snapshot() as snapshot:
            dimensions = snapshot.get_vectors(np.zeros(0, np.int64)).shape[1]
            target.create(model, dimensions)
            target.read_state(model)
            for first in range(0, len(keys), _PAPERS_PER_BATCH):
                part = {key: contents[key] for key in keys[first : first + _PAPERS_PER_BATCH]}
                _push_papers(target, snapshot, part, report)
                report.seconds = time.monotonic() - start
                progress(report)
        if prune:
            _delete_others(target, {hash_name(key) for key in keys}, report)
        report.collection = _write_state(target, model)
        report.seconds = time.monotonic() - start
        progress(report)
        return report
    finally:
        backend.close()
        target.close()


def _push_papers(target: MilvusCollection, snapshot: Snapshot, contents: dict[str, str], report: PushReport) -> None:
    """Push those of some papers that the collection does not have as they are."""
    numbers = {key: hash_name(key) for key in contents}
    known = target.fetch(target.papers, numbers.values(), ("content",), strong=True)
    due = [key for key, number in numbers.items() if known.get(number, {}).get("content") != contents[key]]
    report.unchanged += len(contents) - len(due)
    if not due:
        return
    equations: list[Row] = []
    papers: list[Row] = []
    for key in due:
        page = snapshot.get_paper(key)
        rows = _build_equation_rows(snapshot, page, report)
        equations += rows
        papers.append(_build_row_of_paper(page, contents[key], len(rows)))
    for first in range(0, len(equations), _ROWS_PER_MESSAGE):
        target.upsert(target.name, equations[first : first + _ROWS_PER_MESSAGE])
    # what changed papers have no more; of new ones, what an interrupted push may have left
    kept = {row["key"] for row in equations}
    written = target.scan(target.name, f"paper in {format_list(numbers[key] for key in due)}")
    report.deleted += target.delete(target.name, [row["key"] for row in written if row["key"] not in kept])
    target.upsert(target.papers, papers)
    report.papers += len(papers)
    report.equations += len(equations)


def _build_equation_rows(snapshot: Snapshot, page: PaperPage, report: PushReport) -> list[Row]:
    """Return a row for each equation of a paper that can be found."""
    keys = snapshot.list_keys([page.paper.key])
    found = snapshot.get_records(keys.tolist())
    keys = np.array([key for key in keys.tolist() if key in found], np.int64)
    records = [found[key] for key in keys.tolist()]
    vectors = snapshot.get_vectors(keys)
    trees = snapshot.get_trees(keys)
    operators = snapshot.get_operators(keys)
    terms = _extract_terms(operators)
    paper = page.paper
    shared = {
        "paper": hash_name(paper.key),
        "year": NO_YEAR if paper.year is None else int(np.clip(paper.year, -1_000_000, 1_000_000)),
        "fields": list(dict.fromkeys(map(clean_field_name, paper.fields)))[:MAX_FIELDS],
        "authors": truncate(AUTHOR_SEPARATOR.join(map(clean_author_name, paper.authors)), MAX_TEXT_BYTES),
        "lang": paper.lang,
    }
    rows = []
    for at, record in enumerate(records):
        packed = pack_record(
            _describe_equation(record)
            | {"tree": _encode(trees.select([at]).to_bytes()), "operators": _encode(operators.select([at]).to_bytes())}
        )
        if packed is None:
            report.oversized.append(record.id)
            continue
        row = {
            "key": hash_name(record.id),
            "vector": vectors[at],
            "record": packed,
            "terms": terms[at],
            "words": _build_text(record, page.abstract),
            "number": int(record.id.rpartition("#")[2]),
        }
        rows.append(row | shared)
    return rows


def _describe_equation(record: EquationRecord) -> Row:
    """Return what is shown of an equation, but for what is made of its tree and its paper."""
    paper = record.paper
    described: Row = {name: getattr(record, name) for name in DESCRIBED_FIELDS}
    number = int(record.id.rpartition("#")[2])
    described |= {"paper": paper.key, "number": number}
    return described | {"year": paper.year, "fields": paper.fields, "lang": paper.lang}


def _build_row_of_paper(page: PaperPage, content: str, equations: int) -> Row:
    about = asdict(page.paper) | {"abstract": page.abstract, "equations": equations}
    packed = pack_record(about) or pack_record(about | {"abstract": "", "authors": page.paper.authors[:50]})
    return build_paper_row(hash_name(page.paper.key), packed or "{}", content)


def _extract_terms(operators: OperatorForest) -> list[dict[int, float]]:
    """Return the indexed terms of each tree; Milvus wants at least one, so an empty tree has the term 0."""
    terms = extract_terms(operators)
    factors = normalise_length(np.diff(operators.offsets)).tolist()
    found: list[dict[int, float]] = [{} for _ in range(len(operators))]
    for tree, code in zip(terms.tree.tolist(), terms.code.tolist(), strict=True):
        if code != NO_TERM:
            found[tree][code] = factors[tree]
    return [each or {0: 1.0} for each in found]


def _build_text(record: EquationRecord, abstract: str) -> str:
    """Build the searchable text of an equation; parts that weigh more are repeated."""
    heading = f"{to_plain_text(record.section)} " * _HEADING_WEIGHT
    title = f"{to_plain_text(record.paper.title)} " * _TITLE_WEIGHT
    about = f"{to_plain_text(abstract)[:_MAX_PASSAGE_CHARS]} " * _ABSTRACT_WEIGHT
    around = f"{to_plain_text(record.before)} {to_plain_text(record.after)}"[:_MAX_PASSAGE_CHARS]
    # Milvus wants a word
    return truncate(f"equation {heading}{title}{around} {about}", MAX_TEXT_BYTES)


def _delete_others(target: MilvusCollection, here: set[int], report: PushReport) -> None:
    """Delete papers that the library does not have, with their equations."""
    others = [row["key"] for row in target.scan(target.papers, f"key > {STATE_KEY}") if row["key"] not in here]
    gone = {row["key"] for row in target.scan(target.name, "key > 0", ("paper",)) if row["paper"] not in here}
    report.removed += target.delete(target.papers, others)
    report.deleted += target.delete(target.name, gone)


def _write_state(target: MilvusCollection, model: str) -> int:
    """Describe the collection as it is now; return the number of its equations."""
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    total = 0
    for row in target.scan(target.name, "key > 0", ("fields", "year")):
        total += 1
        fields.update(row["fields"])
        if row["year"] != NO_YEAR:
            years[row["year"]] += 1
    target.write_state(
        {
            "format": COLLECTION_FORMAT,
            "model": model,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "equations": total,
            "fields": dict(fields.most_common(_MAX_COUNTED_FIELDS)),
            "years": {str(year): years[year] for year in sorted(years)},
        }
    )
    return total


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def clean_field_name(name: str) -> str:
    """Return the name of a subject field as filters see it."""
    return truncate(" ".join(name.split()), MAX_FIELD_BYTES)


def clean_author_name(name: str) -> str:
    """Return a name, or a part of one, as filters see it: simplified, only letters, digits and blanks."""
    return "".join(letter if letter.isalnum() else " " for letter in simplify_name(name))


def truncate(text: str, most: int) -> str:
    """Return the beginning of a text, at most this many bytes of it."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
