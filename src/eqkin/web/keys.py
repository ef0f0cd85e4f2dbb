"""Keys of papers as clients of a server see them: without the folders of the server.

The key of a local file is its path. Clients see the hash of its folder instead: `file:/home/anna/papers/waves.tex`
becomes `file:5b7c0a91d2/waves.tex`. Both are understood in requests.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from eqkin.errors import BadInput
from eqkin.library.database import DATABASE_NAME
from eqkin.library.queries import count_equations, find_file_keys
from eqkin.limits import LIMITS
from eqkin.search.backend import Snapshot
from eqkin.search.engine import SearchEngine
from eqkin.search.local import LocalBackend, LocalSnapshot
from eqkin.search.results import (
    EquationRecord,
    FacetCount,
    Hit,
    PaperHit,
    PaperPage,
    PaperRecord,
    Results,
    SearchOptions,
)

T = TypeVar("T")
# Fields of answers that contain records.
_FIELDS_WITH_RECORDS = ("hits", "papers", "fields", "paper", "sections", "pairs")
_PATH_KEY = re.compile(r"file:(.*)[/\\](.*)", re.DOTALL)
_PUBLIC_KEY = re.compile(r"file:([0-9a-f]{10})/([^/\\]+)")


@lru_cache(maxsize=10_000)
def _hash_folder(folder: str) -> str:
    return hashlib.sha256(folder.encode()).hexdigest()[:10]


def hide_folder(key: str) -> str:
    """Return the key of a paper as clients see it."""
    found = _PATH_KEY.fullmatch(key)
    return key if found is None or _PUBLIC_KEY.fullmatch(key) else f"file:{_hash_folder(found[1])}/{found[2]}"


class PublicEngine:
    """A `SearchEngine` whose records have the keys that clients see, and which understands these.

    Collections of a Milvus server keep the keys that were pushed: they cannot be looked up by anything else.
    """

    def __init__(self, engine: SearchEngine) -> None:
        # answers what contains no keys
        self.plain: SearchEngine = engine

    def search(self, query: str, options: SearchOptions) -> Results:
        """Find related equations; see `SearchEngine.search`."""
        return self._show(self.plain.search(query, self._resolve_options(options)))

    def find_similar(self, equation: str, options: SearchOptions) -> Results:
        """Find equations related to one of the collection; see `SearchEngine.find_similar`."""
        with self._resolving(equation, self.resolve_id(equation)) as name:
            return self._show(self.plain.find_similar(name, self._resolve_options(options)))

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput` if there is none."""
        with self._resolving(name, self.resolve_id(name)) as resolved:
            return self._show(self.plain.get_equation(resolved))

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper with its equations by section; raises `BadInput` if there is none."""
        with self._resolving(key, self._resolve_key(key)) as resolved:
            return self._show(self.plain.get_paper(resolved))

    def find_similar_papers(self, key: str, k: int = 10, equations: int = LIMITS.draft_equations) -> list[PaperHit]:
        """Find papers related to one of the collection; see `SearchEngine.find_similar_papers`."""
        with self._resolving(key, self._resolve_key(key)) as resolved:
            return self._show(self.plain.find_similar_papers(resolved, k, equations=equations))

    def has_paper(self, key: str) -> bool:
        """Return whether the collection has a paper."""
        return self.plain.has_paper(self._resolve_key(key))

    def find_papers_similar_to_draft(self, content: bytes, name: str, k: int = 10) -> list[PaperHit]:
        """Find papers related to a draft, which is not kept; its name is that of a file, which says how to read it.

        Raises:
            BadInput: it has no equations.
        """
        if not content.strip():
            raise BadInput("the draft is empty")
        shown = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-100:].lstrip("-.") or "draft.tex"
        with TemporaryDirectory(prefix="eqkin-") as folder:
            path = Path(folder).resolve() / shown
            path.write_bytes(content)
            try:
                hits = self._show(self.plain.find_papers_similar_to_draft(str(path), k))
            except BadInput as error:
                raise BadInput(str(error).replace(f"{path.parent}{os.sep}", "")) from None
        draft = PaperRecord(shown, shown, (), None, (), "")
        found = []
        for hit in hits:
            pairs = []
            for ours, theirs, cosine in hit.pairs:
                number = ours.id.rpartition("#")[2]
                pairs.append((replace(ours, id=f"{shown}#{number}", paper=draft), theirs, cosine))
            found.append(replace(hit, pairs=tuple(pairs)))
        return found

    def describe_library(self, snapshot: Snapshot) -> tuple[int, date | None]:
        """Return the number of papers and the day of the last change; 0 and None for a collection of a server."""
        if not isinstance(snapshot, LocalSnapshot) or not len(snapshot):
            return 0, None
        _, papers = count_equations(snapshot.library)
        changed = (snapshot.library.folder / DATABASE_NAME).stat().st_mtime
        return papers, date.fromtimestamp(changed)

    def show_id(self, name: str) -> str:
        """Return the id of an equation as clients see it."""
        return _hide_in_id(name) if isinstance(self.plain.backend, LocalBackend) else name

    def resolve_id(self, name: str) -> str:
        """Return the id that the collection has for an equation; the same one if there is no such paper."""
        key, mark, number = name.rpartition("#")
        return f"{self._resolve_key(key)}{mark}{number}"

    def _show(self, found: T) -> T:
        return _hide_folders(found) if isinstance(self.plain.backend, LocalBackend) else found

    def _resolve_key(self, key: str) -> str:
        found = _PUBLIC_KEY.fullmatch(key)
        if found is None:
            return key
        with self.plain.backend.snapshot() as snapshot:
            keys = find_file_keys(snapshot.library, found[2]) if isinstance(snapshot, LocalSnapshot) else []
            return next((each for each in keys if hide_folder(each) == key), key)

    def _resolve_options(self, options: SearchOptions) -> SearchOptions:
        papers = tuple(map(self._resolve_key, options.filters.papers))
        without_papers = tuple(map(self._resolve_key, options.filters.without_papers))
        return replace(options, filters=replace(options.filters, papers=papers, without_papers=without_papers))

    @contextmanager
    def _resolving(self, given: str, resolved: str) -> Iterator[str]:
        """Yield what the collection calls something; errors mention what the client has called it."""
        try:
            yield resolved
        except BadInput as error:
            raise BadInput(str(error).replace(resolved, given)) from None


def _hide_in_id(name: str) -> str:
    key, mark, number = name.rpartition("#")
    return f"{hide_folder(key)}{mark}{number}"


def _hide_folders(found: Any) -> Any:
    """Return a record, or a tuple or list of them, with the keys that clients see."""
    if isinstance(found, tuple | list):
        return type(found)(map(_hide_folders, found))
    if isinstance(found, PaperRecord):
        origin = found.origin if "://" in found.origin else re.split(r"[/\\]", found.origin)[-1]
        return replace(found, key=hide_folder(found.key), origin=origin)
    if isinstance(found, EquationRecord):
        whole = None if found.whole is None else _hide_in_id(found.whole)
        return replace(found, id=_hide_in_id(found.id), whole=whole, paper=_hide_folders(found.paper))
    if isinstance(found, Hit):
        duplicates = tuple(map(_hide_in_id, found.duplicates))
        return replace(found, equation=_hide_folders(found.equation), duplicates=duplicates)
    if isinstance(found, FacetCount):
        value = hide_folder(found.value) if isinstance(found.value, str) else found.value
        return replace(found, value=value, best=_hide_folders(found.best))
    if isinstance(found, Results | PaperPage | PaperHit):
        names = [field.name for field in fields(found) if field.name in _FIELDS_WITH_RECORDS]
        return replace(found, **{name: _hide_folders(getattr(found, name)) for name in names})
    return found
