"""`python -m benchmarks index` on a small library."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from eqkin.api import Library


@pytest.fixture
def atlas(tmp_path: Path) -> Path:
    with Library.open(tmp_path / "atlas") as library:
        library.add("atlas:")
    return tmp_path / "atlas"


def test_systems_are_compared_on_the_same_vectors(atlas: Path) -> None:
    arguments = ["index", "--library", str(atlas), "--vectors", "3000", "--queries", "20"]
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (told["vectors"], told["real"], told["queries"]) == (3_000, 1_381, 20)
    exact, ours = told["systems"][:2]
    assert exact["recall_10"] == 1
    assert ours["recall_10"] >= 0.9
    assert ours["bytes_a_vector"] < 160
    assert len(told["systems"]) == 4 or "annoy is not installed" in told["notes"][0]


def test_too_few_equations_are_refused(tmp_path: Path) -> None:
    Library.open(tmp_path / "empty").close()
    refused = CliRunner().invoke(app, ["index", "--library", str(tmp_path / "empty")])
    assert "too few" in str(refused.exception)
