"""`python -m research` on the atlas, at the smallest scale."""

# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")
if find_spec("sklearn") is None:
    pytest.skip("baselines need scikit-learn: pip install 'eqkin[eval]'", allow_module_level=True)

from eqkin.evaluation.context import SMALL_SCALE

from eqkin.evaluation.labelled import read_labelled
from eqkin.formulas.idf import DocumentFrequencies
from research.__main__ import main
from research.bitmap_cnn import BITMAP_NETWORKS
from research.keywords import BUNDLED_QUERIES
from research.sets import NOTATION_FILES
from tests.cli.running import Ended, eqkin, run_main
from tests.cli.test_evaluate import judged_folder, labelled_file, rows_of, times


def reproduce(*arguments: object) -> Ended:
    return run_main(main, *arguments)


class Ran(NamedTuple):
    """A folder in which all experiments were run, and what was printed."""

    out: Path
    library: Path
    ended: Ended

    def result(self, name: str) -> Any:
        return orjson.loads((self.out / "results" / f"{name}.json").read_bytes())


NETWORKS, SYSTEMS = "full,no-augmentation,graph-10", "tfidf-latex,bag-of-words"
EXPERIMENTS = (
    "ablation",
    "bitmaps",
    "data",
    "equalities",
    "examples",
    "formulas",
    "sets",
    "size",
    "speed",
    "statistics",
)


@pytest.fixture(scope="module", autouse=True)
def smallest_scale(tmp_path_factory):
    """Make `--small` even smaller: fewer steps, notations, queries, and images in a batch."""
    scale = replace(
        SMALL_SCALE, triplets=120, triples=400, width=16, bitmaps=30, distractors=40, searches=2, resamples=30
    )
    folder = tmp_path_factory.mktemp("bundled")
    for name in (*NOTATION_FILES, BUNDLED_QUERIES.name):
        entries = orjson.loads(BUNDLED_QUERIES.with_name(name).read_bytes())
        (folder / name).write_bytes(orjson.dumps(entries[::8] if name == BUNDLED_QUERIES.name else entries[:40]))
    notations = [read_labelled(folder / name) for name in NOTATION_FILES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eqkin.evaluation.context.SMALL_SCALE", scale)
        patch.setattr("research.sets.read_notations", lambda: notations)
        patch.setattr("research.keywords.BUNDLED_QUERIES", folder / BUNDLED_QUERIES.name)
        for name, settings in BITMAP_NETWORKS.items():
            patch.setitem(BITMAP_NETWORKS, name, replace(settings, batch_size=8, times=min(settings.times, 2)))
        yield


@pytest.fixture(scope="module")
def ran(atlas_library, tmp_path_factory) -> Ran:
    """`make reproduce SMALL=1` with some of the networks and systems."""
    out = tmp_path_factory.mktemp("evaluation")
    rows = [{"name": "eqkin", "equations_per_second": 900.0}]
    report = {"benchmark": "encode", "machine": "an abacus", "facts": {}, "tables": {"Trees to vectors": rows}}
    (out / "encode.json").write_bytes(orjson.dumps(report))
    options = ["--small", "--names", NETWORKS, "--systems", SYSTEMS, "--benchmark", out / "encode.json"]
    return Ran(out, atlas_library, reproduce("all", *options, "-l", atlas_library, "--out", out))


@pytest.mark.parametrize("name", [*EXPERIMENTS, "study", "study-held-out"])
def test_all_experiments_run_on_the_atlas(ran, name):
    assert ran.ended.code == 0, ran.ended.err
    if name == "bitmaps" and "left out" in ran.ended.err:
        pytest.skip("no Chromium is installed (Debian: apt install chromium)")
    assert ran.result(name)["tables"][0]["title"] in ran.ended.out


def test_chosen_networks_are_trained(ran):
    assert {"Full model", "No augmentation"} <= {*rows_of(ran.result("ablation"), "ablation")}
    fitted = {path.name.rpartition("-")[0] for path in (ran.out / "fitted").iterdir()}
    assert {"full", "no-augmentation", "graph-10"} <= fitted
    assert not [path for path in (ran.out / "fitted").rglob("*") if "checkpoint" in path.name or ".part" in path.name]


def test_small_run_is_marked(ran):
    assert ran.result("study")["title"] == "Search study (small run)"
    assert "mean nothing" in ran.result("study")["notes"][0]
    assert ran.result("examples")["title"] == "Worked examples"


def test_second_run_trains_and_measures_nothing(ran):
    kept = times(ran.out / "fitted") | times(ran.out / "rows")
    for command in (["networks", "--names", NETWORKS], ["study", "--systems", SYSTEMS]):
        again = reproduce(*command, "--small", "-l", ran.library, "--out", ran.out)
        assert again.out in ran.ended.out
        assert "training" not in again.err
    assert times(ran.out / "fitted") | times(ran.out / "rows") == kept


def test_weights_are_measured_on_all_sets(atlas_library, tmp_path):
    sets = ["--judged", judged_folder(tmp_path / "tiny"), "--labelled", labelled_file(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("research.weights.FACTORS", ())  # choosing is tested in `test_weights`
        ended = reproduce("weights", "-l", atlas_library, "--small", *sets)
    assert ended.code == 0, ended.err
    assert all(name in ended.out for name in ("without vector", "without outline path", "chosen on the other sets"))
    assert all(f"chosen without {name}" in ended.err for name in ("tiny", "mine", "atlas", "notations"))


def test_weights_need_sets_with_distinct_names(atlas_library, tmp_path):
    file = labelled_file(tmp_path)
    ended = reproduce("weights", "-l", atlas_library, "--labelled", file, "--labelled", file)
    assert ended.code == 3 and "2 sets have the name mine" in ended.err


def test_frequencies_are_counted_in_a_library(atlas_library, tmp_path):
    ended = reproduce("frequencies", atlas_library, tmp_path / "table")
    assert ended.code == 0, ended.err
    assert DocumentFrequencies.load(tmp_path / "table").formulas > 100


@pytest.mark.parametrize("command", ["sets", "study"])
def test_experiments_reject_unknown_systems(atlas_library, tmp_path, command):
    options = ["--systems", "bag-of-words,word2vec", "-l", atlas_library, "--out", tmp_path / "out"]
    ended = reproduce(command, *options)
    assert ended.code == 3
    assert "unknown system 'word2vec'; choose from " in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["data", "networks", "study", "examples", "all"])
def test_experiments_report_missing_library_first(tmp_path, command):
    ended = reproduce(command, "-l", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "there is no library" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--judged", "--labelled", "--benchmark"])
def test_all_reports_missing_sets_first(atlas_library, tmp_path, option):
    ended = reproduce("all", option, tmp_path / "none", "-l", atlas_library, "--out", tmp_path / "out")
    assert ended.code == 3
    assert str(tmp_path / "none") in ended.err
    assert not (tmp_path / "out").exists()


def test_examples_need_an_index(tmp_path):
    (tmp_path / "note.md").write_text("$$ a^2 + b^2 = c^2 $$\n")
    assert eqkin("add", tmp_path / "note.md", "-l", tmp_path / "library", "--no-index").code == 0
    ended = reproduce("examples", "-l", tmp_path / "library", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "run `eqkin index`" in ended.err
