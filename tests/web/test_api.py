"""Every route for programs, and what is refused."""

import json
import socket

import httpx
import pytest

from eqkin.api import Library, verify
from eqkin.limits import LIMITS
from eqkin.search.engine import SearchEngine
from tests.web.conftest import HOSTILE, Running, make_client

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"


def refused(answer: httpx.Response, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    required = {"title", "status", "code", "detail"}
    assert required <= set(body) <= required | {"position"}
    return body


def test_match_of_a_wildcard_is_escaped(client):
    query = {"q": r"\Xi_{evil} = ?b", "k": 5}
    hit = client.get("/api/search", params=query | {"explain": 1}).json()["hits"][0]
    assert hit["equation"]["paper"]["key"] == HOSTILE
    assert "script" in dict(hit["bindings"])["?b"] and "<script" not in dict(hit["bindings"])["?b"]
    page = client.get("/search", params=query).text
    assert "<i>?b</i>" in page and "<script>alert" not in page


def test_filters_narrow_by_field_year_author_and_paper(client):
    def keys(**parameters) -> set[str]:
        found = client.get("/api/search", params={"q": "E = \\frac12 m v^2", "k": 50, **parameters}).json()
        return {hit["equation"]["paper"]["key"] for hit in found["hits"]}

    assert keys(field="energetics") == {"record:dated-1999", "record:dated-2007", "record:dated-2019"}
    assert keys(**{"from": 2000, "to": 2010}) == {"record:dated-2007"}
    assert len(keys(**{"from": "", "to": ""})) > 3  # as a form sends them
    assert keys(author="châtelet", to=2000) == {"record:dated-1999"}
    assert keys(paper="atlas:mechanics") == {"atlas:mechanics"}
    assert "atlas:mechanics" not in keys(without="atlas:mechanics")


def test_query_is_read_or_the_place_of_the_error_is_given(client):
    read = client.get("/api/read", params={"q": "x/y"}).json()
    assert read["mathml"].startswith("<math") and read["kind"] in ("ascii", "latex")
    words = client.get("/api/read", params={"q": "law of total probability"}).json()
    assert words["kind"] in ("words", "name")
    assert client.get("/api/read", params={"q": "mean", "as": "formula"}).json()["mathml"]
    error = refused(client.get("/api/read", params={"q": r"a + \frac{1"}), 400)
    assert error["code"] == "bad_formula"
    assert 1 < error["position"] <= 12
    assert "Bayes" in client.get("/api/complete", params={"q": "baye"}).json()[0]["name"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/equation/nothing%231", "/api/paper/nothing", "/api/similar-papers/nothing", "/api/nothing",
        "/api/search?like=nothing", "/static/../app.py", "/static/nothing.js",
    ],
)  # fmt: skip
def test_unknown_names_and_paths_are_404(client, path):
    refused(client.get(path), 404)


def test_parts_of_a_list_follow_each_other(client):
    whole, *parts = (
        client.get("/api/search", params={"q": BAYES, "k": k, "offset": offset}).json()
        for k, offset in ((6, 0), (2, 0), (4, 2))
    )
    assert [hit for part in parts for hit in part["hits"]] == whole["hits"]
    assert parts[1]["offset"] == 2 and parts[0]["more"]
    assert sorted(rank for band in parts[1]["bands"] for rank in band["ranks"]) == [3, 4, 5, 6]


def test_long_formula_and_several_searches_are_posted(client):
    long = "+".join(f"x_{{{number}}}" for number in range(600))
    assert client.post("/api/search", json={"q": long, "k": 1}).json()["hits"]
    queries = [{"q": BAYES, "k": 2}, {"like": "nothing"}, {"text": "probability", "k": 1}, {}]
    answers = client.post("/api/search/many", json={"queries": queries}).json()
    assert answers[0]["results"]["hits"] == client.get("/api/search", params=queries[0]).json()["hits"]
    assert [answer["problem"] and answer["problem"]["status"] for answer in answers] == [None, 404, None, 400]


