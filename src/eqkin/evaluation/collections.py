"""Judged collections as their organisers distribute them.

A folder holds, at any depth,

    ARQMath (task 2)      Topics*.xml, the formulas as LaTeX (`latex_representation*/*.tsv`), `qrel_task2_*.tsv`
    NTCIR-12 MathWiki     a file of topics (*.xml) with MathML, the articles (*.html) or `formulas.tsv`, `*qrels*.dat`

Only formulas that were judged are read: the measures ignore all others. ARQMath judges formulas that look the same
together; the first of each such group stands for it, under the group's number.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import parse  # type: ignore[import-untyped]

from eqkin.errors import BadInput
from eqkin.evaluation.measures import Qrels
from eqkin.search.trec import read_table

# Names and LaTeX.
Rows = list[tuple[str, str]]

# ARQMath's judgements use one of these columns of its formulas, depending on the year.
_GROUP_COLUMNS = ("visual_id", "old_visual_id", "id")
_MATH = re.compile(r"<(?:m:)?math\b([^>]*)>(.*?)</(?:m:)?math>", re.DOTALL)
_TEX = re.compile(r'<(?:m:)?annotation[^>]*encoding="application/x-tex"[^>]*>(.*?)</', re.DOTALL)
_MAX_FIELD = 10_000_000


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
