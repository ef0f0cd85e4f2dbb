"""`python -m research` on the atlas, at the smallest scale: one test per command."""

# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import orjson
import pytest

pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")
if find_spec("sklearn") is None:
    pytest.skip("baselines need scikit-learn: pip install 'eqkin[eval]'", allow_module_level=True)

from eqkin.evaluation.labelled import read_labelled
from eqkin.formulas.terms import DocumentFrequencies
from research.__main__ import main
from research.experiment import SMALL_SCALE
from research.keywords import BUNDLED_QUERIES
from research.sets import NOTATION_FILES
from tests.cli.running import run_main
from tests.cli.test_evaluate import judged_folder, labelled_file


@pytest.fixture(scope="module", autouse=True)
def smallest_scale(tmp_path_factory):
    """Make `--small` even smaller: fewer steps, notations and queries."""
    scale = replace(SMALL_SCALE, triplets=120, network=("width=16",), distractors=40, searches=2, resamples=30)
    folder = tmp_path_factory.mktemp("bundled")
    for name in (*NOTATION_FILES, BUNDLED_QUERIES.name):
        entries = orjson.loads(BUNDLED_QUERIES.with_name(name).read_bytes())
        (folder / name).write_bytes(orjson.dumps(entries[::8] if name == BUNDLED_QUERIES.name else entries[:40]))
    notations = [read_labelled(folder / name) for name in NOTATION_FILES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("research.__main__.SMALL_SCALE", scale)
        patch.setattr("research.sets.read_notations", lambda: notations)
        patch.setattr("research.keywords.BUNDLED_QUERIES", folder / BUNDLED_QUERIES.name)
        yield


@pytest.mark.parametrize(
    ("command", "options", "results"),
    [
        ("sets", ["--small", "--systems", "tfidf-latex,bag-of-words", "--end-to-end"], ["sets"]),
        ("study", ["--small", "--systems", "tfidf-latex,bag-of-words"], ["study"]),
        ("networks", ["--small", "--names", "no-masking,paper-30"], ["ablation", "size"]),
        ("equalities", ["--small", "--systems", "bag-of-words"], ["equalities"]),
        ("data", [], ["data"]),
        ("examples", [], ["examples"]),
    ],
)
def test_experiments_run_on_the_atlas(atlas_library, tmp_path, command, options, results):
    ended = run_main(main, command, "-l", atlas_library, "--out", tmp_path, *options)
    assert ended.code == 0, ended.err
    for name in results:
        result = orjson.loads((tmp_path / "results" / f"{name}.json").read_bytes())
        assert result["tables"][0]["rows"] and result["tables"][0]["title"] in ended.out
        assert ("small run" in result["title"]) == ("--small" in options)


def test_weights_are_measured_on_all_sets(atlas_library, tmp_path, monkeypatch):
    monkeypatch.setattr("research.weights.FACTORS", ())  # choosing is tested in `test_weights`
    sets = ["--judged", judged_folder(tmp_path / "tiny"), "--labelled", labelled_file(tmp_path)]
    ended = run_main(main, "weights", "-l", atlas_library, "--small", *sets)
    assert ended.code == 0, ended.err
    assert "chosen on the other sets" in ended.out
    assert all(f"chosen without {name}" in ended.err for name in ("tiny", "mine", "atlas", "notations"))


def test_frequencies_are_counted_in_a_library(atlas_library, tmp_path):
    ended = run_main(main, "frequencies", atlas_library, tmp_path / "table")
    assert ended.code == 0, ended.err
    assert DocumentFrequencies.load(tmp_path / "table").formulas > 100


@pytest.mark.parametrize("command", ["data", "networks", "study", "examples", "all"])
def test_missing_library_is_reported_first(tmp_path, command):
    ended = run_main(main, command, "-l", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.code == 3 and not (tmp_path / "out").exists()
