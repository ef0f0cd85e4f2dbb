"""Full-text search over the sections of a library, and the names that its text gives to equations, with tantivy.

Every section is a document. Its heading, and title and abstract of its paper, are repeated in its one field of words,
so that a word there counts more. Boosted fields would be a trap: their scores are computed field by field and added up.
Every equation with a name (`eqkin.latex.names`) is a document too.

tantivy writes immutable files, but neither its commit nor its files are checked when they are opened. So each change
makes a new folder: it links the files that stay, adds new ones, and only then `index.json` names the folder and the
hash of every file in it. A process killed before that leaves the old folder as it was.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from hashlib import sha256
from math import log
from pathlib import Path

import tantivy
from tantivy import Document, Filter, Occur, Query, SchemaBuilder, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from eqkin.atlas import load_names
from eqkin.errors import BadInput, CorruptData, EqkinError, StorageFailed
from eqkin.files import hash_file, sync_file, sync_folder
from eqkin.index.manifest import (
    INDEX_FOLDER,
    LOCK_FILES,
    REBUILD_HINT,
    FileEntry,
    IndexManifest,
    TextEntry,
    read_current,
)
from eqkin.latex.names import find_names, normalise_name
from eqkin.latex.prose import to_plain_text
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import PaperText, find_sections, list_contents, read_paper_text

# Equations with one name that a search looks at.
MAX_NAMED = 100
# How often words are repeated, so that they count more than those of the prose.
_HEADING_REPEATS = 4
_TITLE_REPEATS = 3
_ABSTRACT_REPEATS = 2
_TOKENIZER = "eqkin"
# Memory that tantivy takes to write.
_WRITER_BYTES = 50_000_000
# With more deleted documents than this, everything is written again.
_MAX_DEAD_FRACTION = 0.5
# A word adds at most so many times its idf to BM25, with tantivy's k1 of 1.2.
_SATURATION = 2.2
# Stands between the parts of an ending.
_SEPARATOR = "\x1f"
_MAX_WORDS = 32
_MAX_WORD_CHARS = 64
_QUERY_PART = re.compile(r'"([^"]*)"|([^\W_]+)')
_WORD = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset(
    "a an and are as at be been but by can for from has have if in into is it its not of on or our such that the their "
    "then there these they this to was we were which will with".split()
)


class TextIndex:
    """The text of a library's sections; open it with `TextIndex.open`. Safe to share between threads.

    It keeps the state at which it was opened.

    Args:
        folder: the folder with tantivy's files, whose hashes are right.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with self._translate_errors():
            self._index = _open_tantivy(folder)
            self._schema = self._index.schema
            self._searcher = self._index.searcher()

    @classmethod
    def open(cls, library: LibraryFiles) -> TextIndex:
        """Open the text index of a library.

        Raises:
            BadInput: the library's text was never indexed.
            CorruptData: the text index is damaged or has another version.
        """

        def read(manifest: IndexManifest) -> TextIndex:
            if manifest.words is None:
                raise BadInput(f"{library.folder}: its text cannot be searched yet; run `eqkin index`")
            folder = library.folder / INDEX_FOLDER
            if problems := manifest.words.find_problems(folder):
                raise CorruptData(problems[0])
            return cls(folder / manifest.words.folder)

        return read_current(library.folder, read)

    def search(
        self, library: LibraryFiles, text: str, limit: int = 100, *, papers: Sequence[str] | None = None
    ) -> list[tuple[int, float]]:
        """Return the sections that match a text best.

        Any text is a query. More matching words, and rarer ones, give a higher score; a quoted phrase must occur as it
        is. Outside of quotes, words like "the" are ignored.

        Args:
            library: the library, as it is now: sections of papers that were changed or removed are left out.
            text: the query.
            limit: number of sections at most.
            papers: keys of the papers whose sections are searched; None for all.

        Returns:
            Ids of the library's sections, best first, each with its score as a fraction of the highest possible one.
        """
        required, optional = split_query(text)
        # What must match and what may; words with the same stem are one.
        occurs = {tuple(words): Occur.Should for words in stem_words(optional) if words}
        occurs |= {tuple(words): Occur.Must for words in stem_words(required) if words}
        if not occurs or limit <= 0:
            return []
        with self._translate_errors():
            highest = sum(map(self._compute_idf, occurs)) * _SATURATION
            query = Query.boolean_query([(occur, self._make_phrase_query(words)) for words, occur in occurs.items()])
            if papers is not None:
                marks = [_hash_paper(key, content) for key, content in list_contents(library, papers).items()]
                allowed = Query.term_set_query(self._schema, "paper", marks)
                query = Query.boolean_query([(Occur.Must, query), (Occur.Must, Query.const_score_query(allowed, 0.0))])
            wanted = limit
            while True:
                found = self._searcher.search(query, wanted, count=False).hits
                sections = self._read_numbers("section", found)
                # The others are of papers that were changed or removed since.
                current = find_sections(library, sections)
                hits = [
                    (section, min(score / highest, 1.0))
                    for (score, _), section in zip(found, sections, strict=True)
                    if section in current
                ]
                if len(hits) >= limit or len(found) < wanted:
                    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]
                wanted *= 4

    def _read_numbers(self, field: str, found: Sequence[tuple[float, tantivy.DocAddress]]) -> list[int]:
        """Return a field of the documents that were found."""
        values = self._searcher.fast_field_values(field, [address for _, address in found])
        return [int(value or 0) for value in values]

    def _make_phrase_query(self, words: Sequence[str]) -> Query:
        if len(words) == 1:
            return Query.term_query(self._schema, "words", words[0], "freq")
        return Query.phrase_query(self._schema, "words", list(words))

    def _compute_idf(self, words: Sequence[str]) -> float:
        """Return the inverse document frequency as tantivy computes it, that of a phrase as the sum over its words."""
        total = 0.0
        documents = self._searcher.num_docs
        for word in words:
            count = self._searcher.doc_freq("words", word)
            total += log(1 + max(documents - count + 0.5, 0.5) / (count + 0.5))
        return total

    def find_named(self, name: str, limit: int = MAX_NAMED) -> list[int]:
        """Return the keys of equations with a name, whatever its case and spelling of possessives."""
        with self._translate_errors():
            query = Query.term_query(self._schema, "name_key", _normalise_name(name), "basic")
            found = self._searcher.search(query, limit, count=False).hits
            return self._read_numbers("equation", found)

    def get_names(self, equations: Sequence[int]) -> dict[int, str]:
        """Return the names of equations by their keys; those without a name are left out."""
        if not equations:
            return {}
        with self._translate_errors():
            query = Query.term_set_query(self._schema, "equation", list(equations))
            found = self._searcher.search(query, len(equations), count=False).hits
            # The first name that was found counts.
            names = [str(self._searcher.doc(address)["name"][0]) for _, address in found]
            return dict(zip(self._read_numbers("equation", found), names, strict=True))

    def match_name(self, text: str) -> str:
        """Return the most frequent spelling of a name; "" if no equation has it."""
        key = _normalise_name(text)
        spellings = self._list_endings(_SEPARATOR.join((key, key, "")))
        best = sorted(spellings, key=lambda ending: (-ending[2], ending[1]))
        return best[0][1] if best else ""

    def complete_name(self, text: str, k: int) -> list[tuple[str, int]]:
        """Return the most frequent names with a word that begins like the text, and how many equations have them."""
        wanted = _normalise_name(text)
        if not wanted:
            return []
        spellings = {(key, name): count for key, name, count in self._list_endings(wanted)}
        names: dict[str, str] = {}
        counts: dict[str, int] = {}
        for (key, name), count in spellings.items():
            names[key] = min(name, names.get(key, name))
            counts[key] = counts.get(key, 0) + count
        best = sorted(counts, key=lambda key: (-counts[key], key))[:k]
        return [(names[key], counts[key]) for key in best]

    def _list_endings(self, prefix: str) -> list[tuple[str, str, int]]:
        """List names with an ending that begins so: normalised name, spelling, number of equations."""
        with self._translate_errors():
            # The filter counts only documents that were not deleted.
            found = self._searcher.terms_with_prefix("name_ending", prefix, Query.all_query())
        endings = []
        for term, count in found:
            _, key, name = term.split(_SEPARATOR, 2)
            endings.append((key, name, int(count)))
        return endings

    def knows_word(self, word: str) -> bool:
        """Return whether a section has a word."""
        (words,) = stem_words([word])
        with self._translate_errors():
            query = self._make_phrase_query(words) if words else Query.empty_query()
            return bool(self._searcher.search(query, 1, count=False).hits)

    def _translate_errors(self) -> AbstractContextManager[None]:
        return _translate_errors(CorruptData, f"{self._folder}: the text index is damaged", REBUILD_HINT)

    def list_states(self) -> set[str]:
        """List the hashes of papers whose text is here (`_hash_paper`)."""
        with self._translate_errors():
            return {state for state, _ in self._searcher.terms_with_prefix("paper", "", Query.all_query())}


