"""A server without a library: requests, filters with hostile names, and judgements."""

from contextlib import closing
from dataclasses import replace

import pytest

from eqkin.backends.milvus import open_backend, open_judgements
from eqkin.backends.milvus.judgements import MilvusJudgements
from eqkin.backends.milvus.push import push_library
from eqkin.errors import BadInput, LimitReached
from eqkin.library.judgements import Judgement
from eqkin.limits import LIMITS
from eqkin.search import Filters, SearchEngine
from eqkin.web.app import create_app
from eqkin.web.served import ServeTarget
from tests.backends.milvus.conftest import paper
from tests.web.conftest import Running


def test_a_client_gets_its_answer_over_http_from_milvus(lite, filled, encoder, collection):
    library = filled(paper("a", "E = mc^2", year=1999, fields=["physics"]))
    push_library(library, lite.uri, encoder.digest, collection)
    engine, kept = (
        SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder),
        open_judgements(lite.uri, collection),
    )
    running = Running(create_app(engine, kept))
    with running.client() as client:
        assert client.get("/api/search?q=E").json()["hits"][0]["equation"]["id"] == "record:a#0"
        assert client.get("/api/facets").json() == {"fields": {"physics": 1}, "years": {"1999": 1}}
        assert client.get("/map.json").json()["ids"] == ["record:a#0"]
        assert client.get("/api/equation/record:a%235").status_code == 404
        assert client.get("/search?q=E", headers={"Accept": "text/html"}).status_code == 200
        body = {"equation": "record:a#0", "relevant": True, "latex": "E", "keywords": ["energy"]}
        assert client.post("/api/judgements", json=body).status_code == 201
        assert client.get("/api/judgements").json()["queries"][0]["relevant"] == ["record:a#0"]
    running.stop()
    engine.close()
    kept.close()


def test_what_is_served_is_let_go(lite, filled, encoder, collection):
    push_library(filled(paper("a", "E = mc^2")), lite.uri, encoder.digest, collection)
    with ServeTarget(milvus=lite.uri, collection=collection).open_app() as app:
        service = app.state.service
        assert service.judgements.all() == []
        connections = service.judgements._connection, service.engine.backend.connection
        assert all(connection._client for connection in connections)
    assert not any(connection._client for connection in connections)


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


def test_hostile_names_are_names_and_go_again(server, filled, encoder, collection):
    records = [
        paper(f"h{at} {name}", rf"x_{{{at}}} = y", fields=[name, "all"], authors=[name])
        for at, name in enumerate(HOSTILE)
    ]
    library = filled(*records)
    push_library(library, server.uri, encoder.digest, collection)
    keys = sorted(known["key"] for known in library.papers())
    assert len(keys) == len(HOSTILE)

    def found(engine, **filters):
        hits = engine.search("x = y", k=50, filters=Filters(**filters), fold=False, group=False).hits
        return sorted(hit.equation.paper.key for hit in hits)

    with (
        SearchEngine(open_backend(server.uri, collection, encoder.digest), encoder) as engine,
        SearchEngine(library, encoder) as local,
    ):
        assert found(engine, fields=("all",)) == keys
        for at, name in enumerate(HOSTILE):
            (own,) = (key for key in keys if key.startswith(f"record:h{at} "))
            assert found(engine, papers=(own,)) == [own]
            assert found(engine, without_papers=(own,)) == [key for key in keys if key != own]
            assert found(engine, fields=(name,)) == found(local, fields=(name,))
            assert engine.get_paper(own).paper == local.get_paper(own).paper == engine.get_equation(f"{own}#0").paper
            if server.kind == "milvus-lite" and any(letter.isalnum() for letter in name):
                assert found(engine, authors=(name,)) == found(local, authors=(name,))
    assert push_library(library, server.uri, encoder.digest, collection).unchanged == len(HOSTILE)
    library = filled(paper("h0", "z = 1"), *records[1:3])
    report = push_library(library, server.uri, encoder.digest, collection, prune=True)
    assert (report.papers, report.unchanged, report.removed, report.collection) == (1, 2, len(HOSTILE) - 2, 3)


def test_judgements_are_kept_beside_the_collection(lite, collection):
    kept = MilvusJudgements(lite.uri, collection, replace(LIMITS, web_judgements=3))
    assert kept.export() == kept.list_all() == []
    first = kept.add(Judgement("p#1", True, latex="x", keywords=("a", "b")))
    kept.add(Judgement("p#2", True, latex="x", keywords=("b", "c")))
    kept.add(Judgement("p#1", False, latex="x"))
    with closing(open_judgements(lite.uri, collection)) as other:  # another server sees the same
        (query,) = other.export()
        assert other.list_all()[0] == first and first.time
    assert (query.latex, query.keywords, query.relevant, query.irrelevant) == ("x", ["a", "b", "c"], ["p#2"], ["p#1"])
    with pytest.raises(LimitReached):
        kept.add(Judgement("p#3", True, latex="x"))
    with pytest.raises(BadInput):
        kept.add(Judgement("", True, latex="x"))
    with pytest.raises(LimitReached):
        kept.add(Judgement("p#3", True, latex="x" * 60_000))
    kept.close()
