"""Read sources of papers; every reader gives `SourceItem`s whose `load` returns a `Paper`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.sources.arxiv import ArxivClient
    from eqkin.sources.eprints import Shard
    from eqkin.sources.metadata import MetadataSnapshot
    from eqkin.sources.paper import Paper, SourceItem
    from eqkin.sources.readers import open_source, open_source_shards

__all__ = ["ArxivClient", "MetadataSnapshot", "Paper", "Shard", "SourceItem", "open_source", "open_source_shards"]
__getattr__: Callable[[str], Any] = load_lazily(
    __name__,
    {
        "ArxivClient": "eqkin.sources.arxiv",
        "MetadataSnapshot": "eqkin.sources.metadata",
        "Paper": "eqkin.sources.paper",
        "Shard": "eqkin.sources.eprints",
        "SourceItem": "eqkin.sources.paper",
        "open_source": "eqkin.sources.readers",
        "open_source_shards": "eqkin.sources.readers",
    },
)
