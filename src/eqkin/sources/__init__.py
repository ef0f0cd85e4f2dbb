"""Read sources of papers; every reader gives `SourceItem`s whose `load` returns a `Paper`."""

from eqkin.sources.arxiv import ArxivClient
from eqkin.sources.eprints import Shard
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Paper, SourceItem
from eqkin.sources.readers import open_source, open_source_shards

__all__ = ["ArxivClient", "MetadataSnapshot", "Paper", "Shard", "SourceItem", "open_source", "open_source_shards"]
