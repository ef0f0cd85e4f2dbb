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
import shutil
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
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
_MAX_FIELDS = 20 * MAX_REFERENCES
# A longer value of Zotero's database is refused.
_MAX_VALUE_BYTES = 1_000_000
_ZOTERO_SECONDS = 60.0
# The beginning of a PDF is searched for identifiers.
_FIRST_PAGE_CHARS = 20_000
_BIBTEX_LINKS = ("eprint", "journal", "url", "doi", "note", "howpublished", "number")
_BIBTEX_FIELDS = frozenset((*_BIBTEX_LINKS, "title", "author", "year", "date"))  # to decode others would take long
# A field is cut, because decoding LaTeX takes long.
_MAX_BIBTEX_CHARS = 20_000
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
    if path.suffix.lower() == ".sqlite":
        references = _read_zotero(path)
    else:
        text = decode_text(read_capped(path, LIMITS.document_bytes))
        format_name, parse = _PARSERS[path.suffix.lower()]
        try:
            references = iter(list(islice(parse(text), MAX_REFERENCES)))
        except Exception as error:
            # Parsers raise almost anything for damaged text.
            raise BadInput(f"{origin}: is not {format_name} that can be read ({error})") from error
    found = list(dict.fromkeys(islice(references, MAX_REFERENCES)))
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
        wanted = [field for field in entry.fields if field.key.lower() in _BIBTEX_FIELDS]
        entry.fields = [Field(field.key, str(field.value)[:_MAX_BIBTEX_CHARS]) for field in wanted]
        return entry


def _read_bibtex(text: str) -> Iterator[Reference]:
    decoder = middlewares.LatexDecodingMiddleware(keep_math_mode=True)
    parsed = parse_string(text, append_middleware=[_FieldSelector(), decoder])
    for entry in parsed.entries:
        fields: defaultdict[str, str] = defaultdict(str)
        fields.update({name.lower(): " ".join(str(field.value).split()) for name, field in entry.fields_dict.items()})
        linked = [fields[name] for name in _BIBTEX_LINKS]
        yield Reference(
            name=entry.key,
            title=re.sub(r"[{}]", "", fields["title"]),
            authors=tuple(order_name(name) for name in re.split(r"\s+and\s+", fields["author"]) if name),
            year=find_year(fields["year"] or fields["date"]),
            # Under `eprint` stands a bare identifier, elsewhere one that is marked as arXiv's.
            arxiv_id=parse_arxiv_id(fields["eprint"]) or _find_id(*linked),
            doi=_find_doi(fields["doi"], fields["url"]),
        )


def _read_ris(text: str) -> Iterator[Reference]:
    # The lines of each value are joined here: rispy does it one by one, which takes quadratic time.
    values: list[list[str]] = []
    for line in text.splitlines():
        if _RIS_TAG.match(line) or not values:
            values.append([line])
        elif line.strip():
            values[-1].append(line.strip())
    for entry in rispy.loads("\n".join(map(" ".join, values)), skip_unknown_tags=True):
        strings = [part for value in entry.values() for part in (value if isinstance(value, list) else [value])]
        searched = [part for part in strings if isinstance(part, str)]
        yield Reference(
            name=str(entry.get("id", "")),
            title=str(entry.get("title") or entry.get("primary_title") or ""),
            authors=tuple(map(order_name, entry.get("authors") or entry.get("first_authors") or ())),
            year=find_year(str(entry.get("year") or entry.get("publication_year") or entry.get("date") or "")),
            arxiv_id=_find_id(*searched),
            doi=_find_doi(str(entry.get("doi", "")), *searched),
        )


def _read_csl(text: str) -> Iterator[Reference]:
    entries = orjson.loads(text)
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get("title"), str):
            continue
        people = [person for person in entry.get("author") or () if isinstance(person, dict)]
        names = [f"{p.get('given', '')} {p.get('family') or p.get('literal') or ''}".strip() for p in people]
        yield Reference(
            name=str(entry.get("citation-key") or entry.get("id") or ""),
            title=" ".join(entry["title"].split()),
            authors=tuple(filter(None, names)),
            year=find_year(str(entry["issued"]) if isinstance(entry.get("issued"), dict) else ""),
            arxiv_id=_find_id(*(value for value in entry.values() if isinstance(value, str))),
            doi=_find_doi(str(entry.get("DOI", "")), str(entry.get("URL", ""))),
        )


_PARSERS: dict[str, tuple[str, Callable[[str], Iterator[Reference]]]] = {
    ".bib": ("BibTeX", _read_bibtex),
    ".ris": ("RIS", _read_ris),
    ".json": ("JSON", _read_csl),
}


def _read_zotero(path: Path) -> Iterator[Reference]:
    """Read the items of Zotero's database from a copy: Zotero locks it while it runs."""
    with tempfile.TemporaryDirectory(prefix="eqkin-zotero-") as folder:
        copy = Path(folder) / "zotero.sqlite"
        try:
            shutil.copyfile(path, copy)
            with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True)) as database:
                # A table may be a view without end.
                until = time.monotonic() + _ZOTERO_SECONDS
                database.set_progress_handler(lambda: time.monotonic() > until, 100_000)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
                yield from _select_zotero_items(database)
        except (OSError, sqlite3.Error) as error:
            raise BadInput(f"{display_path(path)}: is not a Zotero database that can be read ({error})") from error


def _select_zotero_items(database: sqlite3.Connection) -> Iterator[Reference]:
    fields: dict[int, dict[str, str]] = {}
    rows = database.execute(
        "SELECT itemID, fieldName, value FROM itemData JOIN fields USING (fieldID) JOIN itemDataValues USING (valueID)"
    )
    for item, field, value in islice(rows, _MAX_FIELDS):
        fields.setdefault(item, {})[field] = str(value)
    authors: dict[int, list[str]] = {}
    rows = database.execute(
        "SELECT itemID, firstName, lastName FROM itemCreators JOIN creators USING (creatorID)"
        " ORDER BY itemID, orderIndex"
    )
    for item, first, last in islice(rows, _MAX_FIELDS):
        authors.setdefault(item, []).append(f"{first or ''} {last or ''}".strip())
    for item, key in database.execute(
        "SELECT itemID, items.key FROM items JOIN itemTypes USING (itemTypeID) WHERE typeName NOT IN"
        " ('attachment', 'note', 'annotation') AND itemID NOT IN (SELECT itemID FROM deletedItems) ORDER BY itemID"
    ):
        about = fields.get(item, {})
        noted = re.search(r"^citation key:\s*(\S+)", about.get("extra", ""), re.IGNORECASE | re.MULTILINE)
        yield Reference(
            name=about.get("citationKey") or (noted[1] if noted else key),
            title=" ".join(about.get("title", "").split()),
            authors=tuple(authors.get(item, ())),
            year=find_year(about.get("date", "")),
            arxiv_id=_find_id(*about.values()),
            doi=_find_doi(about.get("DOI", ""), about.get("url", ""), about.get("extra", "")),
        )


def _find_id(*texts: str) -> ArxivId | None:
    """Return the first arXiv identifier that is marked as one in the texts."""
    return next(filter(None, map(find_arxiv_id, texts)), None)


def _find_doi(*texts: str) -> str:
    dois = filter(None, map(find_doi, texts))
    return next((doi for doi in dois if not doi.lower().startswith("10.48550/arxiv.")), "")