def test_draft_finds_papers_and_leaves_nothing(client):
    files = {"file": ("../../my draft.tex", rb"\section{One} \[ P(A|B) = \frac{P(B|A) P(A)}{P(B)} \]")}
    by_file = client.post("/api/similar-papers", files=files, params={"k": 3})
    by_text = client.post("/api/similar-papers", data={"text": files["file"][1].decode()}, params={"k": 3})
    assert len(by_file.json()) == 3
    assert [hit["paper"]["key"] for hit in by_text.json()] == [hit["paper"]["key"] for hit in by_file.json()]
    assert by_file.json()[0]["pairs"][0][0]["id"] == "my-draft.tex#0"
    assert "/tmp" not in by_file.text
    refused(client.post("/api/similar-papers"), 400)
    refused(client.post("/api/similar-papers", files={"file": ("x.tex", b"x" * LIMITS.web_upload_bytes)}), 413)


def test_vectors_are_those_of_the_encoder(client, encoder):
    answer = client.post("/api/embed", json={"formulas": ["x^2", "E = mc^2"]}).json()
    expected = encoder.encode(["x^2", "E = mc^2"])
    assert abs(expected - answer["vectors"]).max() < 1e-6
    assert expected.shape == (2, answer["dimensions"])


def test_paper_comes_in_parts_and_as_bibtex(client):
    whole, first, second = (
        client.get(f"/api/paper/atlas:probability?{part}").json() for part in ("", "limit=7", "offset=7")
    )
    ids = [[e["id"] for section in part["sections"] for e in section["equations"]] for part in (whole, first, second)]
    assert ids[0] == ids[1] + ids[2] and len(ids[1]) == 7
    for part in (f"offset={10**23}", f"limit={10**23}", "limit=0"):
        refused(client.get(f"/api/paper/atlas:probability?{part}"), 400)
    assert "title = {{Probability}}" in client.get("/api/bibtex/atlas:probability").text


def test_page_of_a_paper_opens_at_the_display_of_a_row(tmp_path, encoder):
    note = tmp_path / "note.tex"
    rows = r"\begin{align} p &= q^2 \\ r &= s^3 + t \end{align}"
    note.write_text(r"\documentclass{article}\begin{document}\section{A}$$x = y$$" + rows + r"\end{document}")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(note, formulas="rows")
        library.open_engine()  # makes the index
    folder = tmp_path / "library"
    with SearchEngine(folder, encoder) as engine, make_client(engine, folder) as client:
        row = client.get("/api/search", params={"q": "r = s^3 + t", "k": 1}).json()["hits"][0]["equation"]
        at, display = (int(row[name].rpartition("#")[2]) + 1 for name in ("id", "whole"))
        page = client.get("/paper", params={"key": row["paper"]["key"], "at": at}).text
        assert f'id="eq-{at}"' in page and f'class="hit here" id="eq-{display}"' in page
        assert "hit here" not in client.get("/paper", params={"key": row["paper"]["key"], "at": 10_000}).text


def test_api_page_describes_every_operation(client):
    described = client.get("/openapi.json").json()["paths"]
    page = client.get("/api", headers={"Accept": "text/html"}).text
    assert page.count("<section>") == sum(len(methods) for methods in described.values()) > 10


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ("q=x&k=1000000000", "k"), ("q=x&k=-1", "k"), ("q=x&k=0", "k"), ("q=x&k=NaN", "k"), ("q=x&k=1e2", "k"),
        ("q=x&k=", "k"), ("q=x&limit=3", "limit: there is no such parameter"), ("q=x&offset=-1", "offset"),
        ("q=x&k=%D9%A3", "k"), ("", "nothing to search for"), ("q=%20", "nothing to search for"),
        ("q=x&from=inf", "from"), ("q=x&to=-5", "to"), ("q=x&group=perhaps", "group"),
        ("q=" + "x" * (LIMITS.web_query_chars + 1), "q"), ("q=x" + "&field=a" * 51, "field"),
        ("q=%ff%fe", "UTF-8"), ("q=x&%C3=1", "UTF-8"),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused_by_name(client, parameters, named):
    assert named in refused(client.get(f"/api/search?{parameters}"), 400)["detail"]


def test_unknown_format_and_wrong_method_are_refused(client):
    refused(client.get("/export?q=x&format=exe"), 400)
    refused(client.put("/api/search"), 405)
    assert client.head("/api/facets").status_code == client.head("/").status_code == 200
    refused(client.post("/api/facets"), 405)


