"""The command `eqkin evaluate`; what it computes is tested in `tests/evaluation`."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")
if find_spec("sklearn") is None:
    pytest.skip("baselines need scikit-learn: pip install 'eqkin[eval]'", allow_module_level=True)

from eqkin import Encoder
from eqkin.evaluation.labelled import score_labels
from eqkin.evaluation.systems.registry import SYSTEMS
from tests.cli.running import Ended, eqkin
from tests.learning.corpora import corpus_of

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


def labelled_file(folder: Path, equations: Any = EQUATIONS, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(json.dumps([{"latex": latex, "label": label} for latex, label in equations]))
    return path


def judged_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in JUDGED_SET.items():
        (folder / name).write_text(text)
    return folder


def rows_of(result: dict[str, Any], table: str) -> dict[str, Any]:
    (found,) = [one for one in result["tables"] if one["name"] == table]
    return {row["title"]: row for row in found["rows"] if row["origin"] == "measured"}


def times(folder: Path) -> dict[str, int]:
    """When each file was last written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


# Labelled equations


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
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near, labels = vectors @ vectors.T, [label for _, label in EQUATIONS]
    others = [max((float(near[i, j]), labels[j]) for j in range(6) if j != i)[1] for i in range(6)]
    right = [labels[i] == others[i] for i in range(5)]  # the integral has no partner
    assert found["embedding"]["accuracy"] == pytest.approx(100 * np.mean(right), abs=1e-3)
    assert found["embedding"]["ranking"] == pytest.approx(100 * score_labels(near, labels).ranking.value, abs=1e-3)


def test_labelled_without_file_measures_the_atlas():
    ended = eqkin("evaluate", "labelled")
    assert ended.code == 0
    assert ended.out.startswith("atlas: 442 equations, 101 labels\n  accuracy")


def test_labelled_reports_files_by_name_and_rejects_duplicates(tmp_path):
    files = [labelled_file(tmp_path, name="one.json"), labelled_file(tmp_path, EQUATIONS[:4], "two.json")]
    assert {name: one["equations"] for name, one in eqkin("evaluate", "labelled", *files, "--json").json.items()} == {
        "one": 6,
        "two": 4,
    }
    ended = eqkin("evaluate", "labelled", files[0], files[0], "--json")
    assert (ended.code, ended.out) == (3, "")
    assert "2 labelled sets have the name one" in ended.err


@pytest.mark.parametrize(
    ("equations", "words"),
    [
        ([], "no equations"),
        (EQUATIONS[:2], "there is only one label (fraction)"),
        ([EQUATIONS[0], EQUATIONS[2]], "no label occurs twice"),
        ([*EQUATIONS, (r"\begin{nope}", "sum")], r"entry 7, '\\begin{nope}'"),
        (None, "cannot be read"),
    ],
)
def test_labelled_reports_bad_files_in_one_line(tmp_path, equations, words):
    path = labelled_file(tmp_path, equations) if equations is not None else tmp_path / "none.json"
    ended = eqkin("evaluate", "labelled", path, "--json")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("eqkin: ") and ended.err.count("\n") == 1
    assert words in ended.err


def test_labelled_skips_unreadable_formulas_on_request(tmp_path):
    path = labelled_file(tmp_path, [*EQUATIONS, (r"\begin{nope}", "sum")])
    assert "1 formulas cannot be read and are left out" in eqkin("evaluate", "labelled", path, "--skip-unreadable").err
    found = eqkin("evaluate", "labelled", path, "--skip-unreadable", "--json").json
    assert found == eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json


def test_labelled_rejects_model_with_systems(tmp_path):
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--model", tmp_path, "--systems", "paper")
    assert ended.code == 3
    assert "among the --systems" in ended.err


# What is learned from one corpus, and kept


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> list[Path]:
    """Two corpora whose learning halves have different vocabularies."""
    folder = tmp_path_factory.mktemp("corpora")
    for number, size in enumerate((4, 9)):
        corpus_of([[size]] * 4).save(folder / f"{number}.zst")
    return [folder / "0.zst", folder / "1.zst"]


