"""Formulas as evaluations take them: trees with LaTeX and names, how they are read, and products of their vectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import Node, to_forest
from eqkin.search.query import FormulaReader

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Float32s: TypeAlias = npt.NDArray[np.float32]
Matrix: TypeAlias = "Float32s | csr_matrix"


@dataclass(frozen=True, eq=False)
class FormulaSet:
    """Formulas as trees, and as LaTeX if it is known."""

    forest: Forest
    # One for each tree.
    latex: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.forest)

    def select(self, indices: npt.NDArray[np.int64]) -> FormulaSet:
        """Return some of the formulas, in the given order."""
        latex = None
        if self.latex is not None:
            latex = [self.latex[index] for index in indices.tolist()]
        return FormulaSet(self.forest.select(indices), latex)


@dataclass(frozen=True, eq=False)
class NamedFormulas:
    """Formulas of a collection. An unreadable one has a tree of one empty row, so that every name has a tree."""

    names: Sequence[str]
    formulas: FormulaSet
    # Why a formula cannot be read, by its name.
    problems: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def readable(self) -> npt.NDArray[np.bool_]:
        """Mask of the formulas that could be read."""
        return np.array([name not in self.problems for name in self.names], bool)


def read_formulas(table: Iterable[tuple[str, str]]) -> NamedFormulas:
    """Read named LaTeX or MathML formulas, each by itself, as the search reads a query."""
    rows = list(table)
    problems: dict[str, str] = {}
    forests: list[Forest] = []
    empty = to_forest(Node("mrow"))
    found = FormulaReader().iter_formulas((latex for _, latex in rows), wildcards=False)
    for (name, _), read in zip(rows, found, strict=True):
        # A text instead of a formula says what is wrong with it.
        if isinstance(read, str):
            problems[name] = read
            forests.append(empty)
        else:
            forests.append(read.forest)
    formulas = FormulaSet(Forest.concatenate(forests), [latex for _, latex in rows])
    return NamedFormulas([name for name, _ in rows], formulas, problems)


def read_json(path: Path, remedy: str) -> Any:
    """Read a JSON file; raises `BadInput`, with the remedy if it is not JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); {remedy}") from error


def make_name(label: str) -> str:
    """Make a name of letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-") or "unnamed"


def import_optional(module: str) -> ModuleType:
    """Import a library of the extra "eval"; raises `BadInput` if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise BadInput(f"{module} is not installed ({error}); `pip install 'eqkin[eval]'`") from error


def normalize_rows(vectors: Matrix) -> Matrix:
    """Divide rows by their lengths; rows of zeros stay."""
    if isinstance(vectors, np.ndarray):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return import_optional("sklearn.preprocessing").normalize(vectors).astype(np.float32)


def compute_products(left: Matrix, right: Matrix) -> Float32s:
    """Compute all inner products of two sets of rows, (left, right)."""
    products = left @ right.T
    if not isinstance(products, np.ndarray):
        products = products.toarray()
    return np.asarray(products, np.float32)
