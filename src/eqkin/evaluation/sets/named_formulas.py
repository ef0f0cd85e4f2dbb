"""Formulas with names, read from LaTeX; those that cannot be read keep their place, and it is known why."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.evaluation.systems.base import FormulaSet
from eqkin.search.query import FormulaReader, OversizedFormula, UnreadableFormula
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import to_bytes
from eqkin.trees.mathml import Node, to_forest


@dataclass(frozen=True, eq=False)
class NamedFormulas:
    """Formulas of a collection. Those in `problems` have a tree of one empty row, so that every name has a tree."""

    names: Sequence[str]
    formulas: FormulaSet
    problems: dict[str, str] = field(default_factory=dict)  # why some cannot be read, by name

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def readable(self) -> npt.NDArray[np.bool_]:
        """Which have a tree of their own."""
        return np.array([name not in self.problems for name in self.names], bool)

    @cached_property
    def digest(self) -> str:
        """Identifies names, LaTeX and trees."""
        described = [list(self.names), list(self.formulas.latex or ()), sorted(self.problems)]
        return hashlib.sha256(orjson.dumps(described) + to_bytes(self.formulas.forest.canonicalise())).hexdigest()[:16]


def read_formulas(table: Iterable[tuple[str, str]], reader: FormulaReader | None = None) -> NamedFormulas:
    """Trees of named LaTeX or MathML formulas, each read by itself, as the search reads a query."""
    given, problems, builder = list(table), dict[str, str](), ForestBuilder()
    reader = reader or FormulaReader()
    empty = to_forest(Node("mrow"))
    with ThreadPoolExecutor(reader.converters) as pool:  # the converters work outside of Python's lock
        trees = pool.map(lambda row: _try_reading(reader, row[1]), given)
        for (name, _), read in zip(given, trees, strict=True):
            builder.add_forest(read if isinstance(read, Forest) else empty)
            if not isinstance(read, Forest):
                problems[name] = read
    formulas = FormulaSet(builder.build(), [latex for _, latex in given])
    return NamedFormulas([name for name, _ in given], formulas, problems)


def make_name(path: Path) -> str:
    """A name for what is in a file or folder: letters, digits and hyphens, fit for the names of tables."""
    return re.sub(r"[^A-Za-z0-9]+", "-", path.resolve().stem).strip("-") or "set"


def _try_reading(reader: FormulaReader, latex: str) -> Forest | str:
    """A formula's tree, or why there is none."""
    try:
        return reader.read(latex, wildcards=False).forest
    except (UnreadableFormula, OversizedFormula) as error:
        return str(error)