def test_labelled_caches_measurements_by_corpus(tmp_path, corpora):
    out, path = tmp_path / "out", labelled_file(tmp_path)
    command = ["evaluate", "labelled", path, "--systems", "bag-of-words", "--small", "--out", out, "--json", "--corpus"]
    first = eqkin(*command, corpora[0]).json
    kept = times(out / "fitted") | times(out / "rows")
    assert len(kept) == 2
    assert eqkin(*command, corpora[0]).json == first
    assert times(out / "fitted") | times(out / "rows") == kept
    eqkin(*command, corpora[1])
    grown = times(out / "fitted") | times(out / "rows")
    assert len(grown) == 4 and grown.items() > kept.items()


def test_labelled_repeats_damaged_measurement(tmp_path, corpora):
    out, path = tmp_path / "out", labelled_file(tmp_path)
    command = ["evaluate", "labelled", path, "--systems", "bag-of-words", "--small", "--out", out, "--json"]
    first = eqkin(*command, "--corpus", corpora[0]).json
    (row,) = (out / "rows" / "labelled").iterdir()
    whole = row.read_bytes()
    row.write_bytes(whole[: len(whole) // 2])
    assert eqkin(*command, "--corpus", corpora[0]).json == first
    assert row.read_bytes() == whole


def test_labelled_reports_damaged_fit(tmp_path, corpora):
    out, path = tmp_path / "out", labelled_file(tmp_path)
    command = ["evaluate", "labelled", path, "--systems", "untrained", "--small", "--out", out, "--corpus", corpora[0]]
    assert eqkin(*command).code == 0
    (weights,) = out.rglob("weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-9])
    ended = eqkin(*command)
    assert ended.code == 5
    assert str(weights.parent) in ended.err and "Traceback" not in ended.err


def test_labelled_reports_out_folder_that_is_a_file(tmp_path, corpora):
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--systems", "paper", "--out", corpora[0])
    assert ended.code == 7
    assert ended.err.splitlines()[-1].startswith(f"eqkin: {corpora[0]}")


@pytest.mark.parametrize("device", ["cuda", "abacus"])
def test_labelled_rejects_missing_device(tmp_path, device):
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    options = ["--systems", "paper", "--device", device, "--out", tmp_path / "out"]
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), *options)
    assert ended.code == 3
    assert device in ended.err and "cpu" in ended.err or "no such device" in ended.err


def test_labelled_marks_small_run(tmp_path):
    options = ["--systems", "paper", "--out", tmp_path / "out", "--json"]
    command = ["evaluate", "labelled", labelled_file(tmp_path), *options]
    assert eqkin(*command).json["title"] == "Labelled equations"
    small = eqkin(*command, "--small").json
    assert small["title"] == "Labelled equations (small run)"
    assert "mean nothing" in small["notes"][0]


# Names


def test_systems_lists_all_systems():
    assert eqkin("evaluate", "systems", "--json").json == {name: one.description for name, one in SYSTEMS.items()}
    assert [line.split()[0] for line in eqkin("evaluate", "systems").out.splitlines()] == [*SYSTEMS, "DIR"]


@pytest.mark.parametrize("command", ["labelled", "judged"])
def test_evaluate_rejects_unknown_systems(atlas_library, tmp_path, command):
    folder = [judged_folder(tmp_path / "tiny")] if command == "judged" else []
    options = ["--systems", "bag-of-words,word2vec", "-l", atlas_library, "--out", tmp_path / "out"]
    ended = eqkin("evaluate", command, *folder, *options)
    assert ended.code == 3
    assert "unknown system 'word2vec'; choose from " in ended.err and "tfidf-latex" in ended.err
    assert not (tmp_path / "out").exists()


# Judged formulas


def test_judged_compares_systems_runs_and_published_figures(tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    figures = [{"title": "Somebody", "scores": {"ndcg": 0.7}, "note": "elsewhere"}]
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    options = ["--systems", "tfidf-latex", "--run", tmp_path / "theirs.txt", "--published", tmp_path / "figures.json"]
    options += ["--baseline", "theirs", "--small", "--out", tmp_path / "out", "--json"]
    found = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), *options).json
    assert found["experiment"] == "judged-tiny"
    rows = rows_of(found, "judged-tiny")
    assert list(rows) == ["TF-IDF, 1-3-grams of LaTeX", "theirs"]
    assert rows["theirs"]["cells"]["ndcg"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    (published,) = [row for row in found["tables"][0]["rows"] if row["origin"] == "published"]
    assert published["title"] == "Somebody" and published["cells"]["ndcg"]["value"] == 0.7
    (differences,) = [table for table in found["tables"] if table["name"] == "judged-tiny-differences"]
    assert differences["title"].startswith("Differences from theirs")


def test_judged_output_has_no_control_characters_of_files(tmp_path):
    folder = judged_folder(tmp_path / "ours")
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("q1", "q\x1b[31m1").replace("x^2", "x^2 \x1b[2J"))
    (folder / "published.json").write_text('[{"title": "some\\u001b[31mbody", "scores": {"ndcg": 0.7}}]')
    ended = eqkin("evaluate", "judged", folder, "--systems", "paper", "--out", tmp_path / "out")
    assert ended.code == 0
    assert "some[31mbody" in ended.out and "\x1b" not in ended.out


