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

import csv
import html
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import parse  # type: ignore[import-untyped]

from eqkin.errors import BadInput
from eqkin.evaluation.measures import COMPLETE_MEASURES, JUDGED_MEASURES, Measure, Qrels
from eqkin.evaluation.systems import NamedFormulas, make_name, read_formulas
from eqkin.search.trec import read_lines, read_table

# Names and LaTeX.
Rows = list[tuple[str, str]]

# ARQMath's judgements use one of these columns of its formulas, depending on the year.
_GROUP_COLUMNS = ("visual_id", "old_visual_id", "id")
_MATH = re.compile(r"<(?:m:)?math\b([^>]*)>(.*?)</(?:m:)?math>", re.DOTALL)
_TEX = re.compile(r'<(?:m:)?annotation[^>]*encoding="application/x-tex"[^>]*>(.*?)</', re.DOTALL)
_MAX_FIELD = 10_000_000
_GRADE = re.compile(r"[0-9]{1,4}", re.ASCII)


def find_collection(folder: Path) -> tuple[Path, Path] | None:
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


def read_topics(path: Path) -> Rows:
    """Read the topics of either collection; of several formulas of a topic the first counts. Raises `BadInput`."""
    try:
        root: Element = parse(path, forbid_dtd=True).getroot()
    except (OSError, ParseError, DefusedXmlException, ValueError) as error:
        raise BadInput(f"{path}: is not XML that can be read ({error})") from error
    rows = []
    for topic in root.iter():
        if _get_local_name(topic) != "topic":
            continue
        # In reverse order, so that the first element of a name is the one that remains.
        found = {_get_local_name(element): element for element in reversed(list(topic.iter()))}
        name = topic.get("number") or "".join(found["num"].itertext() if "num" in found else ())
        latex = found.get("latex", found.get("annotation"))
        if name and latex is not None:
            rows.append((name.strip(), "".join(latex.itertext()).strip().strip("$")))
    if not rows:
        raise BadInput(f"{path}: has no topics with a formula")
    return rows


def _get_local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def read_judged_formulas(folder: Path, qrels: Qrels) -> Rows:
    """Read the formulas below a folder that were judged. Raises `BadInput` if there are none."""
    judged = {formula for grades in qrels.values() for formula in grades}
    plain = folder / "formulas.tsv"
    if plain.exists():
        rows = [row for row in read_table(plain) if row[0] in judged]
    else:
        found: dict[str, str] = {}
        for path in sorted(folder.rglob("*.tsv")):
            for name, latex in _iter_table(path, judged):
                found.setdefault(name, latex)
        for path in sorted(folder.rglob("*.html")):
            for name, latex in _iter_article(path):
                if name in judged:
                    found.setdefault(name, latex)
        rows = list(found.items())
    if not rows:
        raise BadInput(f"{folder}: none of the judged formulas is there (as latex_representation*/*.tsv or *.html)")
    return rows


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
