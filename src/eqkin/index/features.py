"""What is indexed of an equation: its vector, and the terms of its operator tree with their norms.

The families of terms are chosen in one place, `extract_terms_and_norms`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from eqkin.errors import LimitReached
from eqkin.formulas import Forest
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import compute_norms, encode_norms, extract_terms, load_bundled_frequencies, weigh_terms

if TYPE_CHECKING:
    from eqkin.encoder.model import Model

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.uint32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

# Raise this when operator trees, the terms of a tree, their codes, or the indexed families change.
TERM_SCHEME = 8
# How much the size of a formula counts against it, and a number of nodes that is added to every size.
_LENGTH_PIVOT = np.float32(0.35)
_LENGTH_OFFSET = np.float32(5)


class Embedder(Protocol):
    """The part of `eqkin.Encoder` that is needed here."""

    @property
    def digest(self) -> str:
        """Identifies the model."""

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""

    @property
    def model(self) -> Model:
        """The model itself, which can be sent to another process."""

    def embed(self, forest: Forest) -> Floats:
        """Vectors of trees."""


@dataclass(frozen=True)
class TreeTask:
    """Presentation and operator trees of some equations, and their keys in the library."""

    keys: Integers
    forest: Forest
    operators: OperatorForest


@dataclass(frozen=True, kw_only=True)
class TreeFeatures:
    """What is indexed of some equations."""

    keys: Integers
    vectors: Floats  # (equations, dimensions) of length one
    term_starts: Integers  # (equations + 1,) first term of each
    codes: Codes  # (terms,)
    norms: Bytes  # (equations, families) as `encode_norms` makes them
    operators: OperatorForest


class FeatureExtractor:
    """Computes the features of equations. It is sent to a worker as its model, which the worker makes ready once.

    Args:
        encoder: The model.
        one_thread: Use one thread per product, which gives the same bits on every machine.
    """

    def __init__(self, encoder: Embedder, *, one_thread: bool = True) -> None:
        self._encoder = encoder
        self._one_thread = one_thread

    def __call__(self, task: TreeTask) -> TreeFeatures:
        """Return the features of the task's equations."""
        with threadpool_limits(1) if self._one_thread else nullcontext():
            vectors = normalise(self._encoder.embed(task.forest))
        term_starts, codes, norms = extract_terms_and_norms(task.operators)
        # A copy without cached properties, which need not be sent to the writer.
        operators = replace(task.operators)
        return TreeFeatures(
            keys=task.keys, vectors=vectors, term_starts=term_starts, codes=codes, norms=norms, operators=operators
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _load_extractor, (self._encoder.model,)


# The extractor of this process, if it is a worker.
_loaded: FeatureExtractor | None = None


def _load_extractor(model: Model) -> FeatureExtractor:
    global _loaded
    if _loaded is None or _loaded._encoder.digest != model.digest:
        from eqkin.encoder.encoder import Encoder

        _loaded = FeatureExtractor(Encoder(model))
    return _loaded


def extract_terms_and_norms(operators: OperatorForest) -> tuple[Integers, Codes, Bytes]:
    """Return the first term of each tree and the codes of all terms, and the norms that ranking needs."""
    terms = extract_terms(operators)
    norms = compute_norms(terms, weigh_terms(terms, load_bundled_frequencies()))
    return terms.offsets, terms.code, encode_norms(norms.T)


def fail_task(task: TreeTask, reason: str, message: str) -> NoReturn:
    """Raise `LimitReached`: an index without these equations would not be complete."""
    raise LimitReached(
        f"trees {task.keys[0]} to {task.keys[-1]} could not be indexed ({reason}: {message}); "
        "the trees before are: `eqkin index` continues there"
    )


def normalise(vectors: Floats) -> Floats:
    """Return vectors of length one; a vector without direction (zero or not finite) becomes zero."""
    # In 64 bits, squares neither overflow nor vanish.
    exact = np.asarray(vectors, np.float64)
    with np.errstate(invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        usable = np.isfinite(lengths) & (lengths > 0)
        unit: Floats = np.where(usable, exact / np.where(usable, lengths, 1), 0).astype(np.float32)
    return unit


def normalise_length(nodes: npt.NDArray[Any]) -> Floats:
    """Return by what total weights of terms are multiplied, given numbers of nodes of operator trees."""
    factors: Floats = (nodes.astype(np.float32) + _LENGTH_OFFSET) ** -_LENGTH_PIVOT
    return factors
