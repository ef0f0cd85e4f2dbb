"""A researcher compares own systems, runs and named systems in one call; results of several calls accumulate."""

import re
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation import Comparison, JudgedSet, compare
from eqkin.evaluation.judged import read_run
from tests.evaluation.small_systems import Characters, Sizes

TOPICS = [("q1", "x^2"), ("q2", r"\frac{a}{b}")]
FORMULAS = [("f1", "y^2"), ("f2", r"\frac{p}{q}"), ("f3", "z + 1"), ("f4", r"\sum")]
QRELS = [("q1", "f1", 3), ("q1", "f3", 0), ("q2", "f2", 2), ("q2", "f4", -1)]
PERFECT = "q1 Q0 f1 1 2.0 theirs\nq1 Q0 f3 2 1.0 theirs\nq2 Q0 f2 1 2.0 theirs\nq2 Q0 f4 2 1.0 theirs\n"


class Dataset:
    """A data set with the methods of ir_datasets."""

    def dataset_id(self):
        return "math/small"

    def queries_iter(self):
        record = namedtuple("Query", "query_id text")
        return (record(*one) for one in [*TOPICS, ("q3", "not judged")])

    def docs_iter(self):
        record = namedtuple("Doc", "doc_id latex")
        return (record(*one) for one in [*FORMULAS, ("f5", "not judged")])

    def qrels_iter(self):
        record = namedtuple("Qrel", "query_id doc_id relevance")
        return (record(*one) for one in QRELS)


@pytest.fixture
def judged():
    return JudgedSet.from_dataset(Dataset())


def count_shared(queries: list[str], formulas: list[str]) -> list[list[int]]:
    return [[len(set(one) & set(other)) for other in formulas] for one in queries]


class Lengths:
    def encode(self, formulas: list[str]) -> np.ndarray:
        return np.array([[len(one), 1] for one in formulas], float)


def test_data_set_of_ir_datasets_is_a_judged_set(judged):
    assert judged.name == "math-small"
    assert list(zip(judged.topics.names, judged.topics.formulas.latex, strict=True)) == TOPICS
    assert list(zip(judged.formulas.names, judged.formulas.formulas.latex, strict=True)) == FORMULAS
    assert judged.qrels == {"q1": {"f1": 3, "f3": 0}, "q2": {"f2": 2, "f4": 0}}
    with pytest.raises(BadInput, match="no data set 'eqkin/missing'"):
        JudgedSet.read("irds:eqkin/missing")


def test_compare_takes_functions_classes_systems_names_and_runs(tmp_path, judged):
    run = tmp_path / "theirs.txt"
    run.write_text(PERFECT)
    systems = [count_shared, Lengths, Characters(), Sizes, "eqkin", run]
    table = compare(systems, judged, baseline="Lengths", out=tmp_path / "out")
    names = ["count-shared", "Lengths", "characters", "sizes", "eqkin", "theirs"]
    assert [one.name for one in table.scores["math-small"]] == names
    records = table.to_dicts()
    assert {record["system"] for record in records} == set(names)
    (best,) = [one for one in records if (one["system"], one["measure"]) == ("theirs", "ndcg")]
    assert best["mean"] == best["low"] == best["high"] == 1 and 0 < best["p"] <= 1
    assert all(record["p"] is None for record in records if record["system"] == "Lengths")
    shown = repr(table)
    assert "Shared characters" in shown and "Differences from Lengths: math-small" in shown and "[" in shown
    assert "| theirs |" in table._repr_markdown_()
    pandas = pytest.importorskip("pandas")
    frame = table.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(records)


def test_saved_runs_give_the_scores_of_their_systems(tmp_path, judged):
    first = compare([Characters(), count_shared], judged, out=tmp_path, save_runs=True)
    runs = tmp_path / "runs" / "math-small"
    assert sorted(path.name for path in runs.iterdir()) == ["characters.txt", "count-shared.txt"]
    assert sorted(read_run(runs / "characters.txt")["q1"]) == ["f1", "f2", "f3", "f4"]
    again = compare([runs / "characters.txt", runs / "count-shared.txt"], judged, out=tmp_path / "other")
    values = [[one.values for one in table.scores["math-small"]] for table in (first, again)]
    assert values[0] == values[1]


def test_own_system_is_measured_again_because_its_code_may_have_changed(tmp_path, judged):
    good = {one.name: one for one in compare([count_shared], judged, out=tmp_path).scores["math-small"]}
    assert good["count-shared"].scores["ndcg"].value > 0

    def worse(queries, formulas):
        return -np.array(count_shared(queries, formulas))

    worse.name = "count-shared"
    changed = compare([worse], judged, out=tmp_path).scores["math-small"][0]
    assert changed.values != good["count-shared"].values


def test_results_of_several_calls_accumulate(tmp_path, judged):
    compare([Characters()], judged, out=tmp_path)
    compare([Sizes, count_shared], judged, out=tmp_path)
    together = Comparison.read(tmp_path, baseline="sizes")
    (scores,) = together.scores.values()
    assert [one.name for one in scores] == ["sizes", "characters", "count-shared"]
    assert scores[0].p == {} and set(scores[1].p) == set(scores[1].scores)
    alone = compare([Characters()], judged, out=tmp_path / "other").scores["math-small"][0]
    assert scores[1].values == alone.values and scores[1].scores == alone.scores
    (path,) = tmp_path.glob("results/math-small-*/characters.json")
    path.write_text(path.read_text().replace("0.", "", 1)[:-20])
    with pytest.raises(CorruptData, match=r"characters\.json: damaged"):
        Comparison.read(tmp_path)


def test_compare_says_what_is_missing(tmp_path, judged):
    with pytest.raises(BadInput, match="unknown system 'tfidf-lates'"):
        compare(["tfidf-lates"], judged, out=tmp_path)
    with pytest.raises(BadInput, match="give a judged set"):
        compare([Sizes], out=tmp_path)
    with pytest.raises(BadInput, match="cannot be fitted: .*give `corpus`"):
        compare([Sizes(setting=1)], judged, out=tmp_path)
    with pytest.raises(BadInput, match="no results"):
        Comparison.read(tmp_path / "nothing")


def test_example_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 20
    monkeypatch.chdir(tmp_path)
    Path("their-run.txt").write_text(PERFECT)
    Path("my-set").mkdir()
    for name, rows in (("topics.tsv", TOPICS), ("formulas.tsv", FORMULAS)):
        Path("my-set", name).write_text("".join("\t".join(row) + "\n" for row in rows))
    qrels = "".join(f"{topic} 0 {formula} {max(grade, 0)}\n" for topic, formula, grade in QRELS)
    Path("my-set", "qrels.txt").write_text(qrels)
    names = {}
    exec(compile(example, "docs/evaluation.md", "exec"), names)
    assert "shared-tokens" in capsys.readouterr().out
    assert {one.name for one in names["table"].scores["my-set"]} == {"eqkin", "shared-tokens", "their-run"}
