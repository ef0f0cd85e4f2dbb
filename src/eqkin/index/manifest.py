"""`index.json`: the files of an index, their hashes, and the model of its vectors; and the model kept with them.

The manifest is written last and atomically: every file that it names is complete, every other file is left over.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.library.database import INDEX_FOLDER as INDEX_FOLDER
from eqkin.library.database import LOCK_NAME
from eqkin.storage.files import (
    delete_unused_files,
    find_unknown_files,
    format_checked_json,
    hash_file,
    load_checked_json,
    write_file,
)
from eqkin.storage.segments import HASH_CACHE_NAME, MAX_DEAD_FRACTION, MAX_SEGMENTS, SegmentEntry

if TYPE_CHECKING:
    from eqkin.encoder.encoder import Encoder

INDEX_FORMAT = "eqkin-index"
INDEX_VERSION = 2  # 1, of eqkin 0.1, had vectors with 16 bits per number; only its text is still used
INDEX_MANIFEST_NAME = "index.json"
REBUILD_HINT = "run `eqkin index --rebuild`"
# see `find_unknown_files`
OWN_INDEX_FILES = re.compile(r"(vectors|terms)-[0-9a-f]{16}\.safetensors|(index|checked)\.json")
# what tantivy leaves in a folder of words, of which readers make the first
LOCK_FILES = frozenset({".tantivy-meta.lock", ".tantivy-writer.lock"})
_WORDS_FOLDER = re.compile(r"words-[0-9a-f]{16}")
_OWN_WORDS_FILES = re.compile(
    r"[0-9a-f]{32}\.([a-z]+|[0-9]+\.del)|meta\.json|\.managed\.json|\.tantivy-(meta|writer)\.lock|\.tmp\w{6}"
)
_MODEL_FOLDER = re.compile(r"model-[0-9a-f]{16}")


@dataclass(frozen=True)
class IndexSettings:
    """Sizes at which an index changes its way of working."""

    max_flat_vectors: int = 20_000  # up to this many, a query is compared with every vector
    max_compared_trees: int = 10_000  # allowed trees up to which a query is compared with each of them
    compared_vectors: int = 6_000  # with which a query is compared otherwise: the nearest by their binary codes
    step_trees: int = 4_096  # embedded, or counted, between two looks at the clock
    max_segment_trees: int = 500_000  # in one file
    max_segment_postings: int = 16_000_000  # in one file; sorting them takes about 400 MB
    max_segment_seconds: float = 60.0  # of work that a killed update may lose
    max_segments: int = MAX_SEGMENTS  # of vectors, and of terms
    max_dead_fraction: float = MAX_DEAD_FRACTION  # of vectors, of terms and of text


SETTINGS = IndexSettings()


@dataclass(frozen=True)
class TermsEntry(SegmentEntry):
    """A segment of postings: which trees have which terms."""

    postings: int  # pairs of term and tree
    scheme: int  # `term_segments.SEGMENT_SCHEME` when it was written


@dataclass(frozen=True)
class FileEntry:
    """Size and hash of a file."""

    bytes: int
    sha256: str

    def find_problem(self, path: Path) -> str:
        """Compare a file with its hash; return what is wrong with it, or ""."""
        with suppress(OSError):
            if path.stat().st_size == self.bytes and hash_file(path) == self.sha256:
                return ""
        return f"{path}: missing, or does not match its hash; {REBUILD_HINT}"


@dataclass(frozen=True)
class TextEntry:
    """The folder of the text index and the files in it."""

    folder: str
    files: dict[str, FileEntry]

    def find_problems(self, index_folder: Path) -> list[str]:
        """Compare all files with their hashes; return what is wrong."""
        problems = [entry.find_problem(index_folder / self.folder / name) for name, entry in self.files.items()]
        return [problem for problem in problems if problem]


@dataclass(frozen=True)
class IndexManifest:
    """Everything about an index except its content."""

    model: str  # digest of the model
    dimensions: int
    generation: int  # of the library when the last update began
    files: tuple[SegmentEntry, ...] = ()  # of vectors
    words: TextEntry | None = None
    terms: tuple[TermsEntry, ...] | None = None  # None: written by an eqkin without terms
    network: str = ""  # folder of the model, if it is not the bundled one
    format: str = INDEX_FORMAT
    version: int = INDEX_VERSION

    @property
    def count(self) -> int:
        """The number of vectors in all files."""
        return sum(entry.count for entry in self.files)

    @property
    def names(self) -> set[str]:
        """The names that may be in the index's folder."""
        names = {INDEX_MANIFEST_NAME, LOCK_NAME, HASH_CACHE_NAME, *self.hashes}
        if self.network:
            names.add(self.network)
        if self.words:
            names.add(self.words.folder)
        return names

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each file of vectors and terms."""
        return {entry.file: entry.sha256 for entry in (*self.files, *(self.terms or ()))}

    def list_files(self) -> list[str]:
        """List all files of the index, except those of its own model, relative to the index's folder."""
        words = [f"{self.words.folder}/{name}" for name in self.words.files] if self.words else []
        return [INDEX_MANIFEST_NAME, *self.hashes, *words]

    def compute_sizes(self, folder: Path) -> dict[str, int]:
        """Return the bytes on disk of each part."""
        return {
            "vectors": sum(entry.bytes for entry in self.files),
            "structure": sum(entry.bytes for entry in self.terms or ()),
            "words": sum(entry.bytes for entry in self.words.files.values()) if self.words else 0,
        }

    def save(self, folder: Path) -> None:
        """Write into the index's folder, atomically."""
        write_file(folder / INDEX_MANIFEST_NAME, format_checked_json("index", asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> IndexManifest | None:
        """Read from the index's folder, `None` if there is none; raises `CorruptData`."""
        path = folder / INDEX_MANIFEST_NAME
        try:
            data = load_checked_json(path, "index", INDEX_FORMAT, INDEX_VERSION, REBUILD_HINT, older=(1,))
            if data["version"] == 1:
                data |= {"files": [], "terms": None}
                data.pop("nearest", None)
            terms = data.get("terms")
            entries: dict[str, Any] = {
                "files": tuple(SegmentEntry(**entry) for entry in data["files"]),
                "words": _parse_words(data["words"]) if data["words"] else None,
                "terms": None if terms is None else tuple(TermsEntry(**entry) for entry in terms),
            }
            return cls(**data | entries)
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptData(f"{path}: damaged ({error}); {REBUILD_HINT}") from error


def _parse_words(data: dict[str, Any]) -> TextEntry:
    files = {name: FileEntry(**entry) for name, entry in data["files"].items()}
    return TextEntry(data["folder"], files)


def load_encoder(library: Path) -> Encoder:
    """Load the encoder that made the vectors of the library in a folder; the bundled one if it has none yet.

    Raises:
        CorruptData: the library's own model is damaged or missing.
    """
    from eqkin.encoder.encoder import Encoder

    manifest = None
    with suppress(CorruptData):  # then the whole index is replaced
        manifest = IndexManifest.load(library / INDEX_FOLDER)
    if manifest is None or not manifest.network:
        return Encoder.load()
    try:
        encoder = Encoder.load(library / INDEX_FOLDER / manifest.network)
    except BadInput as error:
        raise CorruptData(f"{error}; give it again with `eqkin index --model`") from error
    if encoder.digest != manifest.model:
        raise CorruptData(f"{library}: its model is not that of its vectors; give it with `eqkin index --model`")
    return encoder


def save_model(folder: Path, encoder: object) -> str:
    """Save an encoder's model in an index's folder; return its name there, "" for the bundled model."""
    from eqkin.encoder.encoder import Encoder

    if not isinstance(encoder, Encoder) or encoder.digest == _load_bundled_digest():
        return ""
    name = f"model-{encoder.digest[:16]}"
    if not _is_model_intact(folder / name, encoder.digest):
        encoder.model.save(folder / name)
    return name


def delete_old_models(folder: Path, name: str) -> None:
    """Delete all models of an index's folder but one, and what a killed process left of that one."""
    from eqkin.encoder.model import MODEL_FILES, OWN_MODEL_FILES

    for path in folder.iterdir():
        if _MODEL_FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            delete_unused_files(path, MODEL_FILES if path.name == name else (), OWN_MODEL_FILES)
            if path.name != name:
                with suppress(OSError):  # it has files of others
                    path.rmdir()


def delete_old_words(folder: Path, name: str) -> None:
    """Delete all folders of words but one; files in them that are not eqkin's stay."""
    for path in folder.iterdir():
        if path.name != name and _WORDS_FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            delete_unused_files(path, (), _OWN_WORDS_FILES)
            with suppress(OSError):
                path.rmdir()


def find_unknown_index_files(folder: Path, manifest: IndexManifest | None) -> tuple[list[str], list[str]]:
    """Return what an index's manifest does not name of its folder: what eqkin left over, and files of others."""
    from eqkin.encoder.model import MODEL_FILES, OWN_MODEL_FILES

    known = (manifest or IndexManifest("", 0, 0)).names
    leftover, foreign = find_unknown_files(folder, known, OWN_INDEX_FILES)
    for name in [manifest.network] if manifest and manifest.network else []:
        if (folder / name).is_dir():
            temporary, others = find_unknown_files(folder / name, MODEL_FILES, OWN_MODEL_FILES)
            leftover += [f"{name}/{file}" for file in temporary]
            foreign += [f"{name}/{file}" for file in others]
    if manifest and manifest.words and (folder / manifest.words.folder).is_dir():
        words = folder / manifest.words.folder
        temporary, others = find_unknown_files(words, LOCK_FILES | manifest.words.files.keys(), _OWN_WORDS_FILES)
        leftover += [f"{words.name}/{file}" for file in temporary]
        foreign += [f"{words.name}/{file}" for file in others]
    own = [name for name in foreign if _MODEL_FOLDER.fullmatch(name) or _WORDS_FOLDER.fullmatch(name)]
    old = [name for name in own if not (folder / name).is_symlink()]
    return leftover + old, [name for name in foreign if name not in old]


def find_model_problems(folder: Path, manifest: IndexManifest) -> list[str]:
    """Return what is wrong with an index's own model."""
    if not manifest.network or _is_model_intact(folder / manifest.network, manifest.model):
        return []
    return [f"{folder / manifest.network}: the model is damaged or missing; give it again with `eqkin index --model`"]


def _is_model_intact(folder: Path, digest: str) -> bool:
    from eqkin.encoder.model import Model

    try:
        return Model.load(folder).digest == digest
    except EqkinError:
        return False


@lru_cache(maxsize=1)
def _load_bundled_digest() -> str:
    from eqkin.encoder.encoder import Encoder

    return Encoder.load().digest
