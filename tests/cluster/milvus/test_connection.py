"""Connections to a server that does not exist, goes away and comes back; what users and the web page see then."""

import signal
import sys
import time
import traceback

import pytest

from eqkin.cluster.milvus.collection import MilvusCollection
from eqkin.cluster.milvus.connection import MilvusConnection, parse_address
from eqkin.cluster.milvus.push import PushSettings, push_library
from eqkin.cluster.milvus.snapshot import MilvusBackend, open_backend
from eqkin.errors import BadInput, StorageFailed, Unreachable
from eqkin.library.judgements import LocalJudgements
from eqkin.search import SearchEngine
from eqkin.web.app import create_app
from tests.cluster.milvus.conftest import paper
from tests.cluster.milvus.run_server import free_port
from tests.cluster.milvus.servers import MilvusServer, require
from tests.web.conftest import Running


@pytest.mark.parametrize("uri", ["", "nonsense", "ftp://x:1", "http://", "http://host:port", "http://host:99999999"])
def test_connection_refuses_invalid_addresses(uri):
    require("milvus-lite")
    with pytest.raises(BadInput, match="address"):
        MilvusConnection(uri)


def test_unreachable_server_is_reported_without_password():
    require("milvus-lite")
    port = free_port()
    with pytest.raises(Unreachable) as caught:
        open_backend(f"http://someone:hushhush@127.0.0.1:{port}", "x", "model")
    assert f"http://127.0.0.1:{port}" in str(caught.value) and "hush" not in str(caught.value)
    assert MilvusConnection(f"127.0.0.1:{port}").shown == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "uri",
    [
        "http://user:s3cret/x@host:19530",
        "http://user:33/s3cret@host:19530",
        "http://user:33#s3cret@host:19530",
        "htps://user:s3cret@host",
        "user:s3cret@host:19530",
        "https://user:s3cret@host:19530/my.db",
        "https://user:s3cret@host:port",
    ],
)
def test_invalid_address_is_reported_without_password(uri):
    with pytest.raises(BadInput, match="host.* is not an address") as caught:
        parse_address(uri)
    trace = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in trace.replace(repr(uri), "") and "user:33" not in trace


def test_connection_unquotes_user_and_password(lite):
    assert parse_address("https://host:19530/base") == ("https://host:19530/base",) * 2 + ("",)
    assert parse_address("https://token@[::1]:19530")[1:] == ("https://[::1]:19530", "token")
    assert parse_address("/some/a@b.db")[1] == "/some/a@b.db"
    place = lite.uri.removeprefix("http://")
    connection = MilvusConnection(f"http://us%40er:pass%2Fw%3Ard@{place}")
    assert connection.shown == lite.uri and connection.version
    assert connection._client._config.token == "us@er:pass/w:rd"
    connection.close()


def test_missing_pymilvus_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(BadInput, match=r"pip install 'eqkin\[milvus\]'"):
        open_backend("http://localhost:19530", "x", "model")


def test_refused_call_is_reported(lite, collection):
    connection = MilvusConnection(lite.uri)
    with pytest.raises(BadInput, match=f"no collection {collection}"):
        connection.call("query", collection, filter="key > 0")
    MilvusCollection(connection, collection).prepare("model", 4)
    with pytest.raises(StorageFailed, match="Milvus: refused"):
        connection.call("query", collection, filter="key >=> 0")
    connection.close()


@pytest.fixture
def own(tmp_path):
    """A server that a test may kill."""
    require("milvus-lite")
    server = MilvusServer("milvus-lite", tmp_path / "milvus")
    yield server
    server.stop()


def _answers_again(client, path):
    until = time.monotonic() + 30
    while (answer := client.get(path)).status_code == 503 and time.monotonic() < until:
        time.sleep(0.1)
    return answer


