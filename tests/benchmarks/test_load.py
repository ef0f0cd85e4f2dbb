"""`python -m benchmarks load`: what it counts, against servers that answer and that do not."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest

from benchmarks.load import compute_longest_pause, run_clients
from benchmarks.processes import MeasuredServer, find_server
from eqkin import Library
from eqkin.errors import BadInput
from tests.benchmarks.running import run, run_benchmark

HIT = {"equation": {"paper": {"key": "note"}}}


class Moody(BaseHTTPRequestHandler):
    """A server that answers pages with 503 and breaks the connection for every question with words."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "text=" in self.path:
            self.close_connection = True
            return
        busy = self.path == "/" or self.path.startswith("/search")
        answer = (
            {"error": {"code": "busy"}}
            if busy
            else {"fields": {"physics": 3}, "hits": [HIT], "process": 7, "processes": 1}
        )
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


def test_load_counts_answers_and_errors_by_kind(moody: str) -> None:
    ended = run("load", moody, "--clients", 4, "--seconds", 5)
    assert ended.code == 1
    report = orjson.loads(ended.out)
    facts, rows = report["facts"], report["tables"]["Answers"]
    assert {"all", "formula"} <= {row["name"] for row in rows} <= {"all", "formula", "explained", "filtered", "paper"}
    kinds = {name.partition(":")[0] for name in facts["errors_by_kind"]}
    assert {"page"} <= kinds <= {"page", "words", "with words"}
    assert facts["errors_by_kind"]["page: HTTP 503"] > 0
    assert facts["answers"] == rows[0]["count"] == sum(row["count"] for row in rows[1:]) > 0
    assert facts["errors"] == sum(facts["errors_by_kind"].values())
    assert abs(facts["answers"] / (facts["answers"] + facts["errors"]) - 0.77) < 0.2  # as locustfile.py mixes them


def test_two_servers_are_asked_in_turns_of_whole_seconds(moody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[str, int]] = []

    def ask(url: str, clients: int, seconds: int) -> list[dict[str, object]]:
        turns.append((url, seconds))
        return [{"kind": "formula", "seconds": 0.5, "end": 1.0, "error": ""}]

    monkeypatch.setattr("benchmarks.load.run_clients", ask)
    report = run_benchmark("load", moody, "--against", moody.replace("127.0.0.1", "localhost"), "--seconds", 40)
    assert [seconds for _, seconds in turns] == [14] * 6
    assert turns[0] == turns[2] != turns[1] == turns[3]
    assert report["facts"]["seconds"] == 42 and report["facts"]["answers"] == 3
    assert [row["per_second"] for row in report["tables"]["Servers"]] == [3 / 42, 3 / 42]


def test_server_of_this_machine_is_found_by_its_port(moody: str) -> None:
    assert find_server(moody) == MeasuredServer(moody.rstrip("/"), os.getpid())
    assert find_server("http://example.org:80").pid == find_server("http://127.0.0.1:port").pid == 0


def test_longest_pause_is_between_answers() -> None:
    assert compute_longest_pause([6.4, 0.5, 0.9, 4.4, 5.0]) == pytest.approx(3.5)
    assert compute_longest_pause([1.0]) == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:port"])
def test_load_rejects_url_without_server(url: str) -> None:
    with pytest.raises(BadInput, match="no server of eqkin answers there"):
        run_clients(url, clients=1, seconds=1)


def test_load_serves_a_library(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Energy\n\nMass is energy.\n\n$$E = mc^2$$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "notes.md")
    command = ["load", "--library", tmp_path / "library", "--clients", 3, "--seconds", 2]
    facts = run_benchmark(*command)["facts"]
    assert facts["errors"] == 0 < facts["answers"]
    assert facts["processor_ms_per_answer"] > 0 and facts["memory_bytes"]["rss"] > 1e7
    refused = run(*command, "http://x", "--milvus", "http://y")
    assert (refused.code, "cannot be used with a URL" in refused.err) == (3, True)
