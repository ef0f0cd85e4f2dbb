"""`python -m benchmarks load`: what it counts, against servers that answer and that do not."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from benchmarks.load import run_clients
from eqkin.errors import BadInput
from tests.benchmarks.running import run, run_benchmark


class Moody(BaseHTTPRequestHandler):
    """A server that answers pages with 503 and breaks the connection for every question with words."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "text=" in self.path:
            self.close_connection = True
            return
        busy = self.path == "/" or self.path.startswith("/search")
        hit = {"equation": {"paper": {"key": "note"}}}
        body = json.dumps({} if busy else {"fields": {"physics": 3}, "hits": [hit]}).encode()
        self.send_response(503 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def moody():
    with ThreadingHTTPServer(("127.0.0.1", 0), Moody) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_answers_and_errors_are_counted_by_kind(moody):
    ended = run("load", moody, "--clients", 4, "--seconds", 2)
    assert ended.code == 1
    report = orjson.loads(ended.out)
    facts, rows = report["facts"], report["tables"]["Answers"]
    assert {"all", "formula"} <= {row["name"] for row in rows} <= {"all", "formula", "explained", "filtered", "paper"}
    assert {name.partition(":")[0] for name in facts["errors_by_kind"]} <= {"page", "words", "with words"}
    assert facts["errors_by_kind"]["page: HTTP 503"] > 0
    assert facts["answers"] == rows[0]["count"] == sum(row["count"] for row in rows[1:]) > 0


def test_address_without_server_is_refused():
    with pytest.raises(BadInput, match="no server of eqkin answers there"):
        run_clients("http://127.0.0.1:1", clients=1, seconds=1)


def test_a_library_is_served(atlas_library):
    facts = run_benchmark("load", "--library", atlas_library, "--clients", 3, "--seconds", 2)["facts"]
    assert facts["errors"] == 0 < facts["answers"]
    assert facts["processor_ms_per_answer"] > 0 and facts["memory_bytes"] > 1e7
