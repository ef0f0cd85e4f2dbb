"""No answer of a server contains a path of the server, and the keys that it shows can be used."""

import json
import re

import pytest

from eqkin import Library
from eqkin.index.update import update_index
from eqkin.library.judgements import LocalJudgements
from eqkin.search.engine import SearchEngine
from eqkin.web.keys import hide_folder
from tests.web.conftest import make_client

NOTE = "# Energy\n\nMass is energy.\n\n$$E = mc^2 + \\Theta$$\n\n## More\n\n$$W = \\oint F dx + \\Theta$$\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory, encoder):
    """A folder with a library of files, two of them with the same name."""
    place = tmp_path_factory.mktemp("secret-place")
    for name in ("one", "two"):
        (place / name).mkdir()
        (place / name / "notes.md").write_text(NOTE.replace("Energy", f"Energy {name}").replace("m", name[0]))
    with Library.open(place / "library", create=True) as library:
        library.add(place / "one")
        library.add(place / "two")
        update_index(library, encoder)
    return place


@pytest.fixture(scope="module")
def client(place, encoder):
    with SearchEngine(place / "library", encoder) as engine:
        with make_client(engine, place / "library") as made:
            yield made


def test_keys_of_files_hide_their_folder_and_differ_by_it():
    shown = [hide_folder(f"file:{path}") for path in ("/a/b/x.tex", "/a/c/x.tex", "C:\\b\\x.tex", "/x.tar!b/x.tex")]
    assert len(set(shown)) == 4
    assert all(re.fullmatch(r"file:[0-9a-f]{10}/x\.tex", key) for key in shown)
    assert [hide_folder(key) for key in (shown[0], "arxiv:math/0309136", "atlas:probability")] == [
        shown[0], "arxiv:math/0309136", "atlas:probability",
    ]  # fmt: skip


def test_no_answer_contains_a_path_of_the_server(client, place):
    hits = client.get("/api/search", params={"q": r"E = mc^2 + \Theta", "facets": True}).json()["hits"]
    name, key = hits[0]["equation"]["id"], hits[0]["equation"]["paper"]["key"]
    judged = {"equation": name, "relevant": True, "latex": "x"}
    answers = [
        client.get(path, params=params, headers={"Accept": "text/html"})
        for path, params in (
            ("/api/search", {"q": r"E = mc^2 + \Theta", "facets": True, "explain": True}),
            ("/api/search", {"like": name}),
            ("/search", {"q": r"E = mc^2 + \Theta"}),
            ("/search", {"like": name}),
            (f"/api/equation/{name.replace('#', '%23')}", {}),
            (f"/api/equation/{key}%23999", {}),
            (f"/api/paper/{key}", {}),
            (f"/api/bibtex/{key}", {}),
            (f"/api/similar-papers/{key}", {}),
            ("/paper", {"key": key}),
            ("/equation", {"id": name}),
            *(("/export", {"q": "x", "format": form}) for form in ("json", "csv", "bibtex", "ris")),
        )
    ]
    answers += [client.post("/api/judgements", json=judged), client.get("/api/judgements")]
    answers += [client.post("/api/similar-papers", files={"file": ("mine.md", NOTE.encode())})]
    assert [answer.status_code for answer in answers].count(200) == len(answers) - 2  # 404, 201
    assert [answer.url for answer in answers if "secret-place" in answer.text or str(place.parent) in answer.text] == []


def test_shown_keys_are_understood_like_those_of_the_library(client, place):
    asked = {"q": r"E = mc^2 + \Theta"}
    first = client.get("/api/search", params=asked).json()["hits"][0]["equation"]
    key = first["paper"]["key"]
    assert re.fullmatch(r"file:[0-9a-f]{10}/notes\.md", key)
    for papers, kept in (({"paper": key}, {key}), ({"without": key}, None)):
        found = {
            hit["equation"]["paper"]["key"] for hit in client.get("/api/search", params=asked | papers).json()["hits"]
        }
        assert found == kept if kept else found and key not in found
    folder = next(
        name for name in ("one", "two") if hide_folder(f"file:{(place / name / 'notes.md').resolve()}") == key
    )
    own = f"file:{(place / folder / 'notes.md').resolve()}"
    shown, stored = (client.get(f"/api/paper/{name}").json() for name in (key, own))
    assert shown == stored and shown["paper"]["key"] == key


def test_judgements_are_stored_with_the_keys_of_the_library(client, place):
    name = client.get("/api/search", params={"q": r"W = \oint F dx + \Theta"}).json()["hits"][0]["equation"]["id"]
    body = {"equation": name, "relevant": False, "words": "work"}
    assert client.post("/api/judgements", json=body).json()["equation"] == name
    stored = [each.equation for each in LocalJudgements(place / "library").list_all() if each.words == "work"]
    assert stored[0].startswith(f"file:{place.resolve()}")
    assert name in json.dumps(client.get("/api/judgements").json())
    assert client.delete("/api/judgements", params={"equation": name, "words": "work"}).json() == {"removed": 1}
