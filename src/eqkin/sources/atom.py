"""arXiv's answers about a paper (Atom), parsed without entities, namespaces or recursion of any kind."""

from __future__ import annotations

import re
from xml.parsers import expat

from eqkin.errors import BadInput
from eqkin.sources.arxiv_ids import parse_arxiv_id
from eqkin.sources.metadata import ArxivMetadata
from eqkin.sources.text import clean_text

_ATOM = "http://www.w3.org/2005/Atom"
_ARXIV = "http://arxiv.org/schemas/atom"
_TEXTS = {
    f"{_ATOM} id": "id",
    f"{_ATOM} title": "title",
    f"{_ATOM} summary": "summary",
    f"{_ATOM} published": "published",
    f"{_ATOM} name": "name",
}


class _FeedParser:
    """Gathers the fields of the entries of a feed."""

    def __init__(self) -> None:
        self.entries: list[dict[str, list[str]]] = []
        self._in_entry = False
        self._field = ""
        self._parts: list[str] = []

    def handle_start(self, name: str, attributes: dict[str, str]) -> None:
        if name == f"{_ATOM} entry":
            self.entries.append({})
            self._in_entry = True
        elif not self._in_entry:
            return
        elif name in _TEXTS:
            self._field, self._parts = _TEXTS[name], []
        elif name == f"{_ARXIV} primary_category":
            self._add_value("primary", attributes.get("term", ""))
        elif name == f"{_ATOM} category":
            self._add_value("category", attributes.get("term", ""))
        elif name == f"{_ATOM} link" and attributes.get("rel") == "license":
            self._add_value("license", attributes.get("href", ""))

    def handle_end(self, name: str) -> None:
        if name == f"{_ATOM} entry":
            self._in_entry = False
        elif self._field and _TEXTS.get(name) == self._field:
            self._add_value(self._field, " ".join("".join(self._parts).split()))
            self._field = ""

    def handle_text(self, text: str) -> None:
        if self._field:
            self._parts.append(text)

    def _add_value(self, name: str, value: str) -> None:
        self.entries[-1].setdefault(name, []).append(clean_text(value))


def _refuse_declaration(*_: object) -> None:
    raise BadInput("the answer declares a document type or entities; such answers are refused")


def parse_feed(raw: bytes, origin: str) -> list[ArxivMetadata]:
    """Metadata of the papers in a feed; raises `BadInput` if it is no feed, or one that reports an error."""
    feed = _FeedParser()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = feed.handle_start
    parser.EndElementHandler = feed.handle_end
    parser.CharacterDataHandler = feed.handle_text
    parser.StartDoctypeDeclHandler = _refuse_declaration
    parser.EntityDeclHandler = _refuse_declaration
    try:
        parser.Parse(raw, True)
    except (expat.ExpatError, BadInput, ValueError, LookupError) as error:
        raise BadInput(f"{origin}: is not a feed that can be read ({error})") from error
    return [_build_metadata(entry, origin) for entry in feed.entries]


def _build_metadata(entry: dict[str, list[str]], origin: str) -> ArxivMetadata:
    def first(name: str) -> str:
        return entry.get(name, [""])[0]

    if "/api/errors" in first("id"):
        raise BadInput(f"{origin}: arXiv answers: {first('summary') or 'error'}")
    arxiv_id = parse_arxiv_id(first("id"))
    fields = [term for term in (*entry.get("primary", []), *entry.get("category", [])) if term]
    year = re.match(r"\d{4}", first("published"))
    return ArxivMetadata(
        arxiv_id=arxiv_id.base if arxiv_id else "",
        title=first("title"),
        authors=tuple(name for name in entry.get("name", []) if name),
        year=int(year.group()) if year else None,
        fields=tuple(dict.fromkeys(fields)),
        abstract=first("summary"),
        license=first("license"),
    )
