"""Judged sets: topics, formulas and judgements in TREC's formats.

A folder of a set holds

    topics.tsv        lines of id<TAB>LaTeX
    formulas.tsv      the same; all of them are ranked for each topic
    qrels.txt         lines of `topic 0 formula grade`, grades from 0 (not relevant) on
    published.json    optional, figures of others: [{"title": "approach0", "scores": {"ndcg": 0.7178, "map": 0.4963}}]

ARQMath (task 2) and NTCIR-12 MathWiki are also read as their organisers distribute them: a folder, at any depth, holds

    ARQMath    Topics*.xml, the formulas as LaTeX (`latex_representation*/*.tsv`), `qrel_task2_*.tsv`
    NTCIR-12   a file of topics (*.xml) with MathML, the articles (*.html) or `formulas.tsv`, `*qrels*.dat`

Only formulas that were judged are read then: the measures ignore all others. ARQMath judges formulas that look the same
together; the first of each such group stands for it, under the group's number. Data sets of ir_datasets are read by
their names, as in `irds:NAME`.

If no judgement has grade 0, the set is complete: everything that is not listed is not relevant, and formulas with the
topic's own LaTeX do not count.
"""

from __future__ import annotations

import csv
import html
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import parse  # type: ignore[import-untyped]

from eqkin.errors import BadInput
from eqkin.evaluation.context import compute_digest
from eqkin.evaluation.formulas import NamedFormulas, import_optional, make_name, read_formulas, read_json
from eqkin.evaluation.measures import COMPLETE_MEASURES, JUDGED_MEASURES, Measure
from eqkin.evaluation.tables import PAPER, PUBLISHED, TableRow
from eqkin.search.query import FormulaReader
from eqkin.search.trec import read_lines, read_table
from eqkin.statistics import Score

TOPICS_FILE, FORMULAS_FILE, QRELS_FILE = "topics.tsv", "formulas.tsv", "qrels.txt"
PUBLISHED_FILE = "published.json"
DATASET_PREFIX = "irds:"
Rows = list[tuple[str, str]]  # names and LaTeX