def test_judged_names_tables_that_are_too_wide(tmp_path, monkeypatch):
    options = ["--systems", "paper,tfidf-latex", "--out", tmp_path / "out", "--small"]
    folder = judged_folder(tmp_path / "ours")
    ended = eqkin("evaluate", "judged", folder, *options)
    assert "Differences from Graph network (bundled): ours\n" in "".join(
        f"{line.rstrip()}\n" for line in ended.out.splitlines()
    )
    assert "p-value of a paired randomisation test" in ended.out  # what the figures mean
    assert "nDCG' by topic: ours: 2 rows, only in the JSON\n" in ended.out
    assert ended.out.endswith("A small run: systems were hardly trained, its figures mean nothing.\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = eqkin("evaluate", "judged", folder, *options)
    assert "Differences from Graph network (bundled): ours: too wide for this terminal; 1 rows" in narrow.out
    assert "…" not in narrow.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run", "none.txt"], "none.txt: cannot be read"),
        (["--published", "none.json"], "none.json: cannot be read"),
        (["--baseline", "nobody"], "the baseline nobody is not one of paper, bag-of-words"),
    ],
)
def test_judged_reports_wrong_files_before_fitting(tmp_path, atlas_library, options, message):
    folder = judged_folder(tmp_path / "ours")
    options = ["--systems", "paper,bag-of-words", "-l", atlas_library, "--out", tmp_path / "out", *options]
    ended = eqkin("evaluate", "judged", folder, *options)
    assert ended.code == 3 and message in ended.err
    assert not (tmp_path / "out" / "fitted").exists()


def test_interrupted_judged_says_that_work_is_kept(tmp_path, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eqkin.evaluation.experiment.score_systems", stop)
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "ours"), "--systems", "paper", "--out", tmp_path)
    assert ended.code == 130
    assert "the same command continues it" in ended.err


def test_results_of_several_commands_are_shown_together(tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    folder, out = judged_folder(tmp_path / "tiny"), ["--out", tmp_path / "out", "--json"]
    eqkin("evaluate", "judged", folder, "--systems", "tfidf-latex", "--save-runs", "--small", *out)
    eqkin("evaluate", "judged", folder, "--systems", "", "--run", tmp_path / "theirs.txt", *out)
    (found,) = eqkin("evaluate", "results", "--baseline", "theirs", *out).json
    assert list(rows_of(found, found["experiment"])) == ["theirs", "TF-IDF, 1-3-grams of LaTeX"]
    assert (tmp_path / "out" / "runs" / "tiny" / "tfidf-latex.txt").read_text().count(" Q0 ") == 8
    ended = eqkin("evaluate", "results", "--out", tmp_path / "nothing")
    assert ended.code == 3 and "no results" in ended.err


def test_judged_compares_runs_without_systems(tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    options = ["--systems", "", "--run", tmp_path / "theirs.txt", "--out", tmp_path / "out", "--json"]
    found = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), *options).json
    assert list(rows_of(found, "judged-tiny")) == ["theirs"]


