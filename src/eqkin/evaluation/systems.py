"""What is compared: eqkin's engine and networks, a baseline, and systems of users, behind one small interface."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE
from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import Node, to_forest
from eqkin.search import candidates
from eqkin.search.query import FormulaReader

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Float32s: TypeAlias = npt.NDArray[np.float32]
Matrix: TypeAlias = "Float32s | csr_matrix"
# Commands, numbers and other characters of LaTeX; braces of groups and blanks say nothing.
_LATEX_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+|[^\s{}]")
_MAX_NGRAM = 3
# Where `eqkin train` writes the network of a run.
_MODEL_SUBFOLDER = "model"


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


class System(ABC):
    """Something that says how related formulas are.

    Attributes:
        name: Short name for options and files: letters, digits and hyphens.
        title: Name for tables.
        needs_latex: Whether it reads LaTeX rather than trees.
        tuned_on: Names of sets that it was trained or chosen on: its scores there are too good.
    """

    name: str
    title: str
    needs_latex: bool = False
    tuned_on: tuple[str, ...] = ()

    @abstractmethod
    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score each formula for each query, (queries, formulas); larger is more related."""

    def list_warnings(self, sets: Sequence[str]) -> list[str]:
        """List warnings about its scores on some sets, given by their names."""
        tuned = ", ".join(name for name in sets if name in self.tuned_on)
        return [f"{self.title}: trained or tuned on {tuned}; its scores there are too good."] if tuned else []


class EmbeddingSystem(System):
    """A system that gives each formula a vector and compares vectors by cosine."""

    @abstractmethod
    def encode(self, formulas: FormulaSet) -> Matrix:
        """Compute a vector for each formula, dense or sparse, of any length."""

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute the cosine of each query's vector and each formula's."""
        return compute_products(normalize_rows(self.encode(queries)), normalize_rows(self.encode(formulas)))


class CustomSystem(System):
    """A user's own system: an object with `encode(formulas)` or `rank(queries, formulas)`, or a function like `rank`.

    Formulas are lists of LaTeX. `encode` returns one vector per row, which are compared by cosine; `rank` returns
    scores of shape (queries, formulas), the larger the better.
    """

    needs_latex = True

    def __init__(self, own: Any) -> None:
        label = str(getattr(own, "name", "") or getattr(own, "__name__", "") or type(own).__name__)
        self.name: str = make_name(label)
        self.title: str = str(getattr(own, "title", label))
        self._own = own

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score formulas as the user's system does."""
        asked = list(queries.latex or ())
        ranked = list(formulas.latex or ())
        if hasattr(self._own, "encode") and not hasattr(self._own, "rank"):
            left, right = (self._own.encode(latex) for latex in (asked, ranked))
            # A sparse matrix stays one.
            if not hasattr(left, "tocsr"):
                left = np.asarray(left, np.float32)
                right = np.asarray(right, np.float32)
            return compute_products(normalize_rows(left), normalize_rows(right))
        rank = getattr(self._own, "rank", self._own)
        return np.asarray(rank(asked, ranked), np.float32)


class NetworkSystem(EmbeddingSystem):
    """A trained network.

    Args:
        name: Name for options and files.
        title: Name for tables.
        folder: Folder of the model, or the name of a bundled one; see `Encoder.load`.

    Raises:
        BadInput: The folder has no model.
        CorruptData: The model is damaged.
    """

    def __init__(self, name: str, title: str, folder: Path | str | None = None) -> None:
        self.name: str = name
        self.title: str = title
        self._encoder = Encoder.load(folder)

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Compute vectors, (formulas, dimensions)."""
        return self._encoder.embed(formulas.forest)


class EngineSystem(System):
    """The ranking of `eqkin search` and `eqkin rank`: common terms of both kinds of trees, and vectors.

    Args:
        folder: Folder of the network, or the name of a bundled one; see `Encoder.load`.
    """

    name = "eqkin"
    title = "eqkin"
    # Its weights and its network were chosen by these.
    tuned_on: tuple[str, ...] = (
        "arqmath-dev", "arqmath2-part", "arqmath3-part", "laws-dev", "named", "wikidata-multi", "atlas", "notations",
    )  # fmt: skip

    def __init__(self, folder: Path | str | None = None) -> None:
        self.vector: NetworkSystem = NetworkSystem("eqkin-vector", "eqkin, vector alone", folder)
        self.vector.tuned_on = self.tuned_on

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score formulas as the engine does; within one collection, a formula is not a candidate for itself."""
        vectors = self._encode_unit(formulas)
        if queries is formulas:
            return candidates.compare_within(formulas.forest, vectors)
        return candidates.compare_collections(queries.forest, self._encode_unit(queries), formulas.forest, vectors)

    def _encode_unit(self, formulas: FormulaSet) -> Float32s:
        return cast(Float32s, normalize_rows(self.vector.encode(formulas)))


