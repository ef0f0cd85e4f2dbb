"""What people expect of results and encoders in a notebook."""

import numpy as np
import pytest

from eqkin import BadInput, Encoder, Library
from eqkin.formulas.mathml import parse_mathml

BAYES = r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}"


@pytest.fixture(scope="module")
def library(atlas_library):
    with Library.open(atlas_library) as opened:
        yield opened


def test_results_are_a_sequence_with_a_short_repr(library):
    results = library.search(BAYES, k=12)
    assert len(results) == 12 and list(results)[0] is results[0] is results.hits[0]
    assert list(results[2:4]) == list(results.hits[2:4])
    lines = repr(results).splitlines()
    assert len(lines) == 12 and len(repr(results)) < 2_000  # a heading, ten hits, and "..."
    assert "<math" not in repr(results)


def test_results_show_formulas_in_notebooks_and_escape_text(library):
    results = library.search(BAYES, k=3, explain=True)
    table = results._repr_html_()
    assert table.count("<math") == 3 and "kin-" in table
    parse_mathml(results[0].equation.mathml)
    assert results._repr_latex_().startswith("$$") and results._repr_latex_().count("&") >= 3


def test_results_become_records_and_a_data_frame(library):
    results = library.search(BAYES, k=3, offset=2)
    records = results.to_dicts()
    assert [record["rank"] for record in records] == [3, 4, 5]
    assert records[0]["id"] == results[0].equation.id and records[0]["score"] == results[0].score
    pandas = pytest.importorskip("pandas")
    frame = results.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and list(frame["id"]) == [hit.equation.id for hit in results]


def test_filters_can_be_given_by_name(library):
    field = library.search(BAYES, k=1)[0].equation.paper.fields[0]
    for found in (library.search(BAYES, k=5, field=field), library.search(BAYES, k=5, field=[field, "nothing"])):
        assert found.hits and all(field in hit.equation.paper.fields for hit in found)
    assert not library.search(BAYES, k=5, year=(1500, 1501)).hits
    with pytest.raises(TypeError):
        library.search(BAYES, fild="ml")


def test_encoder_encodes_in_batches_and_compares_vectors(capsys):
    encoder = Encoder.load()
    formulas = ["a+b", r"\frac{x}{y}", "c+d", "E=mc^2", "x"]
    whole = encoder.encode(formulas)
    np.testing.assert_allclose(encoder.encode(formulas, batch_size=2, show_progress_bar=True), whole, atol=1e-6)
    similarity = encoder.similarity(whole, whole)
    assert similarity.shape == (5, 5) and similarity[0].argsort()[-2] == 2
    with pytest.raises(BadInput, match="formula 4,"):
        encoder.encode([*formulas[:4], r"\frac{"], batch_size=2)
