"""The worked examples: titles and words of results, no formulas."""

import json
from pathlib import Path

import pytest

from eqkin import Encoder, Library
from eqkin.index.update import update_index
from research.examples import run_examples
from research.experiment import Experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("examples")
    machine = r"\section{Networks} A Boltzmann machine has energy \[ E = -\sum_{i<j} w_{ij} s_i s_j - \sum_i b_i s_i \]"
    magnets = r"\section{Spins} Rising heat. \[ H = -\sum_{i<j} J_{ij} \sigma_i \sigma_j - \sum_i h_i \sigma_i \]"
    bayes = (
        r"\section{Chances} Known: \[ P(s \mid d) = \frac{P(d \mid s) P(s)}{P(d)} \]"
        r"\section{Totals} and \[ P(d) = \int P(d \mid s) P(s) ds \] and \[ \nabla \times B = 0 \]"
    )
    records = [
        {"doc_id": "machine", "title": "Learning", "latex": machine},
        {"doc_id": "magnets", "title": "On the Ising model", "latex": magnets},
        {"doc_id": "bayes", "title": "Bayes", "latex": bayes},
    ]
    (place / "papers.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(place / "library", create=True) as library:
        library.add(place / "papers.jsonl")
        update_index(library, Encoder.load())
    return place / "library"


@pytest.fixture
def context(tmp_path) -> Experiment:
    return Experiment(tmp_path)


def test_examples_list_titles_and_words_without_formulas(context, folder):
    with Library.open(folder) as library:
        result = run_examples(context, library)
    counts, bayes, _, ising, _ = result.tables
    assert [table.name for table in result.tables[1:3]] == ["examples-bayes", "examples-total"]
    for system in ("eqkin", "paper"):
        assert bayes.rows[0].cells[f"{system}-title"] == "Bayes"
        named = {row.cells[f"{system}-title"]: row.cells[f"{system}-words"] for row in ising.rows}
        assert named["Learning"] == "Boltzmann machine, Boltzmann" and named["On the Ising model"] == "Ising"
    assert [row.title for row in ising.rows] == [str(rank) for rank in range(1, len(ising.rows) + 1)]
    assert [row.title for row in counts.rows[4:6]] == ["Ising model, eqkin", "Ising model, paper's network"]
    assert all(row.cells["Ising"].startswith("1, first at ") for row in counts.rows[4:6])
    shown = " ".join(str(cell) for table in result.tables for row in table.rows for cell in row.cells.values())
    assert "\\" not in shown  # no formula is quoted
    assert result.facts["library"].startswith("5 equations in 3 papers")


def test_examples_of_an_unrelated_library_have_no_words(context, tmp_path):
    path = tmp_path / "paper.jsonl"
    path.write_text(json.dumps({"doc_id": "a", "title": "Rising", "latex": r"Promising. \[ a + b = c \]"}))
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(path)
        update_index(library, Encoder.load())
        result = run_examples(context, library)
    assert all(
        not row.cells["eqkin-words"] and not row.cells["paper-words"]
        for table in result.tables[1:]
        for row in table.rows
    )
    assert all(cell == "none" for row in result.tables[0].rows for cell in row.cells.values())
