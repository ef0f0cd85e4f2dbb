import errno
import io
import os
import pickle
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eqkin.errors import BadInput, LimitReached, StorageFailed
from eqkin.latex.titles import parse_arxiv_id
from eqkin.sources.arxiv import ArxivClient, make_arxiv_item, parse_feed
from eqkin.sources.paper import hash_paper
from eqkin.sources.readers import open_source
from tests.limits import changed_limits
from tests.sources.builders import TEX, gz, tar_of

SOURCE = gz(tar_of({"main.tex": TEX}))
FEED = b"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><title>ArXiv Query</title><id>http://arxiv.org/api/x</id>
<entry><id>http://arxiv.org/abs/1706.03762v7</id><published>2017-06-12T17:57:34Z</published>
<title>Attention Is
  All You Need</title><summary>  The dominant &amp; best. </summary>
<author><name>Ashish Vaswani</name></author><author><name>Noam Shazeer</name></author>
<arxiv:primary_category xmlns:arxiv="http://arxiv.org/schemas/atom" term="cs.CL"/>
<category term="cs.LG"/><category term="cs.CL"/></entry></feed>"""


class Answers:
    """What the server says next: a queue of (status, headers, body), the last one again and again."""

    def __init__(self):
        self.queues = {}
        self.requests = []
        self.agents = set()
        self.pause = 0.0  # between the bytes of an answer

    def set(self, path, *answers):
        self.queues[path] = list(answers)

    def next(self, path):
        self.requests.append(path)
        queue = self.queues.get(path.split("?")[0], [(404, {}, b"")])
        return queue.pop(0) if len(queue) > 1 else queue[0]


@pytest.fixture
def server():
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answers.agents.add(self.headers["User-Agent"])
            status, headers, body = answers.next(self.path)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            if not answers.pause:
                self.wfile.write(body)
                return
            try:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(answers.pause)
            except OSError:
                pass  # the client has given up

        def log_message(self, *arguments):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    answers.address = f"http://127.0.0.1:{listener.server_port}"
    answers.set("/api", (200, {}, FEED))
    answers.set("/src/1706.03762", (200, {}, SOURCE))
    yield answers
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.fixture
def client(server, tmp_path):
    naps = []
    made = ArxivClient(
        api=f"{server.address}/api",
        eprint=f"{server.address}/src",
        folder=tmp_path / "cache",
        delay=0.0,
        sleep=naps.append,
    )
    object.__setattr__(made, "naps", naps)
    return made


def load(client, spec="arxiv:1706.03762"):
    return make_arxiv_item(spec, client).load()


@pytest.mark.parametrize(
    "spec", ["arxiv:", "arxiv:../../x", "arxiv:1799.99999", "https://example.org/abs/1706.03762", "arxiv:x/1"]
)
def test_invalid_identifier_is_refused_before_any_request(spec):
    with pytest.raises(BadInput):
        open_source(spec)


def test_arxiv_paper_has_text_and_metadata(client, server):
    paper = load(client)
    assert "a=b" in paper.text and paper.key == "arxiv:1706.03762"
    assert (paper.title, paper.year) == ("Attention Is All You Need", 2017)
    assert paper.authors == ["Ashish Vaswani", "Noam Shazeer"]
    assert (paper.fields, paper.abstract) == (["cs.CL", "cs.LG"], "The dominant & best.")
    assert all(agent.startswith("eqkin") for agent in server.agents)


def test_papers_are_cached_and_those_without_a_version_grow_old(client, server):
    load(client)
    before = list(server.requests)
    assert load(client).title and server.requests == before
    load(replace(client, max_age=0.0))
    assert server.requests.count("/src/1706.03762") == 2


def test_environment_sets_the_addresses_and_items_go_to_other_processes(server, monkeypatch, tmp_path):
    monkeypatch.setenv("EQKIN_ARXIV_API", f"{server.address}/api")
    monkeypatch.setenv("EQKIN_ARXIV_EPRINT", f"{server.address}/src")
    monkeypatch.setenv("EQKIN_CACHE", str(tmp_path / "c"))
    item = make_arxiv_item("arxiv:1706.03762", ArxivClient(delay=0.0))
    assert pickle.loads(pickle.dumps(item)).load().title
    assert (tmp_path / "c" / "arxiv").is_dir()


def test_download_waits_as_long_as_a_busy_server_asks(client, server):
    server.set(
        "/src/1706.03762",
        (503, {"Retry-After": "7"}, b""),
        (429, {"Retry-After": "50"}, b""),
        (500, {}, b""),
        (200, {}, SOURCE),
    )
    assert "a=b" in load(replace(client, delay=0.001)).text
    waits = [nap for nap in client.naps if nap > 0.001]
    assert waits[:2] == [7, 50] and waits[2] == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("wait", "deadline", "requests"),
    [("0", 600.0, 5), ("86400", 600.0, 1), ("90", 60.0, 1)],
    ids=["stays busy", "asks for a long wait", "asks for more than there is time"],
)
def test_download_gives_up_on_a_busy_server(client, server, wait, deadline, requests):
    server.set("/src/1706.03762", (503, {"Retry-After": wait}, b""))
    with pytest.raises(BadInput):
        load(replace(client, deadline=deadline))
    assert len(server.requests) == requests and not any(client.naps)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_full_disk_is_a_storage_failure_and_not_retried(client, server, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class FullFile(io.FileIO):
        write = full

    client.folder.mkdir()
    if call == "write":
        monkeypatch.setattr("eqkin.sources.arxiv.open", FullFile, raising=False)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageFailed, match="No space left"):
        load(client)
    assert len(server.requests) <= 1 and client.naps == []
    assert list(client.folder.iterdir()) == []


def test_slow_download_ends_at_its_deadline(client, server):
    server.pause = 0.02
    server.set("/src/1706.03762", (200, {}, b"x" * 500))
    with pytest.raises(LimitReached):
        load(replace(client, deadline=0.2))
    assert len(server.requests) == 1


def test_truncated_answer_is_downloaded_again_and_never_cached(client, server):
    server.set("/src/1706.03762", (200, {"Content-Length": "100000"}, SOURCE), (200, {}, SOURCE))
    assert "a=b" in load(client).text
    server.set("/src/1706.03762", (200, {"Content-Length": "100000"}, SOURCE))
    with pytest.raises(BadInput):
        load(replace(client, max_age=0.0))
    assert not [path for path in client.folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "1000000000"}], ids=["undeclared", "declared"])
@changed_limits(download_bytes=50_000)
def test_answer_above_the_limit_is_refused(client, server, headers):
    server.set("/src/1706.03762", (200, headers, b"x" * 100_000))
    with pytest.raises(LimitReached):
        load(client)


@pytest.mark.parametrize("answer", [(403, {}, b""), (404, {}, b""), (200, {}, b"%PDF-1.5")])
def test_refused_download_is_not_retried(client, server, answer):
    server.set("/src/1706.03762", answer)
    with pytest.raises(BadInput):
        load(client)
    assert len(server.requests) == 1


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/src", "file:///etc", "ftp://127.0.0.1/x", "nonsense"])
def test_only_web_addresses_that_answer_are_downloaded(tmp_path, address):
    made = ArxivClient(eprint=address, folder=tmp_path, delay=0.0, attempts=2, sleep=lambda _: None)
    with pytest.raises(BadInput):
        load(made)


@pytest.mark.parametrize("body", [b"", b"<feed", b"<html/>", FEED.replace(b"1706.03762", b"1111.11111")])
def test_paper_without_metadata_is_still_read(client, server, body):
    server.set("/api", (200, {}, body))
    paper = load(client)
    assert "a=b" in paper.text and any("no metadata" in note for note in paper.notes)
    server.set("/api", (200, {}, FEED))
    complete = load(client)
    assert complete.title and hash_paper(complete) != hash_paper(paper)
    assert hash_paper(load(client)) == hash_paper(complete)


@pytest.mark.parametrize(
    "raw",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><feed>&b;</feed>',
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><feed>&e;</feed>',
        b"<!DOCTYPE feed><feed/>",
        b"<feed>",
        b"\xff\xfe<",
        b'<?xml version="1.0" encoding="nonsense"?><feed/>',
    ],
    ids=["bomb", "external", "doctype", "unclosed", "garbage", "encoding"],
)
def test_malformed_or_hostile_feeds_are_bad_input(raw):
    with pytest.raises(BadInput):
        parse_feed(raw, "feed")


def test_error_of_the_api_is_bad_input():
    raw = FEED.replace(b"http://arxiv.org/abs/1706.03762v7", b"http://arxiv.org/api/errors#incorrect_id")
    with pytest.raises(BadInput, match="arXiv answers"):
        parse_feed(raw, "feed")


def test_deep_feed_has_no_entries():
    assert parse_feed(b"<a>" * 50_000 + b"</a>" * 50_000, "feed") == []


def test_clients_that_share_a_cache_wait_between_requests(tmp_path, server):
    naps = []
    for _ in range(3):
        ArxivClient(folder=tmp_path, delay=60.0, sleep=naps.append).download(
            server.address + "/api", tmp_path / "x", 10**6
        )
    assert naps[0] == 0 and all(50 < nap <= 60 for nap in naps[1:])
    (tmp_path / "last-request").write_text(repr(time.time() + 1e6))  # the clock was set back
    client = ArxivClient(folder=tmp_path, delay=3.0, sleep=naps.append)
    client.download(server.address + "/api", tmp_path / "x", 10**6)
    assert naps[-1] == 3.0


def test_unknown_server_name_is_not_retried(tmp_path, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    slept = []
    client = ArxivClient(api="http://no.invalid/api", eprint="http://no.invalid/e", folder=tmp_path, sleep=slept.append)
    with pytest.raises(BadInput, match="is there a network"):
        client.fetch_source(parse_arxiv_id("1706.03762"))
    assert sum(slept) <= 3.0
