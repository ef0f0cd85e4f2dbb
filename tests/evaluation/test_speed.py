"""Speed and size: what benchmarks print, beside the paper's figures."""

from __future__ import annotations

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from benchmarks.encode import EncodeReport  # noqa: E402
from benchmarks.index import IndexMeasurement, IndexReport  # noqa: E402
from benchmarks.search import SearchReport  # noqa: E402
from benchmarks.train import Memory, TrainingSpeed  # noqa: E402
from eqkin.encoder.architecture import Architecture  # noqa: E402
from eqkin.errors import BadInput  # noqa: E402
from eqkin.evaluation.experiments.context import ExperimentContext  # noqa: E402
from eqkin.evaluation.experiments.speed import read_figures, run_speed  # noqa: E402
from eqkin.evaluation.experiments.speed_here import describe_machine, measure_here  # noqa: E402
from eqkin.evaluation.report.html import page  # noqa: E402
from eqkin.evaluation.results import PAPER, ExperimentResult, Score  # noqa: E402
from eqkin.evaluation.scale import SMALL_SCALE  # noqa: E402
from eqkin.evaluation.store import ResultCache  # noqa: E402
from tests.training.small import corpus_of  # noqa: E402


def figures():
    """As the four benchmarks print them."""
    speeds = [
        TrainingSpeed(1_024, 165_000.0, 232_985.0, 47_788.0, 70_881.0, 557_004.0, 10**9),
        TrainingSpeed(128, 20_000.0, 130_000.0, 10_168.0, None, 200_000.0, 10**9),
    ]
    systems = [
        IndexMeasurement("exact (faiss Flat)", 0.3, 256.0, 1.0, 1.0, [0.02, 0.03]),
        IndexMeasurement("eqkin (IVF, 16 probes)", 84.0, 130.0, 0.99, 0.98, [0.0002, 0.0004]),
        IndexMeasurement("annoy (16 trees)", 60.0, 886.0, 0.87, 0.8, [0.005, 0.006]),
    ]
    encoded = EncodeReport(Architecture(), 1_401, 57_112, [1.0], [1.5], [3.0], [0.001] * 99, [0.002] * 99)
    searches = [SearchReport(clients, [0.01] * 50, {"vectors": [0.002] * 50}, 1.0, 0.8) for clients in (1, 32)]
    return {
        "train": {
            "memory": Memory(298_723, 54.0, 2, 528.0).summary(),
            "batches": [one.summary() for one in speeds],
        },
        "index": IndexReport(1_000_000, 290_000, 500, systems, ["grown"], faster=21.4).summary(),
        "encode": encoded.summary(),
        "search": [one.summary() | {"problems": []} for one in searches],
    }


@pytest.fixture
def context(tmp_path):
    return ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE, device="cpu")


def cells(result: ExperimentResult, table: str, row: str, place: int = 0):
    (found,) = [one for one in result.tables if one.name == table]
    return [one for one in found.rows if one.title == row][place].cells


def test_figures_stand_beside_the_paper_s_with_ratios(context):
    result = run_speed(context, figures())
    assert cells(result, "training", "eqkin", 1)["ratio"] == Score(100.0)
    assert cells(result, "training", "eqkin", 1)["limit"] == Score(0.65)
    assert cells(result, "training", "torch-geometric, eager")["triplets"] == Score(47_788.0)
    assert [row.title for row in result.tables[0].rows].count("torch-geometric, compiled") == 1
    (paper,) = [row for row in result.tables[0].rows if row.origin == PAPER]
    assert paper.cells["triplets"] == Score(1_300.0)
    assert cells(result, "index", "eqkin (IVF, 16 probes)")["gigabytes"].value == pytest.approx(3.7666, abs=1e-4)
    assert cells(result, "index", "Index, annoy with 16 trees")["gigabytes"] == Score(13.0)
    told = " ".join(result.findings)
    assert "130,000 triplets a second with batches of 128 (the paper's size), 100.0 times" in told
    assert "29% of its 13 GB" in told and "21.4 times as fast" in told and "18.4 GB" in told
    assert "a search takes 10.0 ms in the median" in told.lower()


def test_only_recall_has_an_interval_and_it_is_hoeffding_s(context):
    result = run_speed(context, figures())
    half = math.sqrt(math.log(40) / 1_000)
    with_interval = {
        (row.title, key): score
        for table in result.tables
        for row in table.rows
        for key, score in row.cells.items()
        if isinstance(score, Score) and score.low is not None
    }
    assert {key for _, key in with_interval} == {"recall_10", "recall_100"}
    assert not [title for title, _ in with_interval if title.startswith("exact")]
    annoy = with_interval["annoy (16 trees)", "recall_10"]
    assert (annoy.low, annoy.high) == pytest.approx((0.87 - half, 0.87 + half))
    assert with_interval["eqkin (IVF, 16 probes)", "recall_10"].high == 1.0
    assert any("no intervals" in text for text in result.differences)


def test_some_benchmarks_are_enough_and_the_others_are_named(context):
    result = run_speed(context, {"search": figures()["search"], "machines": {"search": "two cores"}})
    assert [table.name for table in result.tables] == ["search", "stages"]
    assert "`eqkin bench train --json`" in result.findings[-1] and "search" not in result.findings[-1]
    assert result.facts["machine of search"] == "two cores"
    with pytest.raises(BadInput, match="eqkin bench train --json"):
        run_speed(context, {})


def test_files_are_told_apart_by_what_is_in_them(context, tmp_path):
    given = figures()
    for number, content in enumerate(given.values()):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    read = read_figures(sorted(tmp_path.glob("*.json")))
    assert read == given
    assert run_speed(context, read) == run_speed(context, given)


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", '[{"name": 1}]'])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match=r"x\.json"):
        read_figures([tmp_path / "x.json"])
    with pytest.raises(BadInput, match="nowhere"):
        read_figures([tmp_path / "nowhere.json"])


def test_damaged_figures_say_which_benchmark_to_run_again(context):
    given = figures()
    del given["index"]["systems"][1]["p50_ms"]
    with pytest.raises(BadInput, match="eqkin bench index"):
        run_speed(context, given)
    given = figures()
    given["index"]["systems"] = given["index"]["systems"][:1]  # without eqkin's own
    with pytest.raises(BadInput, match="eqkin bench index"):
        run_speed(context, given)
    with pytest.raises(BadInput, match="eqkin bench train"):
        run_speed(context, {"train": {"batches": []}})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing torch-geometric warns of itself
def test_what_can_be_measured_here_is_measured_once(context):
    corpus = corpus_of([[3, 2], [4], [2, 2]])
    found = measure_here(context, corpus=corpus)
    assert measure_here(context, corpus=corpus) == found
    result = run_speed(context, found)
    assert {"training", "encoding", "formula"} <= {table.name for table in result.tables}
    assert result.facts["machine of train"] == describe_machine()
    assert cells(result, "training", "eqkin")["triplets"].value > 0
    assert ExperimentResult.load(context.store.keep(result)) == result
    assert "Triplets a second in learning" in page([result], {})