def _normalise_name(name: str) -> str:
    return normalise_name(_replace_surrogates(name))


def split_query(text: str) -> tuple[list[str], list[str]]:
    """Return a text's quoted phrases and its other words."""
    text = unicodedata.normalize("NFC", _replace_surrogates(text))
    required: list[str] = []
    # A dictionary serves as an ordered set.
    optional: dict[str, None] = {}
    for match in _QUERY_PART.finditer(text):
        if match[1] is not None:
            words = [word[:_MAX_WORD_CHARS] for word in _WORD.findall(match[1])]
            if words and len(required) < _MAX_WORDS:
                required.append(" ".join(words[:_MAX_WORDS]))
        elif match[2].lower() not in _STOP_WORDS:
            optional[match[2][:_MAX_WORD_CHARS]] = None
    return required, list(optional)[:_MAX_WORDS]


def stem_words(passages: Sequence[str]) -> list[list[str]]:
    """Split passages into words as the text index does: without case, accents and endings, in order."""
    return [_make_analyzer().analyze(_replace_surrogates(passage)) for passage in passages]


def _replace_surrogates(text: str) -> str:
    """Return the text without halves of characters, which tantivy refuses."""
    return text.encode("utf-8", "replace").decode()


@cache
def _make_analyzer() -> TextAnalyzer:
    filters = (Filter.remove_long(4 * _MAX_WORD_CHARS), Filter.lowercase(), Filter.ascii_fold())
    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (*filters, Filter.stemmer("english")):
        builder = builder.filter(step)
    return builder.build()