_GROUP_COLUMNS = ("visual_id", "old_visual_id", "id")  # of ARQMath's formulas; judgements use one of them
_MATH = re.compile(r"<(?:m:)?math\b([^>]*)>(.*?)</(?:m:)?math>", re.DOTALL)
_TEX = re.compile(r'<(?:m:)?annotation[^>]*encoding="application/x-tex"[^>]*>(.*?)</', re.DOTALL)
_MAX_FIELD = 10_000_000
_GRADE = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """Topics, formulas and relevance judgements."""

    name: str
    topics: NamedFormulas
    formulas: NamedFormulas
    qrels: dict[str, dict[str, int]]  # grade by topic and formula
    published: Sequence[TableRow] = field(default_factory=list)

    @classmethod
    def read(cls, source: str | os.PathLike[str], reader: FormulaReader | None = None) -> JudgedSet:
        """Read the set in a folder, also of ARQMath or NTCIR as distributed, or `irds:NAME`; raises `BadInput`."""
        if str(source).startswith(DATASET_PREFIX):
            name = str(source).removeprefix(DATASET_PREFIX)
            try:
                dataset = import_optional("ir_datasets").load(name)
            except KeyError as error:
                raise BadInput(f"ir_datasets has no data set {name!r}") from error
            return cls.from_dataset(dataset, reader=reader)
        folder = Path(source)
        path, name = folder / PUBLISHED_FILE, make_name(folder.resolve().stem)
        published = read_published(path) if path.exists() else ()
        found = None if (folder / TOPICS_FILE).exists() else _find_collection(folder)
        if found is None:
            files = (folder / TOPICS_FILE, folder / FORMULAS_FILE, folder / QRELS_FILE)
            return cls.read_files(*files, name=name, published=published, reader=reader)
        grades = read_qrels(found[1])
        topics = [row for row in _read_topics(found[0]) if row[0] in grades]
        formulas = _read_judged_formulas(folder, grades)
        _check_qrels(found[1], grades, {name for name, _ in topics}, {name for name, _ in formulas})
        reader = reader or FormulaReader()
        return cls(name, read_formulas(topics, reader), read_formulas(formulas, reader), grades, published)

    @classmethod
    def read_files(
        cls,
        topics: Path,
        formulas: Path,
        qrels: Path,
        *,
        name: str = "judged",
        published: Sequence[TableRow] = (),
        reader: FormulaReader | None = None,
    ) -> JudgedSet:
        """Read the set in three files.

        Unreadable formulas are kept, and listed in `problems`.

        Raises:
            BadInput: A file cannot be read or is empty, a judgement names an unknown topic or finds an unknown
                formula relevant, or a topic has no judgements.
        """
        tables = []
        for path in (topics, formulas):
            tables.append(read_table(path))
            if not tables[-1]:
                raise BadInput(f"{path}: no formulas")
        grades = read_qrels(qrels)
        _check_qrels(qrels, grades, *({name for name, _ in table} for table in tables))
        reader = reader or FormulaReader()
        return cls(name, read_formulas(tables[0], reader), read_formulas(tables[1], reader), grades, published)

    @classmethod
    def from_dataset(cls, dataset: Any, *, reader: FormulaReader | None = None) -> JudgedSet:
        """Make a set of a data set with the methods of ir_datasets: `queries_iter`, `docs_iter` and `qrels_iter`.

        A formula is the field `latex` of a query or document, or its text. Only judged queries and documents are read,
        as in `read`; grades below 0 count as 0.
        """
        grades: dict[str, dict[str, int]] = {}
        for one in dataset.qrels_iter():
            grades.setdefault(one.query_id, {})[one.doc_id] = max(int(one.relevance), 0)
        judged = {formula for found in grades.values() for formula in found}
        topics = [(one.query_id, _get_latex(one)) for one in dataset.queries_iter() if one.query_id in grades]
        formulas = [(one.doc_id, _get_latex(one)) for one in dataset.docs_iter() if one.doc_id in judged]
        name = make_name(getattr(dataset, "dataset_id", lambda: "dataset")())
        _check_qrels(Path(name), grades, {topic for topic, _ in topics}, {formula for formula, _ in formulas})
        reader = reader or FormulaReader()
        return cls(name, read_formulas(topics, reader), read_formulas(formulas, reader), grades)

    @cached_property
    def digest(self) -> str:
        """Digest of topics, formulas and judgements."""
        return compute_digest([self.topics.digest, self.formulas.digest, self.qrels])

    @cached_property
    def is_complete(self) -> bool:
        """Whether all relevant formulas are known: no formula was judged as not relevant."""
        return all(grade > 0 for grades in self.qrels.values() for grade in grades.values())

    @property
    def measures(self) -> Sequence[Measure]:
        """The measures of its lists."""
        return COMPLETE_MEASURES if self.is_complete else JUDGED_MEASURES

    @property
    def excluded(self) -> dict[str, set[str]] | None:
        """Formulas of a complete set that have a topic's own LaTeX, by topic."""
        if not self.is_complete:
            return None
        same: dict[str, set[str]] = {}
        for name, latex in zip(self.formulas.names, self.formulas.formulas.latex or (), strict=True):
            same.setdefault("".join(latex.split()), set()).add(name)
        topics = zip(self.topics.names, self.topics.formulas.latex or (), strict=True)
        return {name: same.get("".join(latex.split()), set()) for name, latex in topics}

    @property
    def judgements(self) -> int:
        """Number of judgements."""
        return sum(map(len, self.qrels.values()))

    @property
    def missing_formulas(self) -> int:
        """Number of formulas that were judged, with grade 0, but are not in the collection."""
        return len({formula for judged in self.qrels.values() for formula in judged} - set(self.formulas.names))


