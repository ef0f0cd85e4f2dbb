"""`index.json`: the files of an index, their hashes, and the model of its vectors; and the model kept with them.

The manifest is written last and atomically: every file that it names is complete, every other file is left over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.files import format_checked_json, hash_file, parse_checked_json, write_file
from eqkin.index.features import TERM_SCHEME
from eqkin.library.database import INDEX_FOLDER as INDEX_FOLDER
from eqkin.library.database import LOCK_NAME

if TYPE_CHECKING:
    from eqkin.encoder.encoder import Encoder

INDEX_FORMAT = "eqkin-index"
INDEX_VERSION = 1
INDEX_MANIFEST_NAME = "index.json"
# How often an index is read again while updates replace its files.
_MAX_ATTEMPTS = 10

T = TypeVar("T")
REBUILD_HINT = "run `eqkin index --rebuild`"
# What tantivy leaves in a folder of words, of which readers make the first.
LOCK_FILES = frozenset({".tantivy-meta.lock", ".tantivy-writer.lock"})
_OWN_FOLDERS = re.compile(r"(model|words)-[0-9a-f]{16}")
# Files that eqkin, its models and tantivy write.
_OWN_FILES = re.compile(
    r"part-[0-9a-f]{16}\.safetensors|index\.json|model-[0-9a-f]{16}/(model\.json|weights\.safetensors|vocabulary\.json)"
    r"|words-[0-9a-f]{16}/([0-9a-f]{32}\.([a-z]+|[0-9]+\.del)|meta\.json|\.managed\.json|\.tantivy-[a-z]+\.lock|\.tmp\w+)"
)
# See `eqkin.files.write_atomically`.
_TEMPORARY_NAME = re.compile(r"(.*/)?\.([^/]+)\.[0-9]+\.tmp")


@dataclass(frozen=True)
class IndexSettings:
    """Sizes at which an index changes its way of working."""

    # Trees that are indexed between two looks at the clock, and those in one file, at most `parts.MAX_ROWS`.
    step_trees: int = 4_096
    max_part_trees: int = 65_536
    # Work that a killed update may lose.
    max_seconds: float = 60.0
    # Parts that are less than half full. More of them are merged.
    max_small_parts: int = 8


SETTINGS = IndexSettings()


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


@dataclass(frozen=True, kw_only=True)
class PartEntry(FileEntry):
    """A file of `index.parts`."""

    file: str
    # Equations, and those of them that could not be parsed completely.
    count: int
    unparsed: int


@dataclass(frozen=True)
class TextEntry:
    """The folder of the text index and the files in it."""

    folder: str
    files: dict[str, FileEntry]

    def find_problems(self, index_folder: Path) -> list[str]:
        """Compare all files with their hashes; return what is wrong."""
        problems = [entry.find_problem(index_folder / self.folder / name) for name, entry in self.files.items()]
        return [problem for problem in problems if problem]


@dataclass(frozen=True, kw_only=True)
class IndexManifest:
    """Everything about an index except its content."""

    # Digest of the model, and its folder unless it is the bundled one.
    model: str
    network: str = ""
    dimensions: int
    # That of the library when the last update began.
    generation: int
    parts: tuple[PartEntry, ...] = ()
    words: TextEntry | None = None
    # What terms are indexed.
    terms: int = TERM_SCHEME
    format: str = field(default=INDEX_FORMAT, init=False)
    version: int = field(default=INDEX_VERSION, init=False)

    @property
    def count(self) -> int:
        """The number of equations in all parts."""
        return sum(entry.count for entry in self.parts)

    @property
    def unparsed(self) -> int:
        """The number of equations that could not be parsed completely."""
        return sum(entry.unparsed for entry in self.parts)

    @property
    def has_current_terms(self) -> bool:
        """True if the terms are those that this eqkin searches for."""
        return self.terms == TERM_SCHEME

    def list_files(self) -> list[str]:
        """List all files of the index, except those of its own model, relative to the index's folder."""
        words = [f"{self.words.folder}/{name}" for name in self.words.files] if self.words else []
        return [INDEX_MANIFEST_NAME, *(entry.file for entry in self.parts), *words]

    def compute_sizes(self) -> dict[str, int]:
        """Return the bytes on disk of what is indexed."""
        return {
            "formulas": sum(entry.bytes for entry in self.parts),
            "words": sum(entry.bytes for entry in self.words.files.values()) if self.words else 0,
        }

    def save(self, folder: Path) -> None:
        """Write into the index's folder, atomically."""
        write_file(folder / INDEX_MANIFEST_NAME, format_checked_json(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> IndexManifest | None:
        """Read from the index's folder, `None` if there is none; raises `CorruptData`."""
        path = folder / INDEX_MANIFEST_NAME
        try:
            data = parse_checked_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise CorruptData(f"{path}: damaged ({error}); {REBUILD_HINT}") from error
        if (data.pop("format", None), data.pop("version", None)) != (INDEX_FORMAT, INDEX_VERSION):
            raise CorruptData(f"{path}: was made by another eqkin; install the newest one, or {REBUILD_HINT}")
        words = data.pop("words")
        if words is not None:
            words = TextEntry(words["folder"], {name: FileEntry(**file) for name, file in words["files"].items()})
        return cls(parts=tuple(PartEntry(**entry) for entry in data.pop("parts")), words=words, **data)


def read_current(library: Path, read: Callable[[IndexManifest], T]) -> T:
    """Return what a function reads of a library's index, given its manifest.

    An update may replace files meanwhile; then it is called again.

    Raises:
        BadInput: there is no index.
        CorruptData: it is damaged.
    """
    folder = library / INDEX_FOLDER
    for attempt in range(_MAX_ATTEMPTS):
        manifest = IndexManifest.load(folder)
        if manifest is None:
            raise BadInput(f"{library}: is not indexed yet; run `eqkin index`")
        try:
            return read(manifest)
        except CorruptData:
            if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(folder) == manifest:
                raise
    raise AssertionError


def load_encoder(library: Path) -> Encoder:
    """Load the encoder that made the vectors of the library in a folder; the bundled one if it has none yet.

    Raises:
        CorruptData: the library's own model is damaged or missing.
    """
    from eqkin.encoder.encoder import Encoder

    manifest = None
    # Whoever finds a damaged manifest replaces the whole index.
    with suppress(CorruptData):
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


def delete_unused(folder: Path, manifest: IndexManifest) -> None:
    """Delete what eqkin left over in an index's folder; files of others stay."""
    leftover, _ = find_unknown_files(folder, manifest)
    for name in leftover:
        # On Windows, a file cannot be deleted while another process has it mapped.
        with suppress(PermissionError):
            (folder / name).unlink(missing_ok=True)
    for path in folder.iterdir():
        is_used = path.name == manifest.network or (manifest.words and path.name == manifest.words.folder)
        if not is_used and _OWN_FOLDERS.fullmatch(path.name):
            # A folder with files of others stays.
            with suppress(OSError):
                path.rmdir()


def find_unknown_files(folder: Path, manifest: IndexManifest | None) -> tuple[list[str], list[str]]:
    """Return what an index's manifest does not name of its folder: what eqkin left over, and files of others.

    Both are relative to the folder; symbolic links are not followed.
    """
    from eqkin.encoder.model import MODEL_FILES

    known = {LOCK_NAME}
    if manifest is not None:
        known |= {*manifest.list_files(), *(f"{manifest.network}/{name}" for name in MODEL_FILES)}
    if manifest is not None and manifest.words is not None:
        known |= {f"{manifest.words.folder}/{name}" for name in LOCK_FILES}
    leftover: list[str] = []
    foreign: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_link = path.is_symlink()
        if name in known or (path.is_dir() and not is_link):
            continue
        is_own = path.is_file() and not is_link and _OWN_FILES.fullmatch(_TEMPORARY_NAME.sub(r"\1\2", name))
        (leftover if is_own else foreign).append(name)
    return leftover, foreign


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
