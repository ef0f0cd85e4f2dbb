"""`index.json`: which files make up an index, their hashes, and the model their vectors are of.

It is written last, in one step: whatever it names is on disk whole, whatever it does not name is not there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eqkin.errors import CorruptData
from eqkin.storage import write_file

INDEX_FORMAT = "eqkin-index"
INDEX_VERSION = 1
INDEX_FOLDER = "index"
INDEX_MANIFEST_NAME = "index.json"
LOCK_NAME = "lock"
REBUILD_HINT = "run `eqkin index --rebuild`"


@dataclass(frozen=True)
class VectorsEntry:
    """A file with vectors."""

    file: str
    sha256: str
    bytes: int
    count: int  # vectors in it


@dataclass(frozen=True)
class TermsEntry:
    """A file that says which trees have which terms."""

    file: str
    sha256: str
    bytes: int
    count: int  # trees in it
    postings: int  # pairs of term and tree
    scheme: int  # how terms were counted: `structure_files.SCHEME`


@dataclass(frozen=True)
class FaissEntry:
    """The file of faiss, for a collection too large to be searched exactly."""

    file: str
    sha256: str
    bytes: int
    count: int  # vectors in it: those of the first rows of all files; later ones are looked at beside
    kind: str  # in the words of faiss's index factory
    probes: int  # inverted lists looked into for a query
    recall: float  # at 10, with so many probes, on a sample when it was trained
    trained: int  # vectors there were when it was trained
    head: int = 0  # bytes before the lists; 0: of an eqkin that did not say
    head_sha256: str = ""  # of these


@dataclass(frozen=True)
class TextEntry:
    """The database of words; unsealed while it is being changed, and after that was interrupted."""

    file: str
    sha256: str = ""
    sealed: bool = False


@dataclass(frozen=True)
class IndexManifest:
    """Everything about an index but its content."""

    model: str  # digest of the model
    dimensions: int
    generation: int  # of the library when the last update began
    files: tuple[VectorsEntry, ...] = ()
    nearest: FaissEntry | None = None
    words: TextEntry | None = None
    terms: tuple[TermsEntry, ...] | None = None  # None: of an eqkin that had none
    network: str = ""  # folder of the model, if it is not the one that comes with eqkin
    format: str = INDEX_FORMAT
    version: int = INDEX_VERSION

    @property
    def count(self) -> int:
        """Vectors in all files."""
        return sum(entry.count for entry in self.files)

    @property
    def names(self) -> set[str]:
        """The files this state needs, with the journal the database of words may have."""
        names = {entry.file for entry in self.files}
        names |= {entry.file for entry in self.terms or ()}
        if self.nearest:
            names.add(self.nearest.file)
        if self.network:
            names.add(self.network)
        if self.words:
            names |= {self.words.file, f"{self.words.file}-journal"}
        return names

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each file that is not being changed."""
        entries = [
            *self.files,
            *(self.terms or ()),
            self.nearest,
            self.words if self.words and self.words.sealed else None,
        ]
        return {entry.file: entry.sha256 for entry in entries if entry}

    def compute_sizes(self, folder: Path) -> dict[str, int]:
        """Bytes on disk of each part."""
        words = folder / self.words.file if self.words else None
        return {
            "vectors": sum(entry.bytes for entry in self.files),
            "nearest": self.nearest.bytes if self.nearest else 0,
            "structure": sum(entry.bytes for entry in self.terms or ()),
            "words": words.stat().st_size if words and words.exists() else 0,
        }

    def save(self, folder: Path) -> None:
        """Write into the index's folder, in one step."""
        data = json.loads(json.dumps(asdict(self), sort_keys=True))
        write_file(folder / INDEX_MANIFEST_NAME, _format_manifest(data))

    @classmethod
    def load(cls, folder: Path) -> IndexManifest | None:
        """Read from the index's folder, `None` if there is none; raises `CorruptData`."""
        path = folder / INDEX_MANIFEST_NAME
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptData(f"{path}: cannot be read ({error.strerror}); {REBUILD_HINT}") from error
        try:
            data = json.loads(raw)["index"]
            if raw != _format_manifest(data):
                raise ValueError("its checksum differs")
            if data["format"] != INDEX_FORMAT or data["version"] != INDEX_VERSION:
                raise CorruptData(
                    f"{path}: {data['format']} version {data['version']}, "
                    f"this eqkin reads {INDEX_FORMAT} version {INDEX_VERSION}; {REBUILD_HINT}"
                )
            return _parse_manifest(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptData(f"{path}: damaged ({error}); {REBUILD_HINT}") from error


def _format_manifest(data: dict[str, Any]) -> bytes:
    body = json.dumps(data, indent=1, sort_keys=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({"checksum": checksum, "index": data}, indent=1, sort_keys=True).encode() + b"\n"


def _parse_manifest(data: dict[str, Any]) -> IndexManifest:
    terms = data.get("terms")
    return IndexManifest(
        **data
        | {
            "files": tuple(VectorsEntry(**entry) for entry in data["files"]),
            "nearest": FaissEntry(**data["nearest"]) if data["nearest"] else None,
            "words": TextEntry(**data["words"]) if data["words"] else None,
            "terms": None if terms is None else tuple(TermsEntry(**entry) for entry in terms),
        }
    )