def _get_latex(record: Any) -> str:
    """Return the formula of a query or document of ir_datasets."""
    found = getattr(record, "latex", None)
    if found is None:
        found = record.default_text() if hasattr(record, "default_text") else record.text
    return str(found).strip().strip("$")


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read judgements, lines of `topic iteration formula grade`; the second field is ignored.

    Raises:
        BadInput: The file cannot be read or is empty, a line has another form, a grade is not a whole number from 0
            on, or a formula is judged twice for one topic.
    """
    qrels: dict[str, dict[str, int]] = {}
    for where, fields in _iter_fields(path):
        if len(fields) != 4:
            raise BadInput(f"{where}: a judgement has four fields, `topic 0 formula grade`, not {len(fields)}")
        topic, _, formula, grade = fields
        if not _GRADE.fullmatch(grade):
            raise BadInput(f"{where}: the grade {grade!r} is not a whole number from 0 on")
        if formula in qrels.setdefault(topic, {}):
            raise BadInput(f"{where}: formula {formula} was already judged for topic {topic}; keep one judgement")
        qrels[topic][formula] = int(grade)
    if not qrels:
        raise BadInput(f"{path}: no judgements")
    return qrels


def read_run(path: Path) -> dict[str, list[str]]:
    """Read a TREC run, lines of `topic Q0 formula rank score tag`: formulas by topic, best first.

    The score decides, as in trec_eval; for equal scores (often because they were rounded) the rank decides, then the
    order of the lines.

    Raises:
        BadInput: The file cannot be read or is empty, a line has another form, or a formula is twice in a list.
    """
    lists: dict[str, dict[str, tuple[float, int]]] = {}
    for where, fields in _iter_fields(path):
        try:
            topic, _, formula, rank, score, _ = fields
            place = (-float(score), int(rank))
        except ValueError as error:
            raise BadInput(f"{where}: a line of a run is `topic Q0 formula rank score tag`") from error
        if place[0] != place[0]:
            raise BadInput(f"{where}: the score {score!r} is not a number")
        if formula in lists.setdefault(topic, {}):
            raise BadInput(f"{where}: formula {formula} is twice in the list of topic {topic}")
        lists[topic][formula] = place
    if not lists:
        raise BadInput(f"{path}: no results")
    return {topic: sorted(found, key=found.__getitem__) for topic, found in lists.items()}


def read_published(path: Path) -> list[TableRow]:
    """Read figures of others, which come without intervals.

    The file is a JSON list of `{"title": ..., "scores": {measure: number}, "note": ..., "origin": ...}`; measures go by
    their keys. The note and the origin, "published" or "paper", are optional.

    Raises:
        BadInput: The file has another form.
    """
    data = read_json(path, "a list of published figures is needed")
    if not isinstance(data, list):
        raise BadInput(f"{path}: a list of published figures is needed")
    return [_parse_published(entry, f"{path}, entry {number}") for number, entry in enumerate(data, 1)]


def _parse_published(entry: Any, where: str) -> TableRow:
    try:
        cells: dict[str, Score | str] = {str(key): Score(float(value)) for key, value in entry["scores"].items()}
        row = TableRow(str(entry["title"]), cells, entry.get("origin", PUBLISHED), str(entry.get("note", "")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f'{where}: needs the form {{"title": ..., "scores": {{measure: number}}}}') from error
    known = list(dict.fromkeys(measure.key for measure in (*JUDGED_MEASURES, *COMPLETE_MEASURES)))
    if unknown := sorted(cells.keys() - set(known)):
        raise BadInput(f"{where}: unknown measure {unknown[0]!r}; choose from {', '.join(known)}")
    if row.origin not in (PUBLISHED, PAPER):
        raise BadInput(f"{where}: the origin must be {PUBLISHED!r} or {PAPER!r}, got {row.origin!r}")
    return row


def _iter_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the fields of each line that is not empty, with its file and number."""
    for number, line in enumerate(read_lines(path), 1):
        if fields := line.split():
            yield f"{path}, line {number}", fields


