"""A web server without a library: requests, judgements, and filters with hostile names."""

from eqkin.cluster.milvus.push import push_library
from eqkin.cluster.milvus.snapshot import open_backend
from eqkin.search import Filters, SearchEngine
from eqkin.web.app import create_app
from tests.cluster.milvus.conftest import paper
from tests.web.conftest import Running


def test_http_client_is_answered_from_milvus(lite, filled, encoder, collection, tmp_path):
    library = filled(paper("a", "E = mc^2", year=1999, fields=["physics"]))
    push_library(library, lite.uri, encoder.digest, collection)
    engine = SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder)
    running = Running(create_app(engine, None))
    with running.client() as client:
        assert client.get("/api/search?q=E").json()["hits"][0]["equation"]["id"] == "record:a#0"
        assert client.get("/api/facets").json() == {"fields": {"physics": 1}, "years": {"1999": 1}}
        assert client.get("/api/map").json()["ids"] == ["record:a#0"]
        assert client.get("/api/equation/record:a%235").status_code == 404
        assert client.get("/search?q=E", headers={"Accept": "text/html"}).status_code == 200
        body = {"equation": "record:a#0", "relevant": True, "latex": "E", "keywords": ["energy"]}
        assert client.post("/api/judgements", json=body).status_code == 403
        assert client.get("/api/judgements").json()["queries"] == []
    running.stop()
    engine.close()


HOSTILE = [
    'a" or year > 0 or "',
    "back\\slash",
    "new\nline",
    "100%_",
    "Ünï 😀",
    "'; drop",
    "\\",
    '"',
    "\u2028",
    "x\x01y",
]


def test_hostile_names_are_found_and_pruned(server, filled, encoder, collection):
    names = HOSTILE if server.kind == "milvus-lite" else HOSTILE[:5]  # the other one answers slowly
    records = [
        paper(f"h{at} {name}", rf"x_{{{at}}} = y", fields=[name, "all"], authors=[name])
        for at, name in enumerate(names)
    ]
    library = filled(*records)
    push_library(library, server.uri, encoder.digest, collection)
    keys = sorted(known["key"] for known in library.list_papers())
    assert len(keys) == len(names)

    def found(engine, **filters):
        hits = engine.search("x = y", k=50, filters=Filters(**filters), fold=False, group=False).hits
        return sorted(hit.equation.paper.key for hit in hits)

    with (
        SearchEngine(open_backend(server.uri, collection, encoder.digest), encoder) as engine,
        SearchEngine(library, encoder) as local,
    ):
        assert found(engine, fields=("all",)) == keys
        for at, name in enumerate(names):
            (own,) = (key for key in keys if key.startswith(f"record:h{at} "))
            assert found(engine, papers=(own,)) == [own]
            assert found(engine, without_papers=(own,)) == [key for key in keys if key != own]
            assert found(engine, fields=(name,)) == found(local, fields=(name,))
            assert engine.get_paper(own).paper == local.get_paper(own).paper == engine.get_equation(f"{own}#0").paper
            if server.kind == "milvus-lite" and any(letter.isalnum() for letter in name):
                assert found(engine, authors=(name,)) == found(local, authors=(name,))
    assert push_library(library, server.uri, encoder.digest, collection).unchanged == len(names)
    library = filled(paper("h0", "z = 1"), *records[1:3])
    report = push_library(library, server.uri, encoder.digest, collection, prune=True)
    assert (report.papers, report.unchanged, report.removed, report.collection) == (1, 2, len(names) - 2, 3)
