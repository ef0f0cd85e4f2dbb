"""Embedding trees with an executor: some trees per task, vectors of unit length as the results."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from threadpoolctl import threadpool_limits

from eqkin.errors import LimitReached
from eqkin.formulas import Forest
from eqkin.index.vectors import Floats, Integers, normalise

if TYPE_CHECKING:
    from eqkin.encoder.model import Model


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
    """Some trees, and their numbers in the library."""

    numbers: Integers
    forest: Forest


class EmbedFunction:
    """Computes vectors of trees. It is sent to a worker as its model, which the worker makes ready once.

    Args:
        encoder: The model.
        one_thread: Use one thread per product, which gives the same bits on every machine.
    """

    def __init__(self, encoder: Embedder, *, one_thread: bool = True) -> None:
        self._encoder, self._one_thread = encoder, one_thread

    def __call__(self, task: TreeTask) -> tuple[Integers, Floats]:
        """Return the numbers of the trees and their vectors."""
        with threadpool_limits(1) if self._one_thread else nullcontext():
            return task.numbers, normalise(self._encoder.embed(task.forest))

    def __reduce__(self) -> tuple[object, ...]:
        return _load_function, (self._encoder.model,)


_loaded: EmbedFunction | None = None  # of this process, if it is a worker


def _load_function(model: Model) -> EmbedFunction:
    global _loaded
    if _loaded is None or _loaded._encoder.digest != model.digest:
        from eqkin.encoder.encoder import Encoder

        _loaded = EmbedFunction(Encoder(model))
    return _loaded


def fail_task(task: TreeTask, reason: str, message: str) -> NoReturn:
    """Raise `LimitReached`: an index without these trees would not be complete."""
    raise LimitReached(
        f"trees {task.numbers[0]} to {task.numbers[-1]} could not be indexed ({reason}: {message}); "
        "the trees before are: `eqkin index` continues there"
    )
