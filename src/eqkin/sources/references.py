"""Papers that people have as PDFs or as references: BibTeX, RIS, CSL-JSON and Zotero.

Neither contains formulas that can be read, but their identifiers, or their title and authors, lead to a LaTeX source on
arXiv. Nothing is downloaded unless the client may (`ArxivClient.is_offline`). A paper without a source is kept with its
metadata and a note, so that it is not lost.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import orjson
import rispy  # type: ignore[import-untyped]
from bibtexparser import middlewares
from bibtexparser.entrypoint import parse_string
from bibtexparser.library import Library
from bibtexparser.model import Entry, Field

from eqkin.errors import BadInput, EqkinError
from eqkin.latex.titles import ArxivId, find_arxiv_id, find_doi, find_year, order_name, parse_arxiv_id, parse_file_name
from eqkin.limits import LIMITS
from eqkin.sources.arxiv import ArxivClient, load_arxiv_paper
from eqkin.sources.files import display_path, make_file_key, read_capped
from eqkin.sources.metadata import ArxivMetadata, apply_metadata
from eqkin.sources.paper import Paper, SourceItem, clean_text, decode_text, hash_parts

ZOTERO_DATABASE = Path("Zotero/zotero.sqlite")  # in the home folder, where Zotero puts it
# One file has at most so many.
MAX_REFERENCES = 100_000
# A longer value of Zotero's database is refused.
_MAX_VALUE_BYTES = 1_000_000
_ZOTERO_SECONDS = 60.0
# The beginning of a PDF is searched for identifiers.
_FIRST_PAGE_CHARS = 20_000
# What the formats call the same thing, in lower case; the first that is there counts.
_FIELD_NAMES = {
    "name": ("citation-key", "citationkey", "id", "key"),
    "title": ("title", "primary_title"),
    "date": ("year", "publication_year", "date", "issued"),
    "doi": ("doi", "url", "urls", "extra", "notes"),
}
# To decode other fields would take long.
_BIBTEX_FIELDS = ("eprint", "journal", "url", "doi", "note", "howpublished", "number", "title", "year", "date")
# A field is cut, because decoding LaTeX takes long.
_MAX_BIBTEX_CHARS = 20_000
_ZOTERO_QUERY = """
    SELECT items.key,
        (SELECT json_group_object(fieldName, CAST(value AS TEXT))
            FROM itemData JOIN fields USING (fieldID) JOIN itemDataValues USING (valueID)
            WHERE itemData.itemID = items.itemID),
        (SELECT json_group_array(ifnull(firstName, '') || ' ' || ifnull(lastName, ''))
            FROM (SELECT * FROM itemCreators JOIN creators USING (creatorID)
                WHERE itemID = items.itemID ORDER BY orderIndex))
    FROM items JOIN itemTypes USING (itemTypeID)
    WHERE typeName NOT IN ('attachment', 'note', 'annotation') AND itemID NOT IN (SELECT itemID FROM deletedItems)
    ORDER BY itemID
