"""Labelled sets: equations with the name of what they say, from a JSON file or from the atlas' kin groups."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.atlas import list_articles, load_equation_groups
from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.evaluation.sets.json_file import read_json
from eqkin.evaluation.sets.named_formulas import NamedFormulas, make_name, read_formulas
from eqkin.evaluation.store import compute_digest
from eqkin.evaluation.systems.base import FormulaSet
from eqkin.latex import parse
from eqkin.library.parsing import convert_document
from eqkin.search.query import FormulaReader
from eqkin.trees import ForestBuilder

MAX_EQUATIONS = 5_000  # equations; all pairs of one label are compared with all others
_FORM = 'a list of {"latex": ..., "label": ...}'


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Equations, each with one label; all of them have a tree."""

    name: str
    equations: NamedFormulas
    labels: list[str]
    skipped: dict[str, str] = field(default_factory=dict)  # equations that were left out, and why they are unreadable

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """Identifies equations and labels."""
        return compute_digest([self.equations.digest, self.labels])

    @property
    def duplicates(self) -> int:
        """How many equations stand there more than once, written the same."""
        return sum(count - 1 for count in Counter(self.equations.formulas.latex or ()).values())


def read_labelled(path: Path, *, skip_unreadable: bool = False, reader: FormulaReader | None = None) -> LabelledSet:
    """The set in a JSON file, `[{"latex": ..., "label": ...}, ...]`; labels are strings or whole numbers.

    Args:
        path: The file.
        skip_unreadable: Leave out formulas that cannot be read; the set names them.
        reader: Reads the formulas.

    Raises:
        BadInput: the file is not of this form or empty, or a formula cannot be read.
        LimitReached: it has more than `MOST` equations.
    """
    entries = _read_entries(path)
    read = read_formulas([(str(number), latex) for number, (latex, _) in enumerate(entries, 1)], reader)
    if read.problems and not skip_unreadable:
        raise BadInput(
            f"{path}: {_describe_problems(read, entries)}; mend such formulas, or skip them (--skip-unreadable)"
        )
    kept = np.flatnonzero(read.readable)
    if not len(kept):
        raise BadInput(
            f"{path}: none of its {len(entries):,} formulas can be read; first {_describe_problems(read, entries)}"
        )
    equations = NamedFormulas([read.names[place] for place in kept.tolist()], read.formulas.select(kept))
    labels = [entries[place][1] for place in kept.tolist()]
    return LabelledSet(make_name(path), equations, labels, read.problems)


def load_atlas_set() -> LabelledSet:
    """The kin groups of the bundled atlas: every member of a group, labelled with the group.

    Members are read from the articles themselves, with the macros that hold where they stand; no library is needed.
    An equation is in one group at most, as the atlas promises. Equations in no group are left out: some of them are
    kin all the same, and would count as wrong.

    Raises:
        CorruptData: the groups name an equation twice, or one that is not there.
    """
    groups = {member: group.id for group in load_equation_groups() for member in group.equations}
    if len(groups) != sum(len(group.equations) for group in load_equation_groups()):
        raise CorruptData("the atlas has an equation in two kin groups; install eqkin again")
    names: list[str] = []
    latex: list[str] = []
    builder = ForestBuilder()
    for article in list_articles():
        subject = article.name.removesuffix(".tex")
        document = parse(article.read_text("utf-8"))
        wanted = [equation for equation in document.equations if f"{subject}:{equation.label}" in groups]
        records, forest = convert_document(dataclasses.replace(document, equations=wanted))
        builder.add_forest(forest)
        names += [f"{subject}:{record.label}" for record in records if record.tree >= 0]
        latex += [record.latex for record in records if record.tree >= 0]
    missing = sorted(groups.keys() - set(names))
    if missing or len(names) != len(groups):
        raise CorruptData(
            f"the atlas' kin groups and articles do not fit ({', '.join(missing[:5])}); install eqkin again"
        )
    return LabelledSet(
        "atlas", NamedFormulas(names, FormulaSet(builder.build(), latex)), [groups[name] for name in names]
    )


def _read_entries(path: Path) -> list[tuple[str, str]]:
    """LaTeX and label of each entry."""
    data = read_json(path, f"{_FORM} is needed")
    if not isinstance(data, list):
        raise BadInput(f"{path}: {_FORM} is needed")
    if not data:
        raise BadInput(f"{path}: no equations; {_FORM} is needed")
    if len(data) > MAX_EQUATIONS:
        raise LimitReached(
            f"{path}: {len(data):,} equations, and at most {MAX_EQUATIONS:,} can be compared; give a part of them"
        )
    return [_parse_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(data, 1)]


def _parse_entry(entry: Any, where: str) -> tuple[str, str]:
    latex, label = (entry.get("latex"), entry.get("label")) if isinstance(entry, dict) else (None, None)
    if not isinstance(latex, str):
        raise BadInput(f'{where}: "latex" has to be a formula; {_FORM} is needed')
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise BadInput(f'{where}: "label" has to be a name or a whole number; {_FORM} is needed')
    return latex, str(label).strip()


def _describe_problems(read: NamedFormulas, entries: list[tuple[str, str]]) -> str:
    """The first problems, with the formulas they are in."""
    shown = []
    for name, problem in list(read.problems.items())[:3]:
        latex = entries[int(name) - 1][0]
        shown.append(f"entry {name}, {latex if len(latex) <= 100 else latex[:100] + '...'!r}: {problem}")
    more = f"; and {len(read.problems) - 3:,} more" if len(read.problems) > 3 else ""
    return "; ".join(shown) + more
