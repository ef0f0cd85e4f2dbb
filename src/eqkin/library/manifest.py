"""`manifest.json`: what the library is, which converter made its trees, and the hash of its database.

A writer unseals it before its first change and seals it last, with the database's new generation and hash. An unsealed
manifest means that a writer is at work, or was stopped: then the database's own checks stand in for the hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eqkin.errors import CorruptData
from eqkin.mathml.converter import ConverterIdentity
from eqkin.storage import write_file

MANIFEST_FORMAT = "eqkin-library"
MANIFEST_VERSION = 1
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True)
class LibraryManifest:
    """Identity and state of a library."""

    converter: ConverterIdentity
    generation: int = 0  # of the database when `database` was taken
    database: str = ""  # sha256 of the database file
    sealed: bool = False  # off while a writer is at work: then the hash does not hold yet
    format: str = MANIFEST_FORMAT
    version: int = MANIFEST_VERSION

    def save(self, folder: Path) -> None:
        """Write into the library's folder, in one step."""
        body = json.dumps(asdict(self), indent=1, sort_keys=True)
        write_file(
            folder / MANIFEST_NAME,
            json.dumps({"checksum": _compute_checksum(body), "manifest": json.loads(body)}, indent=1).encode() + b"\n",
        )

    def unseal(self) -> LibraryManifest:
        """The manifest while the database is being changed."""
        return replace(self, sealed=False)

    def seal(self, generation: int, database: str) -> LibraryManifest:
        """The manifest of a finished state of the database."""
        return replace(self, generation=generation, database=database, sealed=True)

    @classmethod
    def load(cls, folder: Path) -> LibraryManifest:
        """Read from the library's folder; raises `CorruptData`."""
        path = folder / MANIFEST_NAME
        try:
            raw = path.read_bytes()
            outer = json.loads(raw)
            data = outer["manifest"]
            canonical = json.dumps({"checksum": outer["checksum"], "manifest": data}, indent=1).encode() + b"\n"
            if outer["checksum"] != _compute_checksum(json.dumps(data, indent=1, sort_keys=True)) or raw != canonical:
                raise ValueError("checksum differs")
            if data["format"] != MANIFEST_FORMAT or data["version"] != MANIFEST_VERSION:
                raise CorruptData(
                    f"{path}: {data['format']} version {data['version']}; this eqkin reads {MANIFEST_FORMAT} version {MANIFEST_VERSION}"
                )
            return cls(ConverterIdentity(**data.pop("converter")), **data)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptData(f"{path}: damaged manifest ({error}); add the sources to a new library") from error


def _compute_checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
