"""Judged sets: topics, formulas and judgements in TREC's formats.

A folder of a set holds

    topics.tsv        lines of id<TAB>LaTeX
    formulas.tsv      the same; all of them are ranked for each topic
    qrels.txt         lines of `topic 0 formula grade`, grades from 0 (not relevant) on

ARQMath and NTCIR-12 are also read as they are distributed (`collections`).

If no judgement has grade 0, the set is complete: everything that is not listed is not relevant, and formulas with the
topic's own LaTeX do not count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eqkin.errors import BadInput
from eqkin.evaluation.collections import find_collection, read_judged_formulas, read_topics
from eqkin.evaluation.formulas import NamedFormulas, make_name, read_formulas
from eqkin.evaluation.measures import COMPLETE_MEASURES, JUDGED_MEASURES, Measure, Qrels
from eqkin.search.trec import read_lines, read_table

_GRADE = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """Topics, formulas and relevance judgements."""

    name: str
    topics: NamedFormulas
    formulas: NamedFormulas
    # Grade by topic and formula.
    qrels: Qrels

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> JudgedSet:
        """Read the set in a folder, also of ARQMath or NTCIR as distributed.

        Unreadable formulas are kept, and listed in `problems`.

        Raises:
            BadInput: A file cannot be read or is empty, a judgement names an unknown topic or finds an unknown
                formula relevant, or a topic has no judgements.
        """
        folder = Path(source)
        qrels_file = folder / "qrels.txt"
        collection = None if (folder / "topics.tsv").exists() else find_collection(folder)
        if collection is None:
            topics = read_table(folder / "topics.tsv")
            formulas = read_table(folder / "formulas.tsv")
            qrels = read_qrels(qrels_file)
        else:
            topics_file, qrels_file = collection
            qrels = read_qrels(qrels_file)
            topics = [row for row in read_topics(topics_file) if row[0] in qrels]
            formulas = read_judged_formulas(folder, qrels)
        if not topics or not formulas:
            raise BadInput(f"{folder}: has no topics or no formulas")
        _check_qrels(qrels_file, qrels, {name for name, _ in topics}, {name for name, _ in formulas})
        return cls(make_name(folder.resolve().stem), read_formulas(topics), read_formulas(formulas), qrels)

    @cached_property
    def is_complete(self) -> bool:
        """Whether all relevant formulas are known: no formula was judged as not relevant."""
        return all(grade > 0 for grades in self.qrels.values() for grade in grades.values())

    @property
    def measures(self) -> Sequence[Measure]:
        """The measures of its lists."""
        return COMPLETE_MEASURES if self.is_complete else JUDGED_MEASURES

    def find_excluded(self) -> dict[str, set[str]]:
        """Find the formulas of a complete set that have a topic's own LaTeX, by topic; of other sets there are none."""
        same: dict[str, set[str]] = {}
        if self.is_complete:
            for name, latex in zip(self.formulas.names, self.formulas.formulas.latex or (), strict=True):
                same.setdefault("".join(latex.split()), set()).add(name)
        topics = zip(self.topics.names, self.topics.formulas.latex or (), strict=True)
        return {name: same.get("".join(latex.split()), set()) for name, latex in topics}


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


def _iter_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the fields of each line that is not empty, with its file and number."""
    for number, line in enumerate(read_lines(path), 1):
        if fields := line.split():
            yield f"{path}, line {number}", fields


def _check_qrels(path: Path, qrels: Qrels, topics: set[str], formulas: set[str]) -> None:
    """Raise `BadInput` unless judgements, topics and formulas fit together."""
    # A judged formula of grade 0 may be missing: no measure depends on it.
    relevant = {formula for judged in qrels.values() for formula, grade in judged.items() if grade}
    problems = {
        "judgements for unknown topics": qrels.keys() - topics,
        "relevant formulas are missing from the collection": relevant - formulas,
        "topics without judgements, leave them out": topics - qrels.keys(),
    }
    for problem, names in problems.items():
        if names:
            more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
            raise BadInput(f"{path}: {problem}: {', '.join(sorted(names)[:5])}{more}")