def _make_schema() -> tantivy.Schema:
    builder = SchemaBuilder()
    builder.add_text_field("words", tokenizer_name=_TOKENIZER, index_option="position")
    # Of sections and of named equations: what their paper was, see `_hash_paper`.
    builder.add_text_field("paper", tokenizer_name="raw", index_option="basic")
    # Of sections: the id in the library, which no other section will ever have.
    builder.add_unsigned_field("section", fast=True)
    # Of named equations: key, spellings of the name, the same normalised, and with each of its words as the first.
    builder.add_unsigned_field("equation", indexed=True, fast=True)
    builder.add_text_field("name", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name_key", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name_ending", tokenizer_name="raw", index_option="basic")
    return builder.build()


def _hash_paper(key: str, content: str) -> str:
    """Return a hash of a paper's key and content, with which its documents are marked."""
    return sha256(f"{key}\n{content}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@contextmanager
def _translate_errors(kind: type[EqkinError], problem: str, remedy: str) -> Iterator[None]:
    """Raise tantivy's errors as eqkin's; a panic in its code is no `Exception`."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, (ValueError, OSError)) and type(error).__module__ != "pyo3_runtime":
            raise
        raise kind(f"{problem} ({error}); {remedy}") from error


def _open_tantivy(folder: Path) -> tantivy.Index:
    if os.access(folder, os.W_OK):
        return _read_tantivy(folder)
    # tantivy insists on creating a lock file, even to read. Open files stay open when the links are gone.
    with tempfile.TemporaryDirectory() as links:
        for path in folder.iterdir():
            if path.name not in LOCK_FILES:
                (Path(links) / path.name).symlink_to(path.absolute())
        return _read_tantivy(Path(links))


def _read_tantivy(folder: Path) -> tantivy.Index:
    return _configure(tantivy.Index.open(str(folder)))


def _configure(index: tantivy.Index) -> tantivy.Index:
    """Make an index ready to be used."""
    # Otherwise a thread would open the files of every commit while nobody searches them.
    index.config_reader("manual")
    index.register_tokenizer(_TOKENIZER, _make_analyzer())
    return index


class TextChanges:
    """The changes that bring a text index up to date.

    Args:
        library: the library.
        folder: of the index.
        entry: of the text index; None if there is none that can be used.
    """

    def __init__(self, library: LibraryFiles, folder: Path, entry: TextEntry | None) -> None:
        current = {_hash_paper(key, content): key for key, content in list_contents(library, failed=False).items()}
        self.base: TextEntry | None = entry
        indexed = TextIndex(folder / entry.folder).list_states() if entry is not None else set()
        self.gone: list[str] = sorted(indexed - current.keys())
        self.new: list[str] = [key for state, key in current.items() if state not in indexed]

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.base is None)

    def write(
        self, library: LibraryFiles, folder: Path, max_seconds: float, progress: Callable[[int, int], None]
    ) -> Iterator[TextEntry]:
        """Write the changes; yield an entry whenever a part of them, of limited duration, is on disk.

        Raises:
            StorageFailed: the disk refused a write.
        """
        entry, gone, done = self.base, self.gone, 0
        while entry is None or gone or done < len(self.new):
            target = _link_files(folder, entry)
            with _translate_errors(StorageFailed, f"{target}: could not be written", "what was stored before is safe"):
                index = _configure(tantivy.Index(_make_schema(), path=str(target)))
                writer = index.writer(_WRITER_BYTES, 1)
                if gone:
                    # Deleting by term would delete nothing, without an error.
                    writer.delete_documents_by_query(Query.term_set_query(index.schema, "paper", gone))
                started = time.monotonic()
                for key in self.new[done:]:
                    for document in _iter_documents(library, key):
                        writer.add_document(document)
                    done += 1
                    progress(done, len(self.new))
                    if time.monotonic() - started > max_seconds:
                        break
                writer.commit()
                writer.wait_merging_threads()
                entry = _describe_files(target, entry)
            gone = []
            yield entry


def _link_files(folder: Path, entry: TextEntry | None) -> Path:
    """Create a folder with the files of another one: as links, or as copies where the file system has no links."""
    target = folder / f"words-{secrets.token_hex(8)}"
    target.mkdir()
    for name in entry.files if entry is not None else ():
        assert entry is not None
        source = folder / entry.folder / name
        try:
            os.link(source, target / name)
        except OSError:
            shutil.copyfile(source, target / name)
    return target


def _describe_files(folder: Path, before: TextEntry | None) -> TextEntry:
    """Make new files durable and return the entry of the folder."""
    files: dict[str, FileEntry] = {}
    for path in sorted(folder.iterdir()):
        if path.name in LOCK_FILES:
            continue
        known = before.files.get(path.name) if before is not None else None
        # tantivy replaces these two. All other files are never written again.
        if known is not None and path.name not in ("meta.json", ".managed.json"):
            files[path.name] = known
            continue
        with path.open("rb+") as file:
            sync_file(file.fileno())
        files[path.name] = FileEntry(path.stat().st_size, hash_file(path))
    sync_folder(folder)
    sync_folder(folder.parent)
    return TextEntry(folder.name, files)


def is_mostly_dead(folder: Path, entry: TextEntry) -> bool:
    """Return whether most documents were deleted: tantivy drops them only when it merges files."""
    path = folder / entry.folder / "meta.json"
    try:
        segments = json.loads(path.read_bytes())["segments"]
        total = sum(segment["max_doc"] for segment in segments)
        dead = sum((segment["deletes"] or {"num_deleted_docs": 0})["num_deleted_docs"] for segment in segments)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {REBUILD_HINT}") from error
    return bool(dead > _MAX_DEAD_FRACTION * total)


def _iter_documents(library: LibraryFiles, key: str) -> Iterator[Document]:
    """Yield the documents of a paper: its sections and its equations with names; nothing if it is gone."""
    paper = read_paper_text(library, key)
    if paper is None:
        return
    state = _hash_paper(key, paper.content)
    title = to_plain_text(paper.title)
    abstract = to_plain_text(paper.abstract)
    for section, heading, prose in paper.sections:
        document = _make_document(state)
        document.add_unsigned("section", section)
        plain_heading = to_plain_text(heading)
        repeated = [(plain_heading, _HEADING_REPEATS), (title, _TITLE_REPEATS), (abstract, _ABSTRACT_REPEATS)]
        for text, times in [(to_plain_text(prose), 1), *repeated]:
            for _ in range(times if text else 0):
                document.add_text("words", text)
        yield document
    if not paper.sections:
        # This says that the paper is indexed.
        yield _make_document(state)
    for equation, names in _list_names(key, paper).items():
        document = _make_document(state)
        document.add_unsigned("equation", equation)
        for name in names:
            name_key = _normalise_name(name)
            document.add_text("name", name)
            document.add_text("name_key", name_key)
            words = name_key.split(" ")
            for at in range(len(words)):
                document.add_text("name_ending", _SEPARATOR.join((" ".join(words[at:]), name_key, name)))
        yield document


def _make_document(state: str) -> Document:
    document = Document()
    document.add_text("paper", state)
    return document


def _list_names(key: str, paper: PaperText) -> Mapping[int, list[str]]:
    """Return the names of a paper's equations, in the order in which they were found, by the equation's key."""
    names: dict[int, list[str]] = {}
    for section, heading, prose in paper.sections:
        marks = paper.marks.get(section, {})
        for mark, name, _ in find_names(heading, prose):
            if mark in marks:
                names.setdefault(marks[mark], []).append(name)
    if key.startswith("atlas:"):
        for label, equation in paper.labels.items():
            for name in load_names().get(f"{key[len('atlas:') :]}:{label}", ()):
                names.setdefault(equation, []).append(name)
    return names
