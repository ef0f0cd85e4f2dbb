"""Judged sets: topics, formulas and judgements in TREC's formats, runs of other systems, and published figures.

A folder of a set holds

    topics.tsv        id<TAB>LaTeX a line
    formulas.tsv      the same; all of them are ranked for each topic
    qrels.txt         `topic 0 formula grade` a line, grades from 0 (not relevant) on
    published.json    optional, figures of others: [{"title": "approach0", "scores": {"ndcg": 0.7178, "map": 0.4963}}]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from eqkin.errors import BadInput
from eqkin.evaluation.metrics.measures import JUDGED_MEASURES
from eqkin.evaluation.results import PAPER, PUBLISHED, Score, TableRow
from eqkin.evaluation.sets.json_file import read_json
from eqkin.evaluation.sets.named_formulas import NamedFormulas, make_name, read_formulas
from eqkin.search.query import FormulaReader
from eqkin.search.trec import read_lines, read_table

Qrels: TypeAlias = dict[str, dict[str, int]]  # grade by topic and formula
RankedLists: TypeAlias = dict[str, list[str]]  # formulas by topic, best first
TOPICS_FILE, FORMULAS_FILE, QRELS_FILE, PUBLISHED_FILE = "topics.tsv", "formulas.tsv", "qrels.txt", "published.json"
_GRADE = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """Topics, formulas and what people said of them."""

    name: str
    topics: NamedFormulas
    formulas: NamedFormulas
    qrels: Qrels
    published: Sequence[TableRow] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, reader: FormulaReader | None = None) -> JudgedSet:
        """The set in a folder; raises `BadInput`."""
        published = folder / PUBLISHED_FILE
        return cls.read_files(
            folder / TOPICS_FILE, folder / FORMULAS_FILE, folder / QRELS_FILE, name=make_name(folder),
            published=read_published(published) if published.exists() else (), reader=reader,
        )  # fmt: skip

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
        """The set in three files.

        Formulas that cannot be read are kept and named in `problems`.

        Raises:
            BadInput: a file cannot be read or is empty, a judgement is of a topic that is not there or finds a formula
                related that is not there, or a topic has no judgements.
        """
        asked, given = _read_nonempty_table(topics), _read_nonempty_table(formulas)
        grades = read_qrels(qrels)
        _check_qrels(qrels, grades, {name for name, _ in asked}, {name for name, _ in given})
        reader = reader or FormulaReader()
        return cls(name, read_formulas(asked, reader), read_formulas(given, reader), grades, published)

    @property
    def judgements(self) -> int:
        """How many there are."""
        return sum(map(len, self.qrels.values()))

    @property
    def missing_formulas(self) -> int:
        """How many formulas were judged, with grade 0, that are not there."""
        return len({formula for judged in self.qrels.values() for formula in judged} - set(self.formulas.names))


def read_qrels(path: Path) -> Qrels:
    """Judgements, `topic iteration formula grade` a line; the second field says nothing.

    Raises:
        BadInput: the file cannot be read, is empty, a line is not of this form, a grade is no whole number from 0 on,
            or a formula is judged twice for one topic.
    """
    qrels: Qrels = {}
    for where, fields in _iter_fields(path):
        if len(fields) != 4:
            raise BadInput(f"{where}: a judgement is `topic 0 formula grade`, four fields, not {len(fields)}")
        topic, _, formula, grade = fields
        if not _GRADE.fullmatch(grade):
            raise BadInput(f"{where}: the grade {grade!r} is unknown; grades are whole numbers from 0 on")
        if formula in qrels.setdefault(topic, {}):
            raise BadInput(f"{where}: formula {formula} was already judged for topic {topic}; keep one judgement")
        qrels[topic][formula] = int(grade)
    if not qrels:
        raise BadInput(f"{path}: no judgements")
    return qrels


def read_run(path: Path) -> RankedLists:
    """A TREC run of any system, `topic Q0 formula rank score tag` a line: formulas by topic, best first.

    The score decides, as in trec_eval; where scores are equal (often because they were rounded) the rank does, then the
    order of the lines.

    Raises:
        BadInput: the file cannot be read, is empty, a line is not of this form, or a formula stands twice in a list.
    """
    lists: dict[str, dict[str, tuple[float, int]]] = {}
    for where, fields in _iter_fields(path):
        try:
            topic, _, formula, rank, score, _ = fields
            place = (-float(score), int(rank))
        except ValueError as error:
            raise BadInput(f"{where}: a run's line is `topic Q0 formula rank score tag`") from error
        if place[0] != place[0]:
            raise BadInput(f"{where}: the score {score!r} is no number")
        if formula in lists.setdefault(topic, {}):
            raise BadInput(f"{where}: formula {formula} stands twice in the list of topic {topic}")
        lists[topic][formula] = place
    if not lists:
        raise BadInput(f"{path}: no results")
    return {topic: sorted(found, key=found.__getitem__) for topic, found in lists.items()}


def read_published(path: Path) -> list[TableRow]:
    """Figures of others, which come without intervals.

    The file is a JSON list of `{"title": ..., "scores": {measure: number}, "note": ..., "origin": ...}`; measures go by
    their keys, the note may be left out, and so may the origin, "published" or "paper".

    Raises:
        BadInput: the file is not of this form.
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
    known = [measure.key for measure in JUDGED_MEASURES]
    if unknown := sorted(cells.keys() - set(known)):
        raise BadInput(f"{where}: there is no measure {unknown[0]!r}; there are {', '.join(known)}")
    if row.origin not in (PUBLISHED, PAPER):
        raise BadInput(f"{where}: its origin is {row.origin!r}, and has to be {PUBLISHED!r} or {PAPER!r}")
    return row


def _read_nonempty_table(path: Path) -> list[tuple[str, str]]:
    table = read_table(path)
    if not table:
        raise BadInput(f"{path}: no formulas")
    return table


def _iter_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The fields of each line that is not empty, and where it stands."""
    for number, line in enumerate(read_lines(path), 1):
        if fields := line.split():
            yield f"{path}, line {number}", fields


def _check_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]], topics: set[str], formulas: set[str]) -> None:
    """Raise `BadInput` unless judgements, topics and formulas fit together."""
    unknown = sorted(qrels.keys() - topics)
    if unknown:
        raise BadInput(f"{path}: judgements for topics that are not there: {_join_some(unknown)}")
    missing = sorted({formula for judged in qrels.values() for formula, grade in judged.items() if grade} - formulas)
    if missing:  # nobody could find them; those of grade 0 nobody has to
        raise BadInput(f"{path}: formulas judged related are not there: {_join_some(missing)}")
    unjudged = sorted(topics - qrels.keys())
    if unjudged:
        raise BadInput(f"{path}: topics without judgements, leave them out: {_join_some(unjudged)}")


def _join_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
