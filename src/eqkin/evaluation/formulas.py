"""Formulas as evaluations take them: trees with LaTeX and names, how they are read, and products of their vectors."""

from __future__ import annotations

import hashlib
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
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import to_bytes
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
    latex: Sequence[str] | None = None  # one for each tree

    def __len__(self) -> int:
        return len(self.forest)

    def select(self, indices: npt.NDArray[np.int64]) -> FormulaSet:
        """Return some of the formulas, in the given order."""
        latex = None if self.latex is None else [self.latex[index] for index in indices.tolist()]
        return FormulaSet(self.forest.select(indices), latex)


@dataclass(frozen=True, eq=False)
class NamedFormulas:
    """Formulas of a collection. An unreadable one has a tree of one empty row, so that every name has a tree."""

    names: Sequence[str]
    formulas: FormulaSet
    problems: dict[str, str] = field(default_factory=dict)  # why a formula cannot be read, by its name

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def readable(self) -> npt.NDArray[np.bool_]:
        """Mask of the formulas that could be read."""
        return np.array([name not in self.problems for name in self.names], bool)

    @cached_property
    def digest(self) -> str:
        """Digest of names, LaTeX and trees."""
        content = [list(self.names), list(self.formulas.latex or ()), sorted(self.problems)]
        return hashlib.sha256(orjson.dumps(content) + to_bytes(self.formulas.forest.canonicalise())).hexdigest()[:16]


def read_formulas(table: Iterable[tuple[str, str]], reader: FormulaReader | None = None) -> NamedFormulas:
    """Read named LaTeX or MathML formulas, each by itself, as the search reads a query."""
    rows, problems, builder = list(table), dict[str, str](), ForestBuilder()
    reader = reader or FormulaReader()
    empty = to_forest(Node("mrow"))
    for (name, _), read in zip(rows, reader.iter_formulas((t for _, t in rows), wildcards=False), strict=True):
        if isinstance(read, str):
            problems[name] = read
        builder.add_forest(empty if isinstance(read, str) else read.forest)
    formulas = FormulaSet(builder.build(), [latex for _, latex in rows])
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
    """Import a library of the extras "eval" or "train"; raises `BadInput` if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = "train" if module == "torch" else "eval"
        raise BadInput(f"{module} is not installed ({error}); `pip install 'eqkin[{extra}]'`") from error


def normalize_rows(vectors: Matrix) -> Matrix:
    """Divide rows by their lengths; rows of zeros stay."""
    if isinstance(vectors, np.ndarray):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    from sklearn.preprocessing import normalize

    return normalize(vectors).astype(np.float32)


def compute_products(left: Matrix, right: Matrix) -> Float32s:
    """Compute all inner products of two sets of rows, (left, right)."""
    result = left @ right.T
    return np.asarray(result if isinstance(result, np.ndarray) else result.toarray(), np.float32)
