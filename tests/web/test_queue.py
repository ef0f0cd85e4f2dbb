"""Work is bounded: requests that do not fit are asked to retry, and the server stays responsive."""

import asyncio
import gc
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from eqkin.errors import CorruptData, LimitReached
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, check_cancelled
from eqkin.search.reader import ReadQuery
from eqkin.web.app import create_app
from eqkin.web.server import SETTINGS_VARIABLE, create_app_from_environment
from eqkin.web.service import ServerSettings, WebError, WorkQueue
from tests.web.conftest import Running


class Slow:
    """An engine that answers when the test lets it."""

    def __init__(self) -> None:
        self.go, self.working = threading.Event(), threading.Semaphore(0)

    def read(self, latex: str, *_: object, **__: bool) -> ReadQuery:
        self.working.release()
        if latex == "endless":
            try:
                while True:
                    check_cancelled()
            except LimitReached:
                self.go.set()
                raise
        if latex == "boom":
            raise RuntimeError("with secrets inside")
        if latex == "damage":
            raise CorruptData("/home/secrets/library.db: damaged")
        assert self.go.wait(30)
        return ReadQuery(latex, "latex")


@pytest.fixture
def slow(tmp_path):
    engine = Slow()
    limits = replace(LIMITS, web_workers=1, web_waiting=1)
    running = Running(create_app(engine, LocalJudgements(tmp_path), limits=limits))  # type: ignore[arg-type]
    yield engine, running
    engine.go.set()
    running.stop()


def test_full_queue_answers_503_while_health_answers(slow):
    engine, running = slow
    with ThreadPoolExecutor(2) as threads, running.client() as client:
        ask = lambda: client.get("/api/read?q=x")  # noqa: E731
        first = threads.submit(ask)
        assert engine.working.acquire(timeout=30)
        second = threads.submit(ask)
        while client.get("/healthz").json()["under_way"] < 2:
            pass
        refused = client.get("/api/read?q=x")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["code"] == "busy"
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 503
        assert "</html>" in page.text
        engine.go.set()
        assert (first.result().status_code, second.result().status_code) == (200, 200)


def test_search_does_not_wait_for_what_takes_long(slow):
    engine, running = slow
    engine.get_paper = lambda key: engine.read("x")
    engine.go.clear()
    with ThreadPoolExecutor(3) as threads, running.client() as client:
        papers = [threads.submit(client.get, "/api/paper/x") for _ in range(LIMITS.web_slow_workers)]
        for _ in papers:
            assert engine.working.acquire(timeout=30)
        assert client.get("/api/read?q=damage").json()["code"] == "corrupt_data"
        engine.go.set()
        assert {paper.result().status_code for paper in papers} == {500}


@pytest.mark.parametrize(("query", "code"), [("boom", "internal"), ("damage", "corrupt_data")])
def test_internal_error_is_reported_without_details(slow, query, code):
    with slow[1].client() as client:
        answer = client.get(f"/api/read?q={query}")
    assert answer.status_code == 500
    assert answer.json()["code"] == code
    assert "secrets" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_timed_out_request_keeps_its_place_until_it_ends():
    async def check() -> None:
        queue = WorkQueue(1, 0, 0.01)
        go = threading.Event()
        with pytest.raises(WebError, match="gave up") as given_up:
            await queue.run(go.wait, 30)
        assert given_up.value.status_code == 503
        with pytest.raises(WebError):
            await queue.run(int)
        go.set()
        while queue.under_way:
            await asyncio.sleep(0)
        assert await queue.run(int) == 0
        queue.close()

    asyncio.run(check())


def test_request_stops_when_its_time_is_over():
    async def check() -> None:
        queue = WorkQueue(1, 0, 0.01)
        with pytest.raises(WebError, match="gave up"):
            await queue.run(Slow().read, "endless")
        while queue.under_way:
            await asyncio.sleep(0.001)
        queue.close()

    asyncio.run(check())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_request_stops_when_its_client_has_gone(slow, method):
    engine, running = slow
    engine.search = engine.read
    body = b'{"q": "endless"}' if method == "POST" else b""
    path = b"/api/search" if method == "POST" else b"/api/read?q=endless"
    head = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(running.listener.getsockname(), timeout=30) as connection:
        connection.sendall(head % (method.encode(), path, len(body)) + body)
        assert engine.working.acquire(timeout=30)
        assert not engine.go.is_set()
    assert engine.go.wait(30)
    with running.client() as client:
        while client.get("/healthz").json()["under_way"]:
            pass


def test_client_that_goes_before_its_body_is_complete_leaves_no_traceback(slow, caplog):
    _, running = slow
    head = (
        b"POST /api/embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    with socket.create_connection(running.listener.getsockname(), timeout=30) as connection:
        connection.sendall(head)
    running.stop()  # handles what it has received
    assert caplog.records == []


def test_server_process_keeps_connections_and_engines_open(folder, monkeypatch):
    monkeypatch.setenv(SETTINGS_VARIABLE, ServerSettings(library=str(folder)).to_json())
    app = create_app_from_environment()
    gc.unfreeze()
    gc.collect()
    backend = app.state.service.engine.plain.backend
    with backend.snapshot() as first:
        pass
    with backend.snapshot() as second:
        assert second.library is first.library
    app.state.opened.close()