class TfIdf(System):
    """A system that compares log tf-idf weights of terms by cosine; the collection is what is ranked."""

    @abstractmethod
    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List the terms of each formula, each as often as it occurs."""

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute cosines, weighted by the frequencies in the formulas."""
        text = import_optional("sklearn.feature_extraction.text")
        weights = text.TfidfVectorizer(analyzer=_get_terms, sublinear_tf=True)
        ranked = weights.fit_transform(self.list_terms(formulas))
        asked = weights.transform(self.list_terms(queries))
        return compute_products(asked, ranked)


def _get_terms(terms: list[str]) -> list[str]:
    """Return the terms of a formula, which are listed already."""
    return terms


class TfIdfLatex(TfIdf):
    """N-grams of LaTeX tokens."""

    name = "tfidf-latex"
    title = "TF-IDF, 1-3-grams of LaTeX"
    needs_latex = True
    # Ten ways to tokenise LaTeX were tried there.
    tuned_on: tuple[str, ...] = ("arqmath-dev",)

    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List n-grams; raises `BadInput` if there is no LaTeX."""
        if formulas.latex is None:
            raise BadInput(f"{self.name} needs LaTeX, and these formulas are trees only")
        return [list_ngrams(_LATEX_TOKEN.findall(latex)) for latex in formulas.latex]


def list_ngrams(tokens: Sequence[str]) -> list[str]:
    """List the runs of up to three tokens."""
    return [
        " ".join(tokens[start : start + length])
        for length in range(1, _MAX_NGRAM + 1)
        for start in range(len(tokens) - length + 1)
    ]


# What `--systems` takes besides folders of networks; research/ has more.
SYSTEMS: Mapping[str, Callable[[], System]] = {
    "eqkin": EngineSystem,
    "eqkin-vector": lambda: EngineSystem().vector,
    "paper": lambda: NetworkSystem("paper", "Graph network (bundled)", "paper"),
    "tfidf-latex": TfIdfLatex,
}


def make_systems(systems: Sequence[Any], known: Mapping[str, Callable[[], System]] = SYSTEMS) -> list[System]:
    """Make systems to compare.

    Args:
        systems: Each is a name, a folder that holds a network, also as `model/`, as runs of `eqkin train` do, a
            `System`, or what `CustomSystem` takes: an instance, a class or a function.
        known: Functions that make systems, by name.

    Raises:
        BadInput: A name is unknown or occurs twice, or what a system needs is not installed.
    """
    made: list[System] = []
    for one in systems:
        if isinstance(one, str | os.PathLike):
            name = os.fspath(one)
            made.append(known[name]() if name in known else _load_network(Path(name), known))
        else:
            own = one() if isinstance(one, type) else one
            made.append(own if isinstance(own, System) else CustomSystem(own))
    names = [system.name for system in made]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two systems are called {name}: rename the folder of one")
    return made


def _load_network(folder: Path, known: Mapping[str, Any]) -> NetworkSystem:
    label = make_name(folder.resolve().name)
    if (folder / _MODEL_SUBFOLDER / DESCRIPTION_FILE).is_file():
        folder /= _MODEL_SUBFOLDER
    elif label == _MODEL_SUBFOLDER:
        # All runs have a folder of this name: the run's own name says more.
        label = make_name(folder.resolve().parent.name)
    if not (folder / DESCRIPTION_FILE).is_file():
        raise BadInput(
            f"unknown system {str(folder)!r}; choose from {', '.join(known)}, or a folder that holds a model"
        )
    return NetworkSystem(label, label, folder)
