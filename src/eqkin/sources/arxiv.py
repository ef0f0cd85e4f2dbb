"""Papers from arXiv: source and metadata, downloaded politely and kept in the cache."""

from __future__ import annotations

import os
import re
import socket
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError

import orjson
from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.files import write_atomically
from eqkin.latex.titles import ArxivId, parse_arxiv_id
from eqkin.limits import LIMITS
from eqkin.sources.eprints import read_eprint
from eqkin.sources.files import get_cache_folder, lock_file, make_cache_folder, open_regular, read_capped
from eqkin.sources.metadata import ArxivMetadata, apply_metadata
from eqkin.sources.paper import Paper, SourceItem, clean_text, hash_parts

_DEFAULT_API_URL = "https://export.arxiv.org/api/query"
_DEFAULT_EPRINT_URL = "https://export.arxiv.org/e-print"
_MAX_FEED_BYTES = 5_000_000
_ATOM = "{http://www.w3.org/2005/Atom}"
_ARXIV = "{http://arxiv.org/schemas/atom}"
# A server that asks for a longer wait is given up.
_MAX_WAIT_SECONDS = 120.0
# Time that one connection or one read may take.
_TIMEOUT_SECONDS = 60.0
# Metadata of so many papers is asked for at once.
_BATCH_IDS = 100
# A shorter title says too little to be searched for.
_MIN_TITLE_WORDS = 3
# Titles that are as alike as this belong to the same paper.
_MIN_TITLE_LIKENESS = 0.9
_RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class _RetryableError(Exception):
    """A failed attempt that may succeed later; `after` is how many seconds the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class ArxivClient:
    """Downloads from arXiv or a mirror of it, one request at a time across all processes, with retries and limits.

    Can be sent to another process.
    """

    api: str = field(default_factory=lambda: os.environ.get("EQKIN_ARXIV_API") or _DEFAULT_API_URL)
    eprint: str = field(default_factory=lambda: os.environ.get("EQKIN_ARXIV_EPRINT") or _DEFAULT_EPRINT_URL)
    folder: Path = field(default_factory=lambda: get_cache_folder() / "arxiv")  # one file keeps the last request's time
    delay: float = 3.0  # seconds between two requests, as arXiv asks
    attempts: int = 5
    deadline: float = 600.0  # seconds one download may take, waits and further attempts included
    max_age: float = 30 * 86_400.0  # seconds after which a paper without a version is downloaded again
    is_offline: bool = False  # use only what is in the cache
    sleep: Callable[[float], None] = time.sleep

    def fetch_source(self, arxiv_id: ArxivId) -> Path:
        """Return the file with the e-print as arXiv sends it; raises what `download` does."""
        address = f"{self.eprint.rstrip('/')}/{arxiv_id.full}"
        path = self._get_path(arxiv_id.full, "source")
        if not self._is_cached(path, is_fixed=arxiv_id.version > 0):
            self.download(address, path, LIMITS.download_bytes)
        return path

    def fetch_metadata(self, arxiv_id: ArxivId) -> ArxivMetadata:
        """Return title, authors, categories and abstract; raise `BadInput` if arXiv does not know the paper."""
        path = self._get_metadata_path(arxiv_id)
        if not self._is_cached(path, is_fixed=arxiv_id.version > 0):
            self._download_metadata([arxiv_id])
        try:
            return ArxivMetadata(**orjson.loads(read_capped(path, _MAX_FEED_BYTES)))
        except (BadInput, ValueError, TypeError) as error:
            path.unlink(missing_ok=True)
            raise BadInput(f"{arxiv_id.full}: arXiv does not know the paper") from error

    def prefetch_metadata(self, arxiv_ids: Sequence[ArxivId]) -> None:
        """Fetch the metadata of many papers in few requests; what fails is fetched one by one later."""
        if self.is_offline:
            return
        missing = [
            one for one in arxiv_ids if not self._is_cached(self._get_metadata_path(one), is_fixed=one.version > 0)
        ]
        for start in range(0, len(missing), _BATCH_IDS):
            with suppress(EqkinError):
                self._download_metadata(missing[start : start + _BATCH_IDS])

    def _download_metadata(self, arxiv_ids: Sequence[ArxivId]) -> None:
        """Ask for the metadata of some papers at once, and keep what arXiv knows."""
        address = self._make_query(id_list=",".join(one.full for one in arxiv_ids), max_results=str(len(arxiv_ids)))
        feed = self.folder / "metadata.atom"
        self.download(address, feed, _MAX_FEED_BYTES)
        found = {about.arxiv_id: about for about in parse_feed(read_capped(feed, _MAX_FEED_BYTES), address)}
        for arxiv_id in arxiv_ids:
            if arxiv_id.base in found:
                with write_atomically(self._get_metadata_path(arxiv_id)) as path:
                    path.write_bytes(orjson.dumps(found[arxiv_id.base]))

    def _get_metadata_path(self, arxiv_id: ArxivId) -> Path:
        return self._get_path(arxiv_id.full, "json")

    def _make_query(self, **fields: str) -> str:
        return f"{self.api}?{urllib.parse.urlencode(fields)}"

    def find_paper(self, title: str, authors: Sequence[str]) -> ArxivId:
        """Return the paper with a title and one of the authors; raise `BadInput` if arXiv has none."""
        words = _normalise_title(title).split()
        if len(words) < _MIN_TITLE_WORDS:
            raise BadInput("it has no arXiv identifier, and its title is too short to be searched for")
        names = [author.split()[-1] for author in authors if author.split()]
        query = f'ti:"{" ".join(words)}"' + (f" AND au:{names[0]}" if names else "")
        address = self._make_query(search_query=query, max_results="5")
        path = self._get_path("search-" + hash_parts(query), "atom")
        if not self._is_cached(path):
            self.download(address, path, _MAX_FEED_BYTES)
        for found in parse_feed(read_capped(path, _MAX_FEED_BYTES), address):
            likeness = SequenceMatcher(None, _normalise_title(found.title), " ".join(words)).ratio()
            others = {author.split()[-1].casefold() for author in found.authors if author.split()}
            is_shared = not names or any(name.casefold() in others for name in names)
            if likeness >= _MIN_TITLE_LIKENESS and is_shared and (arxiv_id := parse_arxiv_id(found.arxiv_id)):
                return arxiv_id
        raise BadInput("arXiv has no paper with this title and these authors")

    def _get_path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name.replace('/', '_')}.{suffix}"

    def _is_cached(self, path: Path, *, is_fixed: bool = False) -> bool:
        """Return whether a download is there and still holds; raise `BadInput` if it had to be fetched, but may not."""
        try:
            is_fresh = self.is_offline or is_fixed or time.time() - path.stat().st_mtime < self.max_age
        except OSError:
            is_fresh = False
        if is_fresh and path.exists():
            return True
        if self.is_offline:
            raise BadInput("its source was not fetched: `eqkin add --fetch` fetches it from arXiv")
        return False

    def download(self, address: str, target: Path, max_bytes: int) -> None:
        """Download `address` to the file `target`, completely or not at all.

        Raises `BadInput` if there is no such document or the server does not answer, `LimitReached` if it is larger
        than `max_bytes` or takes longer than `deadline`, `StorageFailed` if it cannot be written.
        """
        make_cache_folder(target.parent)
        until = time.monotonic() + self.deadline
        for attempt in range(self.attempts):
            self._wait_for_turn()
            try:
                with write_atomically(target) as path, open(path, "wb") as file:
                    self._fetch(address, file, max_bytes=max_bytes, until=until)
                return
            except _RetryableError as error:
                reason = str(error)
                # The server may say when to come back; if it does not, waits double.
                wait = error.after if error.after is not None else self.delay * 2**attempt
                if attempt + 1 == self.attempts or wait > min(_MAX_WAIT_SECONDS, until - time.monotonic()):
                    break
                self.sleep(wait)
        raise BadInput(f"{address}: no answer after {attempt + 1} attempts ({reason}); try again later")

    def _fetch(self, address: str, file: BinaryIO, *, max_bytes: int, until: float) -> None:
        """Write the answer to a request.

        Raises `BadInput` where another attempt does not help, else `_RetryableError`.
        """
        # The import is slow, and few commands download.
        import httpx

        headers = {"User-Agent": f"eqkin/{metadata.version('eqkin')}", "Accept-Encoding": "identity"}
        received = 0
        try:
            with httpx.stream(
                "GET", address, headers=headers, timeout=_TIMEOUT_SECONDS, follow_redirects=True
            ) as response:
                _check_status(address, response.status_code, response.headers)
                # The declared length is not trusted: what arrives is counted.
                declared = response.headers.get("Content-Length", "")
                expected = int(declared) if declared.isdigit() else 0
                for chunk in response.iter_raw():
                    received += len(chunk)
                    if max(expected, received) > max_bytes:
                        raise LimitReached(f"{address}: the answer is larger than {max_bytes:,} bytes")
                    if time.monotonic() > until:
                        raise LimitReached(f"{address}: the download takes longer than {self.deadline:,.0f} seconds")
                    file.write(chunk)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
            raise BadInput(f"{address}: is not a web address ({error})") from error
        except httpx.HTTPError as error:
            # Waiting does not help against an unknown name.
            reason: BaseException | None = error
            while reason and not isinstance(reason, socket.gaierror):
                reason = reason.__context__
            if reason:
                raise BadInput(f"{address}: the server's name is not known; is there a network?") from error
            raise _RetryableError(str(error) or type(error).__name__) from error

    def _wait_for_turn(self) -> None:
        """Return when `delay` seconds have passed since the last request of any process that shares the folder."""
        if self.delay <= 0:
            return
        with lock_file(make_cache_folder(self.folder) / "last-request") as file:
            file.seek(0)
            try:
                passed = time.time() - float(file.read(40))
            except ValueError:
                passed = self.delay
            # A clock that was set back never makes the wait longer than `delay`.
            self.sleep(min(max(self.delay - passed, 0.0), self.delay))
            file.seek(0)
            file.truncate()
            file.write(repr(time.time()).encode())


def _check_status(address: str, status: int, headers: Mapping[str, str]) -> None:
    if status in _RETRY_STATUSES:
        after = headers.get("Retry-After", "")
        raise _RetryableError(f"status {status}", float(after) if after.isdigit() else None)
    if status >= 400:
        what = "there is no such paper" if status in (400, 404, 410) else f"status {status}"
        raise BadInput(f"{address}: {what}")


def make_arxiv_item(spec: str, client: ArxivClient) -> SourceItem:
    """Return the paper with an identifier or address; `load` downloads it. Raises `BadInput` if it is neither."""
    arxiv_id = parse_arxiv_id(spec)
    if arxiv_id is None:
        raise BadInput(f"{spec}: is not an arXiv identifier; write arxiv:1706.03762 or arxiv:hep-th/9901001")
    return SourceItem(arxiv_id.key, f"arXiv {arxiv_id.full}", partial(load_arxiv_paper, arxiv_id, client))


def load_arxiv_paper(arxiv_id: ArxivId, client: ArxivClient) -> Paper:
    """Return a paper with its metadata; raises `BadInput` or `LimitReached`."""
    path = client.fetch_source(arxiv_id)
    origin = f"https://arxiv.org/abs/{arxiv_id.full}"
    try:
        with open_regular(path) as file:
            paper = read_eprint(file, arxiv_id.key, origin)
    except BadInput:
        # It may have been damaged on its way: the next try downloads it again.
        path.unlink(missing_ok=True)
        raise
    try:
        return apply_metadata(paper, client.fetch_metadata(arxiv_id))
    except EqkinError as error:
        paper.notes.append(f"no metadata: {error}")
        return paper


def parse_feed(raw: bytes, origin: str) -> list[ArxivMetadata]:
    """Return the metadata of the papers in an Atom feed; raise `BadInput` for other input or a reported error."""
    try:
        root: Element = fromstring(raw, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise BadInput(f"{origin}: is not a feed that can be read ({error!r})") from error
    return [_parse_entry(entry, origin) for entry in root.iter(f"{_ATOM}entry")]


def _parse_entry(entry: Element, origin: str) -> ArxivMetadata:
    def find_texts(tag: str) -> list[str]:
        return [clean_text(" ".join("".join(element.itertext()).split())) for element in entry.iter(_ATOM + tag)]

    def find_first(tag: str) -> str:
        return next(iter(find_texts(tag)), "")

    if "/api/errors" in find_first("id"):
        raise BadInput(f"{origin}: arXiv answers: {find_first('summary') or 'error'}")
    arxiv_id = parse_arxiv_id(find_first("id"))
    categories = [*entry.iter(f"{_ARXIV}primary_category"), *entry.iter(f"{_ATOM}category")]
    licenses = [link.get("href", "") for link in entry.iter(f"{_ATOM}link") if link.get("rel") == "license"]
    year = re.match(r"\d{4}", find_first("published"))
    return ArxivMetadata(
        arxiv_id=arxiv_id.base if arxiv_id else "",
        title=find_first("title"),
        authors=tuple(name for name in find_texts("name") if name),
        year=int(year.group()) if year else None,
        fields=tuple(dict.fromkeys(clean_text(term) for c in categories if (term := c.get("term")))),
        abstract=find_first("summary"),
        license=clean_text(licenses[0]) if licenses else "",
    )


def _normalise_title(title: str) -> str:
    return " ".join(re.sub(r"\$[^$]*\$|[^\w\s]", " ", title.casefold()).split())
