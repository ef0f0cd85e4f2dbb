"""Embedding as work that can be done elsewhere: some trees a task, vectors of unit length as its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from threadpoolctl import threadpool_limits

from eqkin.errors import LimitReached
from eqkin.executors import Work
from eqkin.index.vectors import Floats, Integers, normalise
from eqkin.trees import Forest

if TYPE_CHECKING:
    from eqkin.encoder.model import Model


class Embedder(Protocol):
    """What is needed of `eqkin.Encoder`."""

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
class EmbedTask:
    """Some trees, and their numbers in the library."""

    numbers: Integers
    forest: Forest


class Embedding(Work[EmbedTask, tuple[Integers, Floats]]):
    """Trees become vectors; workers are sent the model, and make it ready once."""

    def __init__(self, encoder: Embedder) -> None:
        self._encoder = encoder

    def do(self, task: EmbedTask, last: bool = True) -> Iterator[tuple[Integers, Floats]]:
        """The numbers of the trees and their vectors, as they come from one thread: the same on every machine."""
        with threadpool_limits(1):
            vectors = normalise(self._encoder.embed(task.forest))
        yield task.numbers, vectors

    def given_up(self, task: EmbedTask, reason: str, message: str) -> Iterator[tuple[Integers, Floats]]:
        """Raises: an index without these vectors would not be whole; those embedded before are kept."""
        raise LimitReached(
            f"trees {task.numbers[0]} to {task.numbers[-1]} could not be embedded ({reason}: {message}); "
            "those before are kept: `eqkin index` goes on"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _load_embedding, (self._encoder.model,)


_cached_embedding: Embedding | None = None  # of this process, if it is a worker


def _load_embedding(model: Model) -> Embedding:
    global _cached_embedding
    if _cached_embedding is None or _cached_embedding._encoder.digest != model.digest:
        from eqkin.encoder.encoder import Encoder

        _cached_embedding = Embedding(Encoder(model))
    return _cached_embedding