def test_judged_rejects_runs_of_one_name(tmp_path):
    runs = [tmp_path / part / "run.txt" for part in "ab"]
    for run in runs:
        run.parent.mkdir()
        run.write_text(PERFECT)
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), "--run", runs[0], "--run", runs[1])
    assert ended.code == 3
    assert "2 runs have the name run" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--baseline", "nobody"], "the baseline nobody is not one of paper"),
        (["--run", "none.txt"], "none.txt: cannot be read"),
        (["--published", "none.json"], "none.json: cannot be read"),
        (["--systems", ""], "nothing to compare"),
    ],
)
def test_judged_reports_bad_options(tmp_path, options, words):
    folder = judged_folder(tmp_path / "tiny")
    options = [str(tmp_path / option) if option.startswith("none.") else option for option in options]
    ended = eqkin("evaluate", "judged", folder, "--systems", "paper", *options, "--out", tmp_path / "out")
    assert ended.code == 3
    assert words in ended.err


def test_judged_reports_missing_folder(tmp_path):
    ended = eqkin("evaluate", "judged", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "topics.tsv: cannot be read" in ended.err


# What is not installed

_WITHOUT = """
import json, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from tests.cli.running import eqkin
print(json.dumps([eqkin(*command) for command in json.loads(sys.argv[2])]))
"""


def without(modules: str, commands: list[list[object]]) -> list[Ended]:
    """Run commands where some modules cannot be imported."""
    given = json.dumps([[str(part) for part in command] for command in commands])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT, modules, given],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return [Ended(*one) for one in json.loads(ended.stdout)]


def test_evaluate_names_the_extra_that_is_missing(tmp_path, atlas_library, corpora):
    path, out = labelled_file(tmp_path), ["--small", "--out", tmp_path / "out", "-l", atlas_library]
    compare = ["evaluate", "labelled", path, *out, "--systems"]
    plain = [
        ["evaluate", "labelled", path, "--json"],
        ["evaluate", "systems"],
        [*compare, "paper,bag-of-words"],
        ["--help"],
    ]
    train = [
        ["finetune", "-l", atlas_library, "-o", tmp_path / "model"],
        [*compare, "untrained"],
        [*compare, "paper", "--device", "cuda", "--out", tmp_path / "other"],
    ]
    judged = ["evaluate", "judged", judged_folder(tmp_path / "tiny"), *out, "--systems", "paper"]
    more = [[*compare, "tree-pairs"], [*compare, "fasttext"], [*compare, "approach0"], judged]
    ended = without("torch,sklearn,scipy,fasttext,pya0,ir_measures,playwright,matplotlib", [*plain, *train, *more])
    for command, one in zip([*plain, *train, *more], ended, strict=True):
        assert "Traceback" not in one.err
        if command in plain:
            assert one.code == 0, one
        else:
            extra = "train" if command in train else "eval"
            assert one.code == 3, (command, one)
            assert f"pip install 'eqkin[{extra}]'" in one.err, (command, one)


def test_evaluate_names_the_library_that_is_missing(tmp_path, corpora):
    options = ["--small", "--out", tmp_path / "out", "--corpus", corpora[0], "--systems"]
    compare = ["evaluate", "labelled", labelled_file(tmp_path), *options]
    ended = without("sklearn", [[*compare, name] for name in ("tfidf-tree", "bag-of-words")])
    assert [one.code for one in ended] == [3, 0]
    for one, name in zip(ended, ("sklearn",), strict=False):
        assert name in one.err.splitlines()[-1] and "pip install 'eqkin[eval]'" in one.err
