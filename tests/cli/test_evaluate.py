"""The command `eqkin evaluate`; what it computes is tested in `tests/evaluation`."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from eqkin import Encoder
from eqkin.evaluation.labelled import score_labels
from tests.cli.running import eqkin

if find_spec("sklearn") is None:
    pytest.skip("baselines need scikit-learn: pip install 'eqkin[eval]'", allow_module_level=True)

EQUATIONS = [
    (r"\frac{a}{b}", "fraction"),
    (r"\frac{x}{y+1}", "fraction"),
    (r"\sum_{i=1}^n x_i", "sum"),
    (r"\sum_{k=0}^m a_k", "sum"),
    (r"x^2 + y^2 = z^2", "sum"),
    (r"\int_0^1 f(x)\,dx", "integral"),
]
JUDGED_SET = {
    "topics.tsv": "q1\tx^2\nq2\t\\frac{a}{b}\n",
    "formulas.tsv": "f1\ty^2\nf2\t\\frac{p}{q}\nf3\tz + 1\nf4\t\\sum\n",
    "qrels.txt": "q1 0 f1 3\nq1 0 f3 0\nq2 0 f2 2\nq2 0 f4 0\n",
}
PERFECT = "q1 Q0 f1 1 2.0 theirs\nq1 Q0 f3 2 1.0 theirs\nq2 Q0 f2 1 2.0 theirs\nq2 Q0 f4 2 1.0 theirs\n"


def labelled_file(folder, equations=EQUATIONS, name="mine.json"):
    path = folder / name
    path.write_text(json.dumps([{"latex": latex, "label": label} for latex, label in equations]))
    return path


def judged_folder(folder):
    folder.mkdir(parents=True)
    for name, text in JUDGED_SET.items():
        (folder / name).write_text(text)
    return folder


def test_labelled_json_has_documented_keys(tmp_path):
    found = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json
    assert found.keys() == {"accuracy", "ranking", "embedding", "intervals", "equations", "labels"}
    assert found["embedding"].keys() == {"accuracy", "ranking"}
    assert (found["equations"], found["labels"]) == (6, 3)
    for key in ("accuracy", "ranking"):
        low, high = found["intervals"][key]
        assert 0 <= low <= found[key] <= high <= 100


def test_labelled_embedding_scores_equal_those_of_encoder_vectors(tmp_path):
    found = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json
    vectors = Encoder.load().encode([latex for latex, _ in EQUATIONS])
    near, labels = vectors @ vectors.T, [label for _, label in EQUATIONS]
    assert found["embedding"]["ranking"] == pytest.approx(100 * score_labels(near, labels).ranking.value, abs=1e-3)
    np.fill_diagonal(near, -1)
    right = [labels[i] == labels[near[i].argmax()] for i in range(5)]  # the integral has no partner
    assert found["embedding"]["accuracy"] == pytest.approx(100 * np.mean(right), abs=1e-3)


def test_labelled_without_file_measures_the_atlas():
    assert eqkin("evaluate", "labelled", "--json").json["equations"] == 442


def test_labelled_compares_systems_on_several_files(tmp_path):
    files = [labelled_file(tmp_path, name="one.json"), labelled_file(tmp_path, EQUATIONS[:4], "two.json")]
    found = eqkin("evaluate", "labelled", *files, "--systems", "eqkin,tfidf-latex", "--json").json
    assert {name: [row["system"] for row in rows] for name, rows in found.items()} == {
        "one": ["eqkin", "tfidf-latex"],
        "two": ["eqkin", "tfidf-latex"],
    }
    assert "tfidf-latex" in eqkin("evaluate", "labelled", *files, "--systems", "eqkin,tfidf-latex").out
    assert eqkin("evaluate", "labelled", files[0], files[0]).code == 3


@pytest.mark.parametrize(
    "equations", [[], EQUATIONS[:2], [EQUATIONS[0], EQUATIONS[2]], [*EQUATIONS, (r"\begin{nope}", "sum")], None]
)
def test_labelled_reports_bad_files_in_one_line(tmp_path, equations):
    path = labelled_file(tmp_path, equations) if equations is not None else tmp_path / "none.json"
    ended = eqkin("evaluate", "labelled", path, "--json")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("eqkin: ") and ended.err.count("\n") == 1


def test_judged_compares_systems_and_runs(tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    command = ["evaluate", "judged", judged_folder(tmp_path / "tiny"), "--run", tmp_path / "theirs.txt"]
    found = eqkin(*command, "--systems", "eqkin,tfidf-latex", "--save-runs", tmp_path / "runs", "--json").json
    assert [one["name"] for one in found["systems"]] == ["eqkin", "tfidf-latex", "theirs"]
    assert found["systems"][2]["scores"]["ndcg"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert set(found["systems"][2]["p"]) == {"ndcg", "map", "p10", "bpref"}
    assert (tmp_path / "runs" / "tiny" / "eqkin.txt").read_text().count("Q0") == 8
    shown = eqkin(*command, "--systems", "")
    assert shown.code == 0 and "theirs" in shown.out and "1.000" in shown.out


@pytest.mark.parametrize(
    "options", [["--baseline", "nobody"], ["--run", "none.txt"], ["--systems", ""], ["--systems", "nothing"]]
)
def test_judged_reports_bad_options(tmp_path, options):
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), "--systems", "paper", *options)
    assert ended.code == 3 and "Traceback" not in ended.err
    assert eqkin("evaluate", "judged", tmp_path / "none").code == 3


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ir_measures", None)
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), "--systems", "paper")
    assert ended.code == 3 and "pip install 'eqkin[eval]'" in ended.err