"""
_RIS_TAG = re.compile(r"[A-Z][A-Z0-9]  -")
_STAMP = re.compile(r"arXiv:\s*\S{7,30}\s*\[")  # at the margin of the first page; other identifiers there are cited
_PLACEHOLDER_TITLE = re.compile(
    r"untitled|microsoft word|\.(?:dvi|tex|docx?|pdf|ps)\s*\Z|\A[\w.-]*\d[\w.-]*\Z", re.IGNORECASE
)

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # damaged entries are counted, not printed
logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)
logging.getLogger("pypdf").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Reference:
    """What is known of a paper without reading it."""

    name: str = ""  # citation key
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int | None = None
    arxiv_id: ArxivId | None = None
    doi: str = ""

    def make_key(self) -> str:
        """Return the key of the paper: by its identifier, or by its title and authors."""
        if self.arxiv_id:
            return self.arxiv_id.key
        return f"doi:{self.doi.lower()}" if self.doi else f"reference:{hash_parts(self.title, *self.authors)[:16]}"


def iter_reference_items(path: Path, client: ArxivClient) -> Iterator[SourceItem]:
    """Yield the entries of a file of references, known by its suffix.

    Raises `BadInput` if it has none that can be read.
    """
    origin = display_path(path)
    format_name, read = _FORMATS[path.suffix.lower()]
    try:
        found = list(dict.fromkeys(islice(read(path), MAX_REFERENCES)))
    except EqkinError:
        raise
    except Exception as error:
        # Parsers raise almost anything for damaged text.
        raise BadInput(f"{origin}: is not {format_name} that can be read ({error})") from error
    if not found:
        raise BadInput(f"{origin}: has no references that can be read")
    client.prefetch_metadata([reference.arxiv_id for reference in found if reference.arxiv_id])
    for reference in found:
        name = f"{origin}: {reference.name or reference.title or reference.doi}"
        key = reference.make_key()
        yield SourceItem(key, name, partial(load_reference, reference, key, name, client))


def make_pdf_item(path: Path, client: ArxivClient) -> SourceItem:
    """Return the paper of a PDF; `load` looks for its identifier."""
    return SourceItem(make_file_key(path), display_path(path), partial(_load_pdf, str(path), client))


def _load_pdf(path: str, client: ArxivClient) -> Paper:
    reference = read_pdf_reference(path)
    key = reference.make_key() if reference.arxiv_id else make_file_key(path)
    return load_reference(reference, key, display_path(path), client)


def load_reference(reference: Reference, key: str, origin: str, client: ArxivClient) -> Paper:
    """Return the paper of a reference from its source on arXiv; one without text and with a note if there is none."""
    paper = Paper(key, "", origin, kind="reference")
    try:
        arxiv_id = reference.arxiv_id or client.find_paper(reference.title, reference.authors)
        paper = replace(load_arxiv_paper(arxiv_id, client), key=key)
    except EqkinError as error:
        paper.missing_source = str(error)
        paper.notes.append(f"no source: {error}")
    # What the user's own entry says wins over arXiv's metadata.
    paper.doi = paper.doi or reference.doi
    paper.cite_key = reference.name
    about = ArxivMetadata("", title=reference.title, authors=reference.authors, year=reference.year)
    return apply_metadata(paper, about)


def read_pdf_reference(path: str) -> Reference:
    """Find the identifier of a PDF in its file name, its first page or its metadata.

    Raises `BadInput` if it is damaged or encrypted, `LimitReached` if it is too large.
    """
    # The import is slow, and few sources are PDFs.
    import pypdf

    name = display_path(path)
    raw = read_capped(path, LIMITS.file_bytes)
    try:
        reader = pypdf.PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise BadInput(f"{name}: is encrypted; give a PDF without a password, or its source")
        page = clean_text(reader.pages[0].extract_text() if len(reader.pages) else "")[:_FIRST_PAGE_CHARS]
        about = {key: clean_text(str(value)) for key, value in (reader.metadata or {}).items()}
    except BadInput:
        raise
    except Exception as error:
        # A damaged PDF raises almost anything.
        raise BadInput(f"{name}: is not a PDF that can be read ({type(error).__name__}: {error})") from error
    stamp = _STAMP.search(page)
    title = " ".join(about.get("/Title", "").split())
    authors = re.split(r"\s*(?:;|,| and )\s*", about.get("/Author", ""))
    return Reference(
        title="" if _PLACEHOLDER_TITLE.search(title) else title or Path(name).stem,
        authors=tuple(author for author in authors if author),
        arxiv_id=parse_file_name(os.path.basename(path)) or _find_id(stamp[0] if stamp else "", *about.values()),
        doi=_find_doi(*about.values(), page),
    )


class _FieldSelector(middlewares.BlockMiddleware):
    """Keeps the beginning of those fields that are read."""

    def transform_entry(self, entry: Entry, library: Library) -> Entry:
        """Return the entry with these fields."""
        wanted = [field for field in entry.fields if field.key.lower() in (*_BIBTEX_FIELDS, "author")]
        entry.fields = [Field(field.key, str(field.value)[:_MAX_BIBTEX_CHARS]) for field in wanted]
        return entry


def _read_bibtex(path: Path) -> Iterator[Reference]:
    decoder = middlewares.LatexDecodingMiddleware(keep_math_mode=True)
    for entry in parse_string(_read_text(path), append_middleware=[_FieldSelector(), decoder]).entries:
        written = {name.lower(): str(field.value) for name, field in entry.fields_dict.items()}
        # The fields that link to the paper are searched for identifiers in this order.
        fields = {name: written.get(name, "") for name in _BIBTEX_FIELDS} | {"key": entry.key}
        fields["title"] = re.sub(r"[{}]", "", fields["title"])
        authors = re.split(r"\s+and\s+", written.get("author", ""))
        yield _build_reference(fields, map(order_name, authors))


def _read_ris(path: Path) -> Iterator[Reference]:
    # The lines of each value are joined here: rispy does it one by one, which takes quadratic time.
    values: list[list[str]] = []
    for line in _read_text(path).splitlines():
        if _RIS_TAG.match(line) or not values:
            values.append([line])
        elif line.strip():
            values[-1].append(line.strip())
    for entry in rispy.loads("\n".join(map(" ".join, values)), skip_unknown_tags=True):
        authors = entry.get("authors") or entry.get("first_authors") or ()
        fields = {name: " ".join(value) if isinstance(value, list) else str(value) for name, value in entry.items()}
        yield _build_reference(fields, map(order_name, authors))


def _read_csl(path: Path) -> Iterator[Reference]:
    entries = orjson.loads(_read_text(path))
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get("title"), str):
            continue
        people = [person for person in entry.get("author") or () if isinstance(person, dict)]
        names = [f"{p.get('given', '')} {p.get('family') or p.get('literal') or ''}" for p in people]
        fields = {name: str(value) for name, value in entry.items() if not isinstance(value, list)}
        yield _build_reference(fields, names)


def _read_zotero(path: Path) -> Iterator[Reference]:
    # Zotero locks its database while it runs: an immutable one is read without locks.
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as database:
        # A table may be a view without end.
        until = time.monotonic() + _ZOTERO_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > until, 100_000)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        for key, about, authors in database.execute(_ZOTERO_QUERY):
            fields = orjson.loads(about) | {"key": key}
            noted = re.search(r"^citation key:\s*(\S+)", fields.get("extra", ""), re.IGNORECASE | re.MULTILINE)
            if noted:
                fields.setdefault("citationKey", noted[1])
            yield _build_reference(fields, orjson.loads(authors))


_FORMATS: dict[str, tuple[str, Callable[[Path], Iterator[Reference]]]] = {
    ".bib": ("BibTeX", _read_bibtex),
    ".ris": ("RIS", _read_ris),
    ".json": ("JSON", _read_csl),
    ".sqlite": ("a Zotero database", _read_zotero),
}


def _read_text(path: Path) -> str:
    return decode_text(read_capped(path, LIMITS.document_bytes))


def _build_reference(written: Mapping[str, str], authors: Iterable[str]) -> Reference:
    """Return the reference with some fields, whatever its format calls them."""
    fields = {name.lower(): " ".join(value.split()) for name, value in written.items()}

    def find_first(role: str) -> str:
        return next((fields[name] for name in _FIELD_NAMES[role] if fields.get(name)), "")

    # A title may name another paper: "Comment on arXiv:1706.03762".
    linked = [value for name, value in fields.items() if name not in _FIELD_NAMES["title"]]
    return Reference(
        name=find_first("name"),
        title=find_first("title"),
        authors=tuple(name for author in authors if (name := " ".join(author.split()))),
        year=find_year(find_first("date")),
        # Under `eprint` stands a bare identifier, elsewhere one that is marked as arXiv's.
        arxiv_id=parse_arxiv_id(fields.get("eprint", "")) or _find_id(*linked),
        doi=_find_doi(*(fields.get(name, "") for name in _FIELD_NAMES["doi"])),
    )


def _find_id(*texts: str) -> ArxivId | None:
    """Return the first arXiv identifier that is marked as one in the texts."""
    return next(filter(None, map(find_arxiv_id, texts)), None)


def _find_doi(*texts: str) -> str:
    dois = filter(None, map(find_doi, texts))
    return next((doi for doi in dois if not doi.lower().startswith("10.48550/arxiv.")), "")
