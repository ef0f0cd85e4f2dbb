import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.encode import EncodeReport
from eqkin.api import Library
from eqkin.encoder.architecture import Architecture
from tests.encoder.models import SMALL_MIX, random_model

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, ["encode", "--rounds", "2", "--formulas", "5", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_encoder_is_timed_beside_the_bare_products():
    figures = json.loads(run("--trees", 20, "--json"))
    assert figures["trees"] == 20
    assert figures["nodes"] > 20
    assert figures["products_gflops"] > 0
    assert figures["numpy_to_products"] > 0
    assert figures["formulas"] == 5
    assert figures["formula_median_ms"] > figures["encoding_median_ms"] > 0
    assert figures["formula_p99_ms"] >= figures["formula_median_ms"]


def test_a_library_and_a_model_of_ones_own_can_be_timed(tmp_path):
    (tmp_path / "note.md").write_text("$$ a^2 + b^2 = c^2 $$\n\n$$ x = 1 $$\n")
    with Library.open(tmp_path / "library") as library:
        library.add(tmp_path / "note.md")
    random_model(SMALL_MIX).save(tmp_path / "model")
    text = run("--library", tmp_path / "library", "--model", tmp_path / "model")
    assert text.startswith("2 trees, ")
    assert "% of the bare products" in text
    assert "LaTeX to vector" in text
    assert "times the time that the paper's network takes" in text


def test_an_empty_library_is_no_input(tmp_path):
    Library.open(tmp_path / "library").close()
    result = runner.invoke(app, ["encode", "--library", str(tmp_path / "library")])
    assert "no trees there" in str(result.exception)


def test_the_cost_beside_the_papers_network_is_a_ratio_of_rounds():
    shape = Architecture(512, 4, dimensions=64, kind="mix")
    report = EncodeReport(shape, trees=10, nodes=1_000, products=[1.0], numpy=[3.0], paper=[2.0])
    assert report.summary()["cost_to_paper"] == pytest.approx(1.5)
    assert report.operations == 2 * (1_000 * (256 * 512 + 4 * 512 * 512) + 10 * 1_024 * 64)


def test_speeds_count_the_networks_products_and_ratios_are_of_rounds():
    report = EncodeReport(Architecture(), trees=10, nodes=1_000, products=[1.0, 1.0, 4.0], numpy=[2.0, 4.0, 5.0])
    report.torch = [4.0, 4.0, 5.0]
    figures = report.summary()
    operations = 2 * (1_000 * (256 * 512 + 3 * 512 * 512) + 10 * 512 * 64)
    assert figures["products_gflops"] == pytest.approx(operations / 1e9)
    assert figures["numpy_gflops"] == pytest.approx(operations / 4e9)
    assert figures["numpy_trees_per_second"] == pytest.approx(2.5)
    assert figures["numpy_to_products"] == pytest.approx(0.5)
    assert figures["numpy_to_torch"] == pytest.approx(1.0)
    assert figures["torch_to_products"] == pytest.approx(0.25)
