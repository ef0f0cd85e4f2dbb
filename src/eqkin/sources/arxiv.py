"""Papers straight from arXiv: source and metadata, downloaded politely and kept in the cache."""

from __future__ import annotations

import os
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eqkin.errors import BadInput, EqkinError
from eqkin.limits import LIMITS, Limits
from eqkin.sources.archive import read_eprint
from eqkin.sources.arxiv_ids import ArxivId, parse_arxiv_id
from eqkin.sources.atom import parse_feed
from eqkin.sources.cache import get_cache_folder
from eqkin.sources.download import Downloader
from eqkin.sources.files import open_regular, read_capped
from eqkin.sources.metadata import ArxivMetadata, MetadataSnapshot, apply_metadata
from eqkin.sources.paper import Paper, SourceItem

__all__ = ["ArxivClient", "ArxivMetadata", "MetadataSnapshot", "make_arxiv_item", "apply_metadata", "parse_arxiv_id"]

_DEFAULT_API_URL = "https://export.arxiv.org/api/query"
_DEFAULT_EPRINT_URL = "https://export.arxiv.org/e-print"
_MAX_FEED_BYTES = 5_000_000


def _get_api_url() -> str:
    return os.environ.get("EQKIN_ARXIV_API") or _DEFAULT_API_URL


def _get_eprint_url() -> str:
    return os.environ.get("EQKIN_ARXIV_EPRINT") or _DEFAULT_EPRINT_URL


@dataclass(frozen=True)
class ArxivClient:
    """Downloads from arXiv or a mirror of it; can be sent to another process."""

    api: str = field(default_factory=_get_api_url)  # metadata; $EQKIN_ARXIV_API
    eprint: str = field(default_factory=_get_eprint_url)  # sources; $EQKIN_ARXIV_EPRINT
    folder: Path = field(default_factory=lambda: get_cache_folder() / "arxiv")
    delay: float = 3.0  # seconds between two requests, what arXiv asks for
    attempts: int = 5
    deadline: float = 600.0  # seconds one download may take in all
    max_age: float = 30 * 86_400.0  # seconds after which what was asked for without a version is asked for again
    sleep: Callable[[float], None] = time.sleep
    limits: Limits = LIMITS

    def fetch_source(self, arxiv_id: ArxivId) -> Path:
        """File with the e-print as arXiv sends it; raises what `Downloader.fetch` does."""
        address = f"{self.eprint.rstrip('/')}/{arxiv_id.full}"
        return self._fetch_cached(arxiv_id, address, "source", self.limits.download_bytes)

    def fetch_metadata(self, arxiv_id: ArxivId) -> ArxivMetadata:
        """Title, authors, categories and abstract; raises `BadInput` if arXiv does not know the paper."""
        address = f"{self.api}?{urllib.parse.urlencode({'id_list': arxiv_id.full, 'max_results': '1'})}"
        path = self._fetch_cached(arxiv_id, address, "atom", _MAX_FEED_BYTES)
        try:
            metas = parse_feed(read_capped(path, _MAX_FEED_BYTES), address)
            if not metas or metas[0].arxiv_id != arxiv_id.base:
                raise BadInput(f"{address}: arXiv does not know the paper")
        except BadInput:
            path.unlink(missing_ok=True)  # what cannot be read is not worth keeping
            raise
        return metas[0]

    def _fetch_cached(self, arxiv_id: ArxivId, address: str, suffix: str, max_bytes: int) -> Path:
        path = self.folder / f"{arxiv_id.full.replace('/', '_')}.{suffix}"
        if not self._is_fresh(path, arxiv_id):
            downloader = Downloader(
                self.folder,
                delay=self.delay,
                attempts=self.attempts,
                deadline=self.deadline,
                max_bytes=max_bytes,
                sleep=self.sleep,
            )
            downloader.fetch(address, path)
        return path

    def _is_fresh(self, path: Path, arxiv_id: ArxivId) -> bool:
        try:
            age = time.time() - path.stat().st_mtime
        except OSError:
            return False
        return arxiv_id.version > 0 or age < self.max_age


def make_arxiv_item(spec: str, client: ArxivClient) -> SourceItem:
    """The paper an identifier or address names; `BadInput` if it names none. Nothing is downloaded before `load`."""
    arxiv_id = parse_arxiv_id(spec)
    if arxiv_id is None:
        raise BadInput(f"{spec}: is no arXiv identifier; write arxiv:1706.03762 or arxiv:hep-th/9901001")
    return SourceItem(arxiv_id.key, f"arXiv {arxiv_id.full}", partial(_load_arxiv_paper, arxiv_id, client))


def _load_arxiv_paper(arxiv_id: ArxivId, client: ArxivClient) -> Paper:
    path = client.fetch_source(arxiv_id)
    origin = f"https://arxiv.org/abs/{arxiv_id.full}"
    try:
        with open_regular(path) as file:
            paper = read_eprint(file, arxiv_id.key, origin, client.limits)
    except BadInput:
        path.unlink(missing_ok=True)  # perhaps damaged on its way: the next try asks again
        raise
    try:
        return apply_metadata(paper, client.fetch_metadata(arxiv_id))
    except EqkinError as error:
        paper.notes.append(f"no metadata: {error}")
        return paper
