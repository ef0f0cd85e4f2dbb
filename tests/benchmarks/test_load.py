"""`python -m benchmarks load`: what it counts, against servers that answer and that do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.load import MIX, LoadReport, measure
from eqkin import Library
from eqkin.errors import BadInput
from tests.cli.running import run_benchmarks as eqkin

HIT = {"equation": {"paper": {"key": "note"}}}


class Moody(BaseHTTPRequestHandler):
    """A server that answers pages with 503 and breaks the connection for every question with words."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "text=" in self.path:
            self.close_connection = True
            return
        busy = self.path == "/" or self.path.startswith("/search")
        answer = {"error": {"code": "busy"}} if busy else {"fields": {"physics": 3}, "hits": [HIT], "process": 7}
        body = json.dumps(answer).encode()
        self.send_response(503 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def moody() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Moody) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_answers_and_errors_are_counted_by_kind(moody: str) -> None:
    told: list[tuple[float, int, int]] = []
    report = measure(moody, clients=4, seconds=1.5, progress=lambda *now: told.append(now))
    figures = report.summary()
    assert set(figures["times"]) == {"all", "formula", "explained", "filtered", "paper"}
    assert set(figures["errors_by_kind"]) == {
        "page: HTTP 503 busy",
        "words: RemoteDisconnected",
        "with words: RemoteDisconnected",
    }
    assert figures["answers"] == sum(len(kind) for kind in report.seconds.values()) > 0
    assert figures["errors"] == sum(figures["errors_by_kind"].values()) >= told[-1][2] > 0
    assert list(figures["connections_by_process"]) == [7]
    assert abs(figures["answers"] / (figures["answers"] + figures["errors"]) - 0.77) < 0.2  # as the mix is
    assert sum(MIX.values()) == 100


def test_pauses_show_in_the_figures() -> None:
    report = LoadReport(1, elapsed=6.5)
    for end in (0.5, 0.9, 4.4, 5.0, 6.4):
        report.answered("formula", 0.1, end)
    assert report.by_second() == [2, 0, 0, 0, 1, 1]
    assert report.pause() == pytest.approx(3.5)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:port"])
def test_a_server_that_is_not_there_is_a_clear_error(url: str) -> None:
    with pytest.raises(BadInput, match="no server of eqkin answers there"):
        measure(url, clients=1, seconds=1)


def test_a_library_is_served_and_written_to_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Energy\n\nMass is energy.\n\n$$E = mc^2$$\n")
    with Library.open(tmp_path / "library") as library:
        library.add(tmp_path / "notes.md")
    before = sorted(path.name for path in (tmp_path / "library").rglob("*"))
    command = ["load", "--library", tmp_path / "library", "--clients", 3, "--seconds", 1, "--writing"]
    figures = eqkin(*command, "--json").json
    assert figures["errors"] == 0 and figures["answers"] > 0
    assert figures["published"] >= 1 and figures["seen_after_seconds"] >= 0
    assert figures["clients"] == 3
    assert sorted(path.name for path in (tmp_path / "library").rglob("*")) == before  # a copy was written to
    refused = eqkin(*command, "http://x")
    assert refused.code == 3
    assert "leave --milvus and --writing away" in refused.err
