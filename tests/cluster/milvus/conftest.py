"""Small libraries to push, and names of collections that no other test uses."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eqkin import Encoder, Library
from eqkin.index.update import update_index
from tests.cluster.milvus.servers import KINDS, MilvusServer, running

Record = dict[str, Any]


def paper(name: str, *formulas: str, **other: Any) -> Record:
    """Return a paper with some equations, for `filled`."""
    latex = r"\section{Part} Some words. " + " ".join(rf"\[ {formula} \] more words" for formula in formulas)
    return {"doc_id": name, "title": f"About {name}", "latex": latex} | other


@pytest.fixture
def filled(tmp_path: Path, encoder: Encoder) -> Iterator[Callable[..., Library]]:
    """A function that returns a library with exactly these papers."""
    opened: list[Library] = []

    def fill(*records: Record, name: str = "library", index: bool = True) -> Library:
        library = Library.open(tmp_path / name, create=True)
        opened.append(library)
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in records))
        keys = {f"record:{record['doc_id']}" for record in records}
        gone = [known["key"] for known in library.list_papers() if known["key"] not in keys]
        if gone:
            library.remove(*gone)
        if records:
            library.add(path)
        if index:
            update_index(library, encoder)
        return library

    yield fill
    for library in opened:
        library.close()


@pytest.fixture
def collection() -> str:
    return f"test_{secrets.token_hex(6)}"


@pytest.fixture
def lite() -> MilvusServer:
    return running("milvus-lite")


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> MilvusServer:
    return running(request.param)
