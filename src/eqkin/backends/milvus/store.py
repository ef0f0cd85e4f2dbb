"""`MilvusStore`: a collection on a Milvus server as a `Store`, shared by threads; this machine keeps nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eqkin.backends.milvus import documents
from eqkin.backends.milvus.connection import MilvusConnection, NoSuchCollection
from eqkin.backends.milvus.desk import MilvusSnapshot
from eqkin.backends.milvus.keys import SUMMARY_KEY
from eqkin.backends.milvus.schema import (
    DEFAULT_COLLECTION,
    CollectionInfo,
    ServerFeatures,
    check_model,
    check_name,
    read_info,
)
from eqkin.errors import BadInput, Unreachable

_STATE_SECONDS = 5.0  # seconds for which what is known of a collection is taken to be true


@dataclass(frozen=True)
class CollectionState:
    """What is known of a collection."""

    origin: CollectionInfo
    able: ServerFeatures
    equations: int
    about: dict[str, Any]  # what the last push that came to its end said

    @property
    def version(self) -> tuple[int, str]:
        """Another value whenever the collection may have changed."""
        return self.equations, str(self.about.get("time", ""))


class MilvusBackend:
    """A collection, for queries of a model.

    The first desk connects; one that comes when the server is away raises `Unreachable`, the next one tries again.

    Args:
        uri: the server's address, see `eqkin.backends.milvus.connection.Connection`.
        collection: its name.
        model: digest of the network that queries are embedded with.

    Raises:
        BadInput: the address or the name is none, or pymilvus is not installed.
    """

    def __init__(self, uri: str, collection: str = DEFAULT_COLLECTION, model: str = "") -> None:
        self.connection = MilvusConnection(uri)
        self.collection, self.model = check_name(collection), model
        self._state: tuple[float, CollectionState] | None = None
        self._looking = threading.Lock()

    @contextmanager
    def snapshot(self) -> Iterator[MilvusSnapshot]:
        """A desk to read at; raises `Unreachable` if the server does not answer, or its collection is not ours."""
        try:
            state = self.get_state()
        except BadInput as error:  # nothing that whoever searches could mend
            raise Unreachable(str(error)) from error
        try:
            yield MilvusSnapshot(self.connection, self.collection, state)
        except NoSuchCollection as error:  # dropped since it was looked at
            with self._looking:
                self._state = None
            raise Unreachable(str(error)) from error

    def get_state(self) -> CollectionState:
        """What is known of the collection, asked again every few seconds: another one may have taken its place.

        Raises:
            BadInput: there is no such collection, or it is of another model.
            Unreachable: the server does not answer.
        """
        with self._looking:
            now = time.monotonic()
            if self._state is None or now - self._state[0] > _STATE_SECONDS:
                self._state = None
                self._state = now, self._read_state()
            return self._state[1]

    def close(self) -> None:
        """Let the connection go."""
        self.connection.close()

    def _read_state(self) -> CollectionState:
        origin = read_info(self.connection, self.collection)
        check_model(self.connection, self.collection, origin, self.model)
        about = documents.read_records(self.connection, self.collection, [SUMMARY_KEY]).get(SUMMARY_KEY) or {}
        equations = documents.count_rows(self.connection, self.collection)
        return CollectionState(origin, ServerFeatures.detect(self.connection), equations, about)
