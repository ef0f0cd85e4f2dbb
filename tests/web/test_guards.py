"""Who may reach a server, and under which names and paths."""

import logging
import re

import pytest

from eqkin.web.server import LogFormatter
from tests.web.conftest import make_client

TOKEN = "a-long-secret"


@pytest.fixture
def serve(engine, tmp_path):
    return lambda **settings: make_client(engine, tmp_path, **settings)


def test_token_is_required_as_bearer_or_password(serve):
    client = serve(token=TOKEN)
    for headers in (
        {},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Basic %%%"},
        {"Authorization": TOKEN},
    ):
        refused = client.get("/api/facets", headers=headers)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        assert TOKEN not in refused.text
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 401
    assert client.get("/static/icon.svg").status_code == 401
    assert client.get("/healthz").status_code == client.get("/robots.txt").status_code == 200
    assert client.get("/api/facets", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/facets", auth=("anyone", TOKEN)).status_code == 200


def test_only_allowed_hosts_are_served(serve):
    client = serve(hosts=("papers.example",))
    assert client.get("/healthz", headers={"Host": "papers.example:8017"}).status_code == 200
    assert client.get("/healthz", headers={"Host": "127.0.0.1"}).status_code == 421


def test_root_path_works_with_and_without_a_proxy_that_strips_it(serve):
    client = serve(root_path="/eqkin")
    for prefix in ("/eqkin", ""):
        page = client.get(f"{prefix}/", headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert client.get(f"{prefix}/static/icon.svg").status_code == 200
        assert client.get(f"{prefix}/api/search", params={"q": "x", "k": 1}).json()["hits"]
        assert client.get(f"{prefix}/api/nothing", headers={"Accept": "text/html"}).json()["status"] == 404
    assert "http://127.0.0.1/eqkin/search?q={searchTerms}" in client.get("/eqkin/opensearch.xml").text
    assert "Disallow: /eqkin/api/" in client.get("/robots.txt").text


def test_foreign_sites_are_admitted_only_by_cors(serve):
    origin, foreign = {"Origin": "https://notes.example"}, {"Sec-Fetch-Site": "cross-site"}
    body = {"queries": [{"q": "x", "k": 1}]}
    closed = serve().post("/api/search/many", json=body, headers=origin | foreign)
    assert closed.status_code == 403 and "access-control-allow-origin" not in closed.headers
    opened = serve(cors=("https://notes.example",), token=TOKEN)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    assert opened.options("/api/search/many", headers=origin | asked).status_code == 200
    answer = opened.post("/api/search/many", json=body, auth=("", TOKEN), headers=origin | foreign)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://notes.example"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    other = opened.post("/api/search/many", json=body, headers={"Origin": "https://evil.example"} | foreign)
    assert other.status_code in (401, 403) and "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost.evil"]
)
def test_foreign_origin_is_refused_from_browsers_that_send_no_more(serve, origin):
    body = {"queries": [{"q": "x", "k": 1}]}
    refused = serve().post("/api/search/many", json=body, headers={"Origin": origin})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    own = serve().post("/api/search/many", json=body, headers={"Origin": "http://127.0.0.1"})
    behind_proxy = serve(hosts=("127.0.0.1", "papers.example")).post(
        "/api/search/many", json=body, headers={"Origin": "https://papers.example"}
    )
    assert own.status_code == behind_proxy.status_code == 200


def test_public_server_is_known_by_addresses_and_not_by_any_name(serve):
    client = serve(hosts=("localhost",), any_address=True)
    hosts = {"192.168.0.7": 200, "192.168.0.7:8017": 200, "[fe80::1]:8017": 200, "[fe80::1]": 200, "localhost": 200}
    hosts |= {"rebound.evil.example": 421, "192.168.0.7.evil.example": 421, "": 421, "1": 421}
    assert {host: client.get("/healthz", headers={"Host": host}).status_code for host in hosts} == hosts


def test_log_shows_no_control_characters():
    record = logging.LogRecord("eqkin.web", logging.ERROR, "", 0, "%s", ("a\x1b[31m\x07\nb",), None)
    assert LogFormatter().format(record) == "a\ufffd[31m\ufffd\nb"


def test_frames_are_admitted_by_origin(serve):
    policy = serve(frames=("https://notes.example",)).get("/healthz").headers["content-security-policy"]
    assert re.search(r"frame-ancestors https://notes\.example$", policy)


def test_read_only_server_takes_no_judgements_and_no_drafts(serve):
    body = {"equation": "atlas:probability#4", "relevant": True, "latex": "x"}
    client = serve(read_only=True)
    refused = client.post("/api/judgements", json=body)
    draft = client.post("/api/similar-papers", files={"file": ("a.tex", b"x")})
    page = client.post("/draft", files={"file": ("a.tex", b"x")})
    for answer in (refused, draft, page):
        assert (answer.status_code, answer.json()["code"]) == (403, "read_only")
    assert "draft" not in client.get("/", headers={"Accept": "text/html"}).text.lower()
