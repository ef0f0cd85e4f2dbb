"""OpenAPI says what is sent: every answer fits its schema, and a client made from the document works."""

import importlib
import json
import random
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"
DRAFT = rb"\title{Mine} \section{One} \[ P(A|B) = \frac{P(B|A) P(A)}{P(B)} \] \[ H = -\sum_i p_i \log p_i \]"
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("get", "/api/search", {"params": {"q": BAYES, "k": 3, "explain": 1, "facets": 1}}),
    ("get", "/api/search", {"params": {"text": "probability", "k": 3}}),
    ("get", "/api/search", {"params": {"q": r"\frac{?a}{?a + ?b}", "k": 3, "explain": 1, "from": 1900}}),
    ("post", "/api/search", {"json": {"q": BAYES, "k": 2, "field": ["probability"]}}),
    ("post", "/api/search/many", {"json": {"queries": [{"q": BAYES, "k": 1}, {"q": r"\frac{1"}]}}),
    ("get", "/api/read", {"params": {"q": "1/sqrt(1-v^2/c^2)"}}),
    ("get", "/api/read", {"params": {"q": "law of total probability", "as": "words"}}),
    ("get", "/api/complete", {"params": {"q": "baye"}}),
    ("get", "/api/equation/{id}", {"path": {"id": "atlas:probability%234"}}),
    ("get", "/api/paper/{key}", {"path": {"key": "atlas:probability"}, "params": {"offset": 2, "limit": 3}}),
    ("get", "/api/bibtex/{key}", {"path": {"key": "atlas:probability"}}),
    ("get", "/api/similar-papers/{key}", {"path": {"key": "atlas:probability"}, "params": {"k": 2}}),
    ("post", "/api/similar-papers", {"files": {"file": ("draft.tex", DRAFT)}, "params": {"k": 2}}),
    ("post", "/api/embed", {"json": {"formulas": ["x^2", "y"]}}),
    ("get", "/api/facets", {}),
    ("get", "/api/judgements", {}),
    (
        "post",
        "/api/judgements",
        {"json": {"equation": "atlas:probability#4", "relevant": True, "latex": "o = 1", "keywords": ["one"]}},
    ),
    ("delete", "/api/judgements", {"params": {"equation": "atlas:probability#4", "latex": "o = 1"}}),
    ("get", "/export", {"params": {"q": "x", "format": "csv"}}),
    ("get", "/healthz", {}),
]
WRONG = [
    ("get", "/api/search", {"params": {"q": r"a + \frac{1"}}, 400),
    ("get", "/api/search", {"params": {"q": "x", "colour": "red"}}, 400),
    ("post", "/api/search", {"json": {"q": "x", "colour": "red"}}, 400),
    ("get", "/api/equation/{id}", {"path": {"id": "nothing"}}, 404),
    ("post", "/api/similar-papers", {"files": {"file": ("draft.tex", b"no equations")}}, 400),
    ("post", "/api/embed", {"json": {"formulas": [r"\frac{1"]}}, 400),
    ("post", "/api/search/many", {"json": {"queries": []}}, 400),
]
HOSTILE_VALUES = [
    "", "0", "-1", "1e9", "9" * 30, "²", "٣", "NaN", "\0", "\uffff", "😀" * 9, "x", r"\frac{1", "{" * 300,
    "<math>" * 90,
    "<!DOCTYPE a [<!ENTITY b 'c'>]><math>&b;</math>", "&#99999999999;", "law of total probability", "../../etc/passwd",
    "atlas:probability#x", "atlas:probability", "'; drop table x", "a" * 20_001,
]  # fmt: skip


@pytest.fixture(scope="module")
def document(client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


def send(client: httpx.Client, method: str, path: str, given: dict[str, Any]) -> httpx.Response:
    given = dict(given)
    return client.request(method, path.format(**given.pop("path", {})), **given)


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Validate a value; properties that the schema does not name are errors too."""
    closed = json.loads(json.dumps(document["components"]))
    for component in closed["schemas"].values():
        component.setdefault("additionalProperties", False)
    errors = Draft202012Validator({**schema, "components": closed}).iter_errors(value)
    assert [(list(error.absolute_path), error.message[:200]) for error in errors] == []


def test_requests_cover_every_operation(document):
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert {(method, path) for method, path, _ in REQUESTS} == described


@pytest.mark.parametrize(("method", "path", "given"), REQUESTS)
def test_answer_fits_its_schema(client, document, method, path, given):
    answer = send(client, method, path, given)
    responses = document["paths"][path][method]["responses"]
    assert str(answer.status_code) in responses, answer.text
    kind = answer.headers["content-type"].partition(";")[0]
    content = responses[str(answer.status_code)]["content"]
    assert kind in content
    if kind == "application/json":
        check(document, content[kind]["schema"], answer.json())


@pytest.mark.parametrize(("method", "path", "given", "status"), WRONG)
def test_refusal_is_a_problem_of_one_shape(client, document, method, path, given, status):
    answer = send(client, method, path, given)
    assert answer.status_code == status, answer.text
    content = document["paths"][path][method]["responses"]["4XX"]["content"]
    check(document, content[answer.headers["content-type"]]["schema"], answer.json())
    assert answer.json()["status"] == status
    assert "Traceback" not in answer.text and "/tmp" not in answer.text


def test_hostile_values_are_answered_or_refused(client, document):
    chance = random.Random(0)
    operations = [(path, found["get"]) for path, found in document["paths"].items() if "get" in found]
    for _ in range(150):
        path, operation = chance.choice(operations)
        described = operation.get("parameters", [])
        values = {one["name"]: chance.choice(HOSTILE_VALUES) for one in described if chance.random() < 0.3}
        answer = client.get(re.sub(r"\{.*\}", lambda _: quote(chance.choice(HOSTILE_VALUES)), path), params=values)
        assert answer.status_code < 500, (path, values, answer.text)
        assert answer.status_code == 200 or answer.headers["content-type"] == "application/problem+json"


def test_client_made_from_the_document_reads_the_answers(client, document, tmp_path, monkeypatch):
    generator = pytest.importorskip("datamodel_code_generator")
    generator.generate(
        json.dumps(document),
        input_file_type=generator.InputFileType.OpenAPI,
        output=tmp_path / "eqkin_client.py",
        output_model_type=generator.DataModelType.PydanticV2BaseModel,
        target_python_version=generator.PythonVersion.PY_311,
        formatters=[],
    )
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module("eqkin_client")

    found = models.SearchAnswer.model_validate(client.get("/api/search", params={"q": BAYES, "k": 3}).json())
    assert [hit.equation.paper.key for hit in found.hits].count("atlas:probability") >= 1
    batch = models.SearchBatch(queries=[models.StrictSearch(q=BAYES, k=1), models.StrictSearch(q=r"\frac{1")])
    sent = batch.model_dump(by_alias=True, exclude_unset=True, mode="json")
    answers = [models.BatchAnswer.model_validate(one) for one in client.post("/api/search/many", json=sent).json()]
    assert answers[0].results.hits[0].equation.id == found.hits[0].equation.id
    assert answers[1].problem.code == "bad_formula" and answers[1].problem.position > 1
    part = models.PaperPart.model_validate(client.get("/api/paper/atlas:probability?limit=2").json())
    assert sum(len(section.equations) for section in part.sections) == 2 < part.equations
