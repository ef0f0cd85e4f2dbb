"""Serving from Milvus: a library pushed into a collection, and that collection as a store to search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqkin.backends.milvus.schema import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from eqkin.backends.milvus.judgements import MilvusJudgements
    from eqkin.backends.milvus.store import MilvusBackend

__all__ = ["DEFAULT_COLLECTION", "open_judgements", "open_backend"]


def open_backend(uri: str, collection: str, model_digest: str) -> MilvusBackend:
    """A collection to search, for queries of a model; it is looked at before this returns.

    Raises:
        BadInput: there is no such collection, it is of another model, or pymilvus is not installed.
        Unreachable: the server does not answer.
    """
    from eqkin.backends.milvus.store import MilvusBackend

    store = MilvusBackend(uri, collection, model_digest)
    store.get_state()
    return store


def open_judgements(uri: str, collection: str) -> MilvusJudgements:
    """What people say of the results of a collection, kept beside it."""
    from eqkin.backends.milvus.judgements import MilvusJudgements

    return MilvusJudgements(uri, collection)