def test_lost_connection_is_a_503_and_recovers(own, filled, encoder, collection, tmp_path):
    library = filled(paper("a", "E = mc^2", r"\oint f = 0", year=1999))
    push_library(library, own.uri, encoder.digest, collection)
    engine = SearchEngine(open_backend(own.uri, collection, encoder.digest), encoder)
    running = Running(create_app(engine, LocalJudgements(tmp_path)))
    paths = ("/api/search?q=E%3Dmc^2", "/api/paper/record:a", "/api/facets")
    with running.client() as client:
        before = [client.get(path).json() for path in paths]
        engine.backend.connection.seconds = 2.0
        own.kill()
        for path in ("/api/search?q=a", paths[1]):  # facets and answers are cached
            answer = client.get(path)
            assert answer.status_code == 503 and answer.headers["Retry-After"]
            assert answer.json()["code"] == "unreachable"
            assert "127.0.0.1" not in answer.text  # the database's address stays private
        page = client.get("/search?q=E", headers={"Accept": "text/html"})
        assert page.status_code == 503 and "does not answer" in page.text
        assert client.get("/healthz").status_code == 200
        own.start()
        assert _answers_again(client, "/api/search?q=a").status_code == 200
        after = [_answers_again(client, path).json() for path in paths]
        assert [a["hits"] if "hits" in a else a for a in after] == [b["hits"] if "hits" in b else b for b in before]
        own.pause()
        try:
            assert client.get("/api/search?q=b").status_code == 503
        finally:
            own.signal(signal.SIGCONT)
        assert _answers_again(client, "/api/search?q=b").status_code == 200
    running.stop()
    engine.close()


def test_push_waits_for_a_server_that_restarts(own, filled, encoder, collection):
    library = filled(*(paper(f"p{i}", rf"x_{i} = {i}") for i in range(3)))
    push_library(filled(name="empty"), own.uri, encoder.digest, collection)
    away = []

    def restart(report):
        if not away:
            away.append(report.papers)
            own.kill()
            own.start()

    one_by_one = PushSettings(equations_per_batch=1)
    report = push_library(library, own.uri, encoder.digest, collection, progress=restart, settings=one_by_one)
    assert away == [1] and (report.papers, report.collection) == (3, 3)


def test_collection_replaced_by_one_of_another_model_is_not_searched(lite, filled, encoder, collection):
    library = filled(paper("a", "E = mc^2"))
    push_library(library, lite.uri, encoder.digest, collection)
    backend = MilvusBackend(lite.uri, collection, encoder.digest, state_seconds=0.0)
    with SearchEngine(backend, encoder) as engine:
        assert engine.search("E").hits
        backend.model = "feed" * 16  # as if this were an eqkin with another network
        with pytest.raises(Unreachable, match="of the model"):
            engine.search("E")


def test_collection_dropped_while_served_is_a_503(lite, filled, encoder, collection, tmp_path):
    library = filled(paper("a", "E = mc^2"))
    push_library(library, lite.uri, encoder.digest, collection)
    engine = SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder)
    running = Running(create_app(engine, LocalJudgements(tmp_path)))
    connection = MilvusConnection(lite.uri)
    with running.client() as client:
        assert client.get("/api/search?q=E").status_code == 200
        for name in (collection, f"{collection}_papers"):
            connection.call("drop_collection", name)
        for path in ("/api/search?q=F", "/api/paper/record:a", "/api/equation/record:a%230"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "unreachable")
            assert "127.0.0.1" not in answer.text
        push_library(library, lite.uri, encoder.digest, collection)
        assert client.get("/api/search?q=F").status_code == 200
    running.stop()
    connection.close()
    engine.close()


def test_call_of_a_paused_server_ends(own):
    connection = MilvusConnection(own.uri, seconds=0.5)
    assert "lite" in connection.version
    own.pause()
    try:
        with pytest.raises(Unreachable):
            connection.call("list_collections", seconds=0.5)
    finally:
        own.signal(signal.SIGCONT)
    connection.close()
