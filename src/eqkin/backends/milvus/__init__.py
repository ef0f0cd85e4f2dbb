"""Serving from Milvus: push a library into a collection, and search that collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqkin.backends.milvus.snapshot import MilvusBackend

__all__ = ["open_backend"]


def open_backend(uri: str, collection: str, model_digest: str) -> MilvusBackend:
    """Open a collection for queries of a model; its state is read before this returns.

    Raises:
        BadInput: there is no such collection, another model made it, or pymilvus is not installed.
        Unreachable: the server does not answer.
    """
    from eqkin.backends.milvus.snapshot import MilvusBackend

    backend = MilvusBackend(uri, collection, model_digest)
    backend.get_state()
    return backend