def _check_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]], topics: set[str], formulas: set[str]) -> None:
    """Raise `BadInput` unless judgements, topics and formulas fit together."""

    def join(names: Sequence[str]) -> str:
        return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")

    if unknown := sorted(qrels.keys() - topics):
        raise BadInput(f"{path}: judgements for unknown topics: {join(unknown)}")
    relevant = {formula for judged in qrels.values() for formula, grade in judged.items() if grade}
    if missing := sorted(relevant - formulas):  # no system could find them; those of grade 0 do not matter
        raise BadInput(f"{path}: relevant formulas are missing from the collection: {join(missing)}")
    if unjudged := sorted(topics - qrels.keys()):
        raise BadInput(f"{path}: topics without judgements, leave them out: {join(unjudged)}")


def _find_collection(folder: Path) -> tuple[Path, Path] | None:
    """Return the files of topics and of judgements of a distributed collection; None if the folder holds none."""
    topics = sorted(path for path in folder.rglob("*.xml") if re.search("topic|quer", path.name, re.IGNORECASE))
    qrels = sorted(path for path in folder.rglob("*qrel*") if path.suffix in (".tsv", ".dat", ".txt", ""))
    if not topics or not qrels:
        return None
    for what, found in (("files of topics", topics), ("files of judgements", qrels)):
        if len(found) > 1:
            names = ", ".join(path.name for path in found[:5])
            raise BadInput(f"{folder}: several {what} ({names}); keep those of one year in a folder of their own")
    return topics[0], qrels[0]


def _read_topics(path: Path) -> Rows:
    """Read the topics of either collection; of several formulas of a topic the first counts. Raises `BadInput`."""
    try:
        root: Element = parse(path, forbid_dtd=True).getroot()
    except (OSError, ParseError, DefusedXmlException, ValueError) as error:
        raise BadInput(f"{path}: is not XML that can be read ({error})") from error
    rows = []
    for topic in (element for element in root.iter() if _get_local_name(element) == "topic"):
        found = {_get_local_name(element): element for element in reversed(list(topic.iter()))}
        name = topic.get("number") or "".join(found["num"].itertext() if "num" in found else ())
        latex = found.get("latex", found.get("annotation"))
        if name and latex is not None:
            rows.append((name.strip(), "".join(latex.itertext()).strip().strip("$")))
    if not rows:
        raise BadInput(f"{path}: has no topics with a formula")
    return rows


def _read_judged_formulas(folder: Path, qrels: Mapping[str, Mapping[str, int]]) -> Rows:
    """Read the formulas below a folder that were judged. Raises `BadInput` if there are none."""
    judged = {formula for grades in qrels.values() for formula in grades}
    found: dict[str, str] = {}
    plain = folder / "formulas.tsv"
    if plain.exists():
        found = {name: latex for name, latex in read_table(plain) if name in judged}
    else:
        for path in sorted(folder.rglob("*.tsv")):
            for name, latex in _iter_table(path, judged):
                found.setdefault(name, latex)
        for path in sorted(folder.rglob("*.html")):
            for name, latex in _iter_article(path):
                if name in judged:
                    found.setdefault(name, latex)
    if not found:
        raise BadInput(f"{folder}: none of the judged formulas is there (as latex_representation*/*.tsv or *.html)")
    return list(found.items())


def _iter_table(path: Path, judged: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the judged formulas of one of ARQMath's tables; nothing of another table."""
    csv.field_size_limit(_MAX_FIELD)
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        if "formula" not in (reader.fieldnames or ()):
            return
        for row in reader:
            name = next((row[key] for key in _GROUP_COLUMNS if row.get(key) in judged), None)
            if name is not None and row["formula"]:
                yield name, row["formula"]


def _iter_article(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the formulas of an article of NTCIR-12 with their ids, such as `Title:3`."""
    for match in _MATH.finditer(path.read_text("utf-8", "replace")):
        name = re.search(r'\bid="([^"]+)"', match[1])
        tex = _TEX.search(match[2]) or re.search(r'\balttext="([^"]*)"', match[1])
        if name and tex:
            yield html.unescape(name[1]), html.unescape(tex[1]).strip()


def _get_local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""