def test_too_deep_formula_is_refused(client):
    error = refused(client.get("/api/search", params={"q": "{" * 3_000 + "}" * 3_000}), 400)
    assert error["code"] in ("limit_reached", "bad_formula")


def test_large_body_is_refused_before_it_is_read(server: Running):
    host, port = server.address.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /api/judgements HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000000\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))  # the server closes the connection
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_large"' in answer


def test_body_without_length_is_limited(client):
    pieces = (b" " * 65_536 for _ in range(20))
    refused(client.post("/api/judgements", content=pieces, headers={"Content-Type": "application/json"}), 413)


def test_requests_of_other_hosts_and_sites_are_refused(client):
    refused(client.get("/healthz", headers={"Host": "evil.example"}), 421)
    sent = {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"}
    refused(client.post("/api/judgements", content="{}", headers=sent), 403)
    answer = client.get("/api/search?q=x", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/search?q=x", "/nothing", "/static/base.css", "/healthz", "/export?q=x"])
def test_every_response_has_security_headers(client, path):
    answer = client.get(path, headers={"Accept": "text/html"})
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy and "unsafe-inline" not in policy.replace(
        "style-src-attr 'unsafe-inline'", ""
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "server" not in answer.headers


class TestJudgements:
    def post(self, client, **body) -> httpx.Response:
        return client.post("/api/judgements", json=body)

    def test_are_kept_and_exported_as_evaluation_queries(self, client, folder):
        query = {"latex": "j = 1", "words": "current"}
        first = self.post(client, equation="atlas:probability#4", relevant=True, keywords=["bayes", " "], **query)
        assert first.status_code == 201
        assert first.json()["time"]
        self.post(client, equation="atlas:probability#5", relevant=True, **query)
        self.post(client, equation="atlas:probability#5", relevant=False, keywords=["prior"], **query)
        exported = client.get("/api/judgements").json()["queries"]
        assert [q for q in exported if q["latex"] == "j = 1"] == [
            {
                "latex": "j = 1", "mathml": "", "words": "current", "keywords": ["bayes", "prior"],
                "relevant": ["atlas:probability#4"], "irrelevant": ["atlas:probability#5"],
            }
        ]  # fmt: skip
        assert not verify(folder).problems
        named = {"equation": "atlas:probability#5", **query}
        assert client.delete("/api/judgements", params=named).json() == {"removed": 2}
        assert client.delete("/api/judgements", params=named).json() == {"removed": 0}
        (left,) = (q for q in client.get("/api/judgements").json()["queries"] if q["latex"] == "j = 1")
        assert (left["relevant"], left["irrelevant"]) == (["atlas:probability#4"], [])
        assert not verify(folder).problems

    @pytest.mark.parametrize(
        "body",
        [
            {"relevant": True, "latex": "x"},
            {"equation": "atlas:probability#4", "relevant": True},
            {"equation": "atlas:probability#4", "relevant": "yes", "latex": "x"},
            {"equation": "atlas:probability#4", "relevant": True, "latex": 3},
            {"equation": "atlas:probability#4", "relevant": True, "latex": "x", "keywords": "word"},
        ],
    )
    def test_that_say_nothing_are_refused(self, client, body):
        answer = self.post(client, **body)
        refused(answer, 400)

    def test_of_unknown_equations_and_wrong_bodies_are_refused(self, client):
        refused(self.post(client, equation="nothing#1", relevant=True, latex="x"), 404)
        broken = refused(client.post("/api/judgements", content="{", headers={"Content-Type": "application/json"}), 400)
        assert broken["detail"] == "the body is not JSON (from character 1 on)"
        refused(client.post("/api/judgements", content="[]", headers={"Content-Type": "application/json"}), 400)
        refused(client.post("/api/judgements", content="{}", headers={"Content-Type": "text/plain"}), 400)


def test_hostile_papers_are_escaped(client):
    found = client.get(f"/api/paper/{HOSTILE}")
    assert found.headers["content-type"] == "application/json"
    assert "<script>" in json.loads(found.text)["paper"]["title"]
    page = client.get("/paper", params={"key": HOSTILE}, headers={"Accept": "text/html"}).text
    assert "<script>alert" not in page
    assert "<img" not in page
