"""A library in Milvus (Milvus Lite here): pushed, searched and served as a library on disk is."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from eqkin import Encoder, Library
from eqkin.cli import app
from eqkin.errors import BadInput, Unreachable
from eqkin.search import Filters, SearchEngine
from eqkin.web.app import create_app

pytest.importorskip("pymilvus", reason="pymilvus is not installed: pip install 'eqkin[milvus]'")
pytest.importorskip("milvus_lite")
from eqkin.cluster.milvus_collection import MilvusCollection, parse_address, unpack_record
from eqkin.cluster.milvus_push import push_library
from eqkin.cluster.milvus_snapshot import open_backend

Record = dict[str, Any]


def paper(name: str, *formulas: str, **other: Any) -> Record:
    latex = r"\section{Part} Some words. " + " ".join(rf"\[ {formula} \] more words" for formula in formulas)
    return {"doc_id": name, "title": f"About {name}", "latex": latex} | other


A = paper("a", r"E = m c^2", r"\oint_C f = 2\pi i", year=1990, fields=["physics"], authors=["Émilie du Châtelet"])
B = paper("b", r"a^2 + b^2 = c^2", fields=["geometry"])
C = paper("c", r"\sum_i x_i = 1", r"\int f = 0", r"y = x", year=2000, fields=["physics", "geometry"])


@pytest.fixture
def fill(tmp_path: Path) -> Iterator[Callable[..., Library]]:
    """A function that returns an indexed library with exactly these papers."""
    opened: list[Library] = []

    def fill(*records: Record, name: str = "library") -> Library:
        library = Library.open(tmp_path / name, create=True)
        opened.append(library)
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
        keys = {f"record:{record['doc_id']}" for record in records}
        gone = [known["key"] for known in library.list_papers() if known["key"] not in keys]
        if gone:
            library.remove(*gone)
        library.add(path)
        library.open_engine()
        return library

    yield fill
    for library in opened:
        library.close()


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    from milvus_lite.server_manager import server_manager_instance

    yield str(tmp_path / "milvus.db")
    server_manager_instance.release_all()


def list_ids(uri: str) -> set[str]:
    collection = MilvusCollection(uri, "eqkin")
    records = [unpack_record(row["record"]) for row in collection.scan("eqkin", "key > 0", ("record",))]
    collection.close()
    return {f"{record['paper']}#{record['number']}" for record in records}


def test_push_is_idempotent_and_follows_changes(uri: str, fill: Callable[..., Library], encoder: Encoder) -> None:
    def push(library: Library, **options: bool) -> tuple[int, ...]:
        report = push_library(library, uri, encoder.digest, **options)
        return report.papers, report.unchanged, report.equations, report.deleted, report.removed

    library = fill(A, B)
    assert push(library) == (2, 0, 3, 0, 0)
    assert push(library) == (0, 2, 0, 0, 0)
    # several libraries may be in one collection
    assert push(fill(C, name="other")) == (1, 0, 3, 0, 0)
    with SearchEngine(open_backend(uri, "eqkin", encoder.digest), encoder) as engine:
        assert engine.count_facets() == ({"physics": 5, "geometry": 4}, {1990: 2, 2000: 3})
    library = fill(A | {"latex": r"\section{Part} \[ E = m c^2 \]"}, B)
    assert push(library) == (1, 1, 1, 1, 0)
    assert list_ids(uri) == {"record:a#0", "record:b#0", "record:c#0", "record:c#1", "record:c#2"}
    library.remove("record:b")
    library.open_engine()
    assert push(library, prune=True) == (0, 1, 0, 4, 2)
    assert list_ids(uri) == {"record:a#0"}


KILLED = """
import os, signal, sys
from eqkin import Library
from eqkin.cluster import milvus_collection as collection, milvus_push as push
folder, uri, model, left = sys.argv[1:]
left, call = int(left), collection.MilvusCollection.call
def count(self, method, *given, **named):
    global left
    found = call(self, method, *given, **named)
    left -= method in ("upsert", "delete")
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
collection.MilvusCollection.call = count
push._PAPERS_PER_BATCH = 1
push.push_library(Library.open(folder), uri, model)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals that Windows does not know")
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_push_completes_one_that_was_killed(
    uri: str, fill: Callable[..., Library], encoder: Encoder, writes: int
) -> None:
    library = fill(A, B, C)
    command = [sys.executable, "-c", KILLED, str(library.folder), uri, encoder.digest, str(writes)]
    killed = subprocess.run(command, capture_output=True, timeout=120, check=False, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    report = push_library(library, uri, encoder.digest)
    assert report.collection == len(list_ids(uri)) == 6
    assert report.papers + report.unchanged == 3


def test_search_finds_what_a_library_on_disk_finds(uri: str, fill: Callable[..., Library], encoder: Encoder) -> None:
    library = fill(A, B, C)
    push_library(library, uri, encoder.digest)
    local = library.open_engine()
    with SearchEngine(open_backend(uri, "eqkin", encoder.digest), encoder) as engine:
        for query in ("E = mc^2", r"\sum_j y_j = 1", r"x^2 + y^2 = z^2", r"?a = ?b ?c^2"):
            expected = [(hit.equation.id, hit.relation) for hit in local.search(query, k=3, explain=True).hits]
            found = [(hit.equation.id, hit.relation) for hit in engine.search(query, k=3, explain=True).hits]
            assert found[0] == expected[0]
        record = engine.get_equation("record:a#0")
        assert record.mathml == local.get_equation("record:a#0").mathml
        assert [len(members) for _, members in engine.get_paper("record:c").sections] == [3]
        assert engine.search(text="words geometry", k=3).hits
        assert engine.find_similar("record:a#0", k=2).hits[0].equation.id != "record:a#0"
        for filters, keys in (
            (Filters(fields=("geometry",)), {"b", "c"}),
            (Filters(first_year=1995), {"c"}),
            (Filters(authors=("chatelet",)), {"a"}),
            (Filters(papers=("record:b",)), {"b"}),
            (Filters(without_papers=("record:b", "record:c")), {"a"}),
            (Filters(fields=('" or key > 0 or "',)), set()),
        ):
            hits = engine.search("x = y", k=10, filters=filters).hits
            assert {hit.equation.paper.key.removeprefix("record:") for hit in hits} == keys


def test_server_answers_from_milvus_and_takes_no_judgements(
    uri: str, fill: Callable[..., Library], encoder: Encoder
) -> None:
    push_library(fill(A), uri, encoder.digest)
    with SearchEngine(open_backend(uri, "eqkin", encoder.digest), encoder) as engine:
        client = TestClient(create_app(engine, None), "http://127.0.0.1")
        assert client.get("/api/search?q=E=mc^2").json()["hits"][0]["equation"]["id"] == "record:a#0"
        assert client.get("/api/equation/record:a%235").status_code == 404
        for page in ("/", "/search?q=E", "/paper?key=record:a"):
            assert client.get(page, headers={"Accept": "text/html"}).status_code == 200
        body = {"equation": "record:a#0", "relevant": True, "latex": "E", "keywords": ["energy"]}
        assert client.post("/api/judgements", json=body).status_code == 403


def test_commands_push_and_search(uri: str, fill: Callable[..., Library], encoder: Encoder) -> None:
    library = fill(A, B)
    pushed = CliRunner().invoke(app, ["push", "--library", str(library.folder), "--milvus", uri, "--json"])
    assert pushed.exit_code == 0, pushed.output
    assert json.loads(pushed.stdout)["collection"] == 3
    found = CliRunner().invoke(app, ["search", "E = mc^2", "--milvus", uri, "--json"])
    assert json.loads(found.stdout)["hits"][0]["equation"]["id"] == "record:a#0"
    both = CliRunner().invoke(app, ["search", "x", "--milvus", uri, "--library", str(library.folder)])
    assert isinstance(both.exception, BadInput)


def test_missing_and_foreign_collections_are_refused(uri: str, fill: Callable[..., Library], encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="eqkin push"):
        open_backend(uri, "nothing", encoder.digest)
    push_library(fill(A), uri, encoder.digest)
    with pytest.raises(BadInput, match="model"):
        open_backend(uri, "eqkin", "another")
    with pytest.raises(BadInput):
        MilvusCollection(uri, "no name")
    with pytest.raises(Unreachable):
        MilvusCollection("http://127.0.0.1:9", "eqkin").call("list_collections")


@pytest.mark.parametrize(
    ("uri", "shown", "token"),
    [
        ("localhost:19530", "http://localhost:19530", ""),
        ("https://ada:p%40ss@milvus.example:443/db", "https://milvus.example:443/db", "ada:p@ss"),
        ("library.db", "library.db", ""),
    ],
)
def test_addresses_are_shown_without_their_password(uri: str, shown: str, token: str) -> None:
    assert parse_address(uri)[1:] == (shown, token)


@pytest.mark.parametrize("uri", ["", "ftp://milvus:1", "http://", "https://ada:se/cret@milvus:19530"])
def test_wrong_addresses_are_refused_without_their_password(uri: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_address(uri)
    assert "cret@" not in str(refused.value) and "ada" not in str(refused.value)
