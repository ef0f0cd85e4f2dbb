"""`eqkin evaluate` as a user meets it; what the experiments compute is tested in `tests/evaluation`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")
pytest.importorskip("sklearn", reason="baselines need scikit-learn: pip install 'eqkin[eval]'")

from eqkin import Encoder  # noqa: E402
from eqkin.evaluation.experiments.labelled import score_labels  # noqa: E402
from eqkin.evaluation.report import EXPERIMENTS  # noqa: E402
from eqkin.evaluation.systems.registry import SYSTEM_DESCRIPTIONS  # noqa: E402
from tests.cli.running import Ended, eqkin  # noqa: E402
from tests.training.corpora import corpus_of  # noqa: E402

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


def test_labelled_gives_what_is_promised(tmp_path):
    found = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json
    assert found.keys() == {"accuracy", "ranking", "embedding", "intervals", "equations", "labels"}
    assert found["embedding"].keys() == {"accuracy", "ranking"}
    assert (found["equations"], found["labels"]) == (6, 3)
    for key in ("accuracy", "ranking"):
        low, high = found["intervals"][key]
        assert 0 <= low <= found[key] <= high <= 100


def test_labelled_scores_are_those_of_the_encoders_vectors(tmp_path):
    found = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json
    vectors = Encoder.load().encode([latex for latex, _ in EQUATIONS])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near, labels = vectors @ vectors.T, [label for _, label in EQUATIONS]
    others = [max((float(near[i, j]), labels[j]) for j in range(6) if j != i)[1] for i in range(6)]
    right = [labels[i] == others[i] for i in range(5)]  # the integral has nobody to find
    assert found["embedding"]["accuracy"] == pytest.approx(100 * np.mean(right), abs=1e-3)
    assert found["embedding"]["ranking"] == pytest.approx(100 * score_labels(near, labels).ranking.value, abs=1e-3)


def test_without_a_file_the_atlas_is_measured():
    ended = eqkin("evaluate", "labelled")
    assert ended.code == 0
    assert ended.out.startswith("atlas: 442 equations, 101 labels\n  accuracy")


def test_several_files_are_told_apart(tmp_path):
    files = [labelled_file(tmp_path, name="one.json"), labelled_file(tmp_path, EQUATIONS[:4], "two.json")]
    assert {name: one["equations"] for name, one in eqkin("evaluate", "labelled", *files, "--json").json.items()} == {
        "one": 6,
        "two": 4,
    }
    ended = eqkin("evaluate", "labelled", files[0], files[0], "--json")
    assert (ended.code, ended.out) == (3, "")
    assert "2 labelled sets are called one" in ended.err


@pytest.mark.parametrize(
    ("equations", "words"),
    [
        ([], "no equations"),
        (EQUATIONS[:2], "there is only one label (fraction)"),
        ([EQUATIONS[0], EQUATIONS[2]], "no label stands there twice"),
        ([*EQUATIONS, (r"\begin{nope}", "sum")], r"entry 7, '\\begin{nope}'"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(tmp_path, equations, words):
    path = labelled_file(tmp_path, equations) if equations is not None else tmp_path / "none.json"
    ended = eqkin("evaluate", "labelled", path, "--json")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("eqkin: ") and ended.err.count("\n") == 1
    assert words in ended.err


def test_unreadable_formulas_can_be_left_out(tmp_path):
    path = labelled_file(tmp_path, [*EQUATIONS, (r"\begin{nope}", "sum")])
    assert "1 formulas cannot be read and are left out" in eqkin("evaluate", "labelled", path, "--skip-unreadable").err
    found = eqkin("evaluate", "labelled", path, "--skip-unreadable", "--json").json
    assert found == eqkin("evaluate", "labelled", labelled_file(tmp_path), "--json").json


def test_a_model_is_for_the_engine_alone(tmp_path):
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


def test_what_was_measured_is_kept_and_other_corpora_are_measured_anew(tmp_path, corpora):
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


def test_a_damaged_measurement_is_taken_again(tmp_path, corpora):
    out, path = tmp_path / "out", labelled_file(tmp_path)
    command = ["evaluate", "labelled", path, "--systems", "bag-of-words", "--small", "--out", out, "--json"]
    first = eqkin(*command, "--corpus", corpora[0]).json
    (row,) = (out / "rows" / "labelled").iterdir()
    whole = row.read_bytes()
    row.write_bytes(whole[: len(whole) // 2])
    assert eqkin(*command, "--corpus", corpora[0]).json == first
    assert row.read_bytes() == whole


def test_what_learned_is_damaged_is_told_with_what_to_do(tmp_path, corpora):
    out, path = tmp_path / "out", labelled_file(tmp_path)
    command = ["evaluate", "labelled", path, "--systems", "untrained", "--small", "--out", out, "--corpus", corpora[0]]
    assert eqkin(*command).code == 0
    (weights,) = out.rglob("weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-9])
    ended = eqkin(*command)
    assert ended.code == 5
    assert str(weights.parent) in ended.err and "Traceback" not in ended.err


def test_an_out_folder_that_is_a_file_is_one_line(tmp_path, corpora):
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), "--systems", "paper", "--out", corpora[0])
    assert ended.code == 7
    assert ended.err.splitlines()[-1].startswith(f"eqkin: {corpora[0]}")


@pytest.mark.parametrize("device", ["cuda", "abacus"])
def test_a_device_that_is_not_there_is_refused(tmp_path, device):
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    options = ["--systems", "paper", "--device", device, "--out", tmp_path / "out"]
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), *options)
    assert ended.code == 3
    assert device in ended.err and "cpu" in ended.err or "no such device" in ended.err


def test_a_small_run_says_so(tmp_path):
    options = ["--systems", "paper", "--out", tmp_path / "out", "--json"]
    command = ["evaluate", "labelled", labelled_file(tmp_path), *options]
    assert eqkin(*command).json["title"] == "Labelled equations"
    small = eqkin(*command, "--small").json
    assert small["title"] == "Labelled equations (small run)"
    assert "mean nothing" in small["differences"][0]


# Names


def test_systems_are_listed():
    assert eqkin("evaluate", "systems", "--json").json == SYSTEM_DESCRIPTIONS
    assert [line.split()[0] for line in eqkin("evaluate", "systems").out.splitlines()] == [*SYSTEM_DESCRIPTIONS, "DIR"]


@pytest.mark.parametrize("command", ["ablation", "labelled", "study", "judged", "equalities"])
def test_unknown_systems_are_told_with_those_there_are(atlas_library, tmp_path, command):
    folder = [judged_folder(tmp_path / "tiny")] if command == "judged" else []
    options = ["--systems", "bag-of-words,word2vec", "-l", atlas_library, "--out", tmp_path / "out"]
    ended = eqkin("evaluate", command, *folder, *options)
    assert ended.code == 3
    assert "no system 'word2vec'; there are " in ended.err and "transformer" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["ablation", "study", "equalities", "examples", "all"])
def test_a_library_that_is_not_there_is_told_before_anything_is_done(tmp_path, command):
    ended = eqkin("evaluate", command, "-l", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "there is no library" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--judged", "--labelled"])
def test_all_experiments_want_their_sets_before_they_begin(atlas_library, tmp_path, option):
    options = [option, tmp_path / "none", "-l", atlas_library, "--out", tmp_path / "out"]
    ended = eqkin("evaluate", "all", *options)
    assert ended.code == 3
    assert str(tmp_path / "none") in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("approach0", "reads LaTeX"), ("tfidf-latex", "reads LaTeX"), ("paper", "has learned before")]
)
def test_the_ablation_refuses_what_it_cannot_rank_before_it_learns(tmp_path, corpora, name, why):
    ended = eqkin("evaluate", "ablation", corpora[0], "--small", "--systems", name, "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"{name} {why}" in ended.err
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
    assert differences["title"].startswith("Differences to theirs")
    assert (tmp_path / "out" / "results" / "judged-tiny.json").is_file()


def test_what_files_say_does_not_steer_the_terminal(tmp_path):
    folder = judged_folder(tmp_path / "ours")
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("q1", "q\x1b[31m1").replace("x^2", "x^2 \x1b[2J"))
    (folder / "published.json").write_text('[{"title": "some\\u001b[31mbody", "scores": {"ndcg": 0.7}}]')
    ended = eqkin("evaluate", "judged", folder, "--systems", "paper", "--out", tmp_path / "out")
    assert ended.code == 0
    assert "some[31mbody" in ended.out and "\x1b" not in ended.out


def test_what_a_terminal_shows_is_whole_or_only_named(tmp_path, monkeypatch):
    options = ["--systems", "paper,tfidf-latex", "--out", tmp_path / "out", "--small"]
    folder = judged_folder(tmp_path / "ours")
    ended = eqkin("evaluate", "judged", folder, *options)
    assert "Differences to Graph network (bundled): ours\n" in "".join(
        f"{line.rstrip()}\n" for line in ended.out.splitlines()
    )
    assert "p-value of a paired randomisation test" in ended.out  # what the figures mean
    assert "nDCG' by topic: ours: 2 rows, in the report\n" in ended.out
    assert ended.out.endswith("A small run: little was learned and drawn, its figures mean nothing.\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = eqkin("evaluate", "judged", folder, *options)
    assert "Differences to Graph network (bundled): ours: too wide for this terminal; 1 rows" in narrow.out
    assert "…" not in narrow.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run", "none.txt"], "none.txt: cannot be read"),
        (["--published", "none.json"], "none.json: cannot be read"),
        (["--baseline", "nobody"], "the baseline nobody is none of paper, bag-of-words"),
    ],
)
def test_wrong_files_are_told_before_anything_is_learned(tmp_path, atlas_library, options, message):
    folder = judged_folder(tmp_path / "ours")
    options = ["--systems", "paper,bag-of-words", "-l", atlas_library, "--out", tmp_path / "out", *options]
    ended = eqkin("evaluate", "judged", folder, *options)
    assert ended.code == 3 and message in ended.err
    assert not (tmp_path / "out" / "fitted").exists()


def test_whoever_stops_an_experiment_hears_that_it_is_kept(tmp_path, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eqkin.evaluation.experiments.judged.compare", stop)
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "ours"), "--systems", "paper", "--out", tmp_path)
    assert ended.code == 130
    assert "the same command goes on from there" in ended.err


def test_runs_alone_can_be_compared(tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    options = ["--systems", "", "--run", tmp_path / "theirs.txt", "--out", tmp_path / "out", "--json"]
    found = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), *options).json
    assert list(rows_of(found, "judged-tiny")) == ["theirs"]


def test_runs_of_one_name_are_refused(tmp_path):
    runs = [tmp_path / part / "run.txt" for part in "ab"]
    for run in runs:
        run.parent.mkdir()
        run.write_text(PERFECT)
    ended = eqkin("evaluate", "judged", judged_folder(tmp_path / "tiny"), "--run", runs[0], "--run", runs[1])
    assert ended.code == 3
    assert "2 runs are called run" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--baseline", "nobody"], "the baseline nobody is none of paper"),
        (["--run", "none.txt"], "none.txt: cannot be read"),
        (["--published", "none.json"], "none.json: cannot be read"),
        (["--systems", ""], "nothing to compare"),
    ],
)
def test_judged_tells_what_is_wrong(tmp_path, options, words):
    folder = judged_folder(tmp_path / "tiny")
    options = [str(tmp_path / option) if option.startswith("none.") else option for option in options]
    ended = eqkin("evaluate", "judged", folder, "--systems", "paper", *options, "--out", tmp_path / "out")
    assert ended.code == 3
    assert words in ended.err


def test_a_judged_folder_that_is_not_there_is_told(tmp_path):
    ended = eqkin("evaluate", "judged", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "topics.tsv: cannot be read" in ended.err


# Everything on the atlas, small


class Ran(NamedTuple):
    """A folder in which every experiment but one was run, and what each printed."""

    out: Path
    library: Path
    ended: dict[str, Ended]

    def result(self, name: str) -> Any:
        return orjson.loads((self.out / "results" / f"{name}.json").read_bytes())


COMMANDS = {
    "learn": ["ablation", "--small", "--learn-only"],
    "ablation": ["ablation", "--small", "--systems", "bag-of-words"],
    "study": ["study", "--small", "--systems", "paper,bag-of-words"],
    "equalities": ["equalities", "--small", "--systems", "bag-of-words-as-is,tfidf-tree"],
    "examples": ["examples"],
}


@pytest.fixture(scope="module")
def ran(atlas_library, tmp_path_factory) -> Ran:
    out = tmp_path_factory.mktemp("evaluation")
    ended = {name: eqkin("evaluate", *command, "-l", atlas_library, "--out", out) for name, command in COMMANDS.items()}
    rows = [{"name": "eqkin", "equations_per_second": 900.0}]
    report = {"benchmark": "encode", "machine": "an abacus", "facts": {}, "tables": {"Trees to vectors": rows}}
    (out / "encode.json").write_bytes(orjson.dumps(report))
    ended["speed"] = eqkin("evaluate", "speed", out / "encode.json", "--out", out)
    return Ran(out, atlas_library, ended)


@pytest.mark.parametrize("name", [*COMMANDS, "speed"])
def test_every_experiment_runs_on_the_atlas(ran, name):
    code, out, err = ran.ended[name]
    assert code == 0, err
    if name == "speed":
        assert "equations per second" in out
    elif name != "learn":
        finding = ran.result(name)["findings"][0]
        assert finding in out
        assert f"`eqkin report {ran.out}` makes a page of it" in err


def test_the_ablation_learns_every_network_and_says_whether_the_claim_holds(ran):
    learned = {path.name.rpartition("-")[0] for path in (ran.out / "fitted").iterdir()}
    variants = {"paper-full", "paper-no-histogram", "paper-no-masking", "paper-no-augmentation"}
    assert learned == variants | {"eqkin", "bag-of-words"}
    assert not [path for path in (ran.out / "fitted").rglob("*") if "checkpoint" in path.name or ".part" in path.name]
    assert list(rows_of(ran.result("ablation"), "ablation")) == [
        "Full model", "No histogram loss (triplet)", "No masking", "No augmentation", "eqkin's recipe",
        "Bag of words",
    ]  # fmt: skip
    assert ran.result("ablation")["findings"][0].split(":")[0] in (
        "Holds", "Holds in part", "Does not hold", "Undecided",
    )  # fmt: skip


def test_every_measured_score_has_an_interval(ran):
    for name in ("ablation", "study", "equalities"):
        tables = [table for table in ran.result(name)["tables"] if "has no interval" not in table["caption"]]
        assert len(tables) >= 3
        for table in tables:
            for row in (row for row in table["rows"] if row["origin"] == "measured"):
                scores = [cell for cell in row["cells"].values() if isinstance(cell, dict)]
                assert all(score["low"] <= score["value"] <= score["high"] for score in scores), (table["name"], row)


def test_learning_on_the_way_is_told_once_a_network(ran):
    told = ran.ended["learn"].err.splitlines()
    variants = [f"paper {variant}, seed 0" for variant in ("full", "no-histogram", "no-masking", "no-augmentation")]
    assert [line.partition(":")[0] for line in told] == [*variants, "eqkin, seed 0"]
    assert "seed 0" not in ran.ended["ablation"].err


def test_a_second_run_learns_and_measures_nothing(ran):
    kept = times(ran.out / "fitted") | times(ran.out / "rows")
    for name in ("ablation", "study", "equalities"):
        again = eqkin("evaluate", *COMMANDS[name], "-l", ran.library, "--out", ran.out)
        assert again.out == ran.ended[name].out
        assert "seed 0" not in again.err
    assert times(ran.out / "fitted") | times(ran.out / "rows") == kept


def test_speed_stands_with_the_machine_it_was_measured_on(ran):
    assert ran.result("speed")["facts"]["machine of encode"] == "an abacus"


def test_the_report_shows_all_and_names_what_is_missing(ran):
    pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'eqkin[eval]'")
    ended = eqkin("report", ran.out, "--markdown", ran.out / "RESULTS.md")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        f"5 experiments: {ran.out / 'report.html'}",
        f"tables for LaTeX: {ran.out / 'latex'}",
        f"Markdown: {ran.out / 'RESULTS.md'}",
    ]
    assert ended.err.splitlines() == [f"not run yet: {EXPERIMENTS[name]}" for name in ("labelled", "judged")]
    page, text = (ran.out / name for name in ("report.html", "RESULTS.md"))
    for name in ("ablation", "study", "equalities", "speed", "examples"):
        assert ran.result(name)["title"] in page.read_text() and ran.result(name)["title"] in text.read_text()
    assert {"ablation.tex", "study.tex", "equalities-relations.tex"} <= {
        path.name for path in (ran.out / "latex").iterdir()
    }
    assert (ran.out / "figures" / "ablation-differences.svg").is_file()


def test_an_example_needs_an_index(tmp_path):
    (tmp_path / "note.md").write_text("$$ a^2 + b^2 = c^2 $$\n")
    assert eqkin("add", tmp_path / "note.md", "-l", tmp_path / "library", "--no-index").code == 0
    ended = eqkin("evaluate", "examples", "-l", tmp_path / "library", "--out", tmp_path / "out")
    assert ended.code == 3
    assert "run `eqkin index`" in ended.err


def test_a_library_of_one_work_cannot_be_halved(tmp_path):
    corpus_of([[4]]).save(tmp_path / "one.zst")
    for command in ("ablation", "equalities"):
        ended = eqkin("evaluate", command, tmp_path / "one.zst", "--small", "--out", tmp_path / "out")
        assert ended.code == 3
        assert "one work" in ended.err
    options = ["--systems", "bag-of-words", "--corpus", tmp_path / "one.zst", "--out", tmp_path / "out"]
    ended = eqkin("evaluate", "labelled", labelled_file(tmp_path), *options)
    assert ended.code == 3
    assert "Bag of words has to learn, and cannot" in ended.err


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


def test_what_needs_an_extra_names_it_and_the_rest_works_without(tmp_path, atlas_library, corpora):
    path, out = labelled_file(tmp_path), ["--small", "--out", tmp_path / "out", "-l", atlas_library]
    compare = ["evaluate", "labelled", path, *out, "--systems"]
    plain = [
        ["evaluate", "labelled", path, "--json"],
        ["evaluate", "systems"],
        [*compare, "paper,bag-of-words"],
        ["evaluate", "judged", judged_folder(tmp_path / "tiny"), *out, "--systems", "paper"],
        ["evaluate", "study", *out, "--systems", "paper"],
        ["evaluate", "examples", *out[1:]],
        ["--help"],
    ]
    train = [
        ["evaluate", "ablation", *out],
        ["evaluate", "equalities", *out],
        ["finetune", "-l", atlas_library, "-o", tmp_path / "model"],
        [*compare, "untrained"],
        [*compare, "transformer"],
        [*compare, "paper", "--device", "cuda", "--out", tmp_path / "other"],
    ]
    more = [[*compare, "tree-pairs"], [*compare, "fasttext"], [*compare, "approach0"], ["report", tmp_path / "out"]]
    ended = without("torch,sklearn,scipy,fasttext,pya0,playwright,matplotlib", [*plain, *train, *more])
    for command, one in zip([*plain, *train, *more], ended, strict=True):
        assert "Traceback" not in one.err
        if command in plain:
            assert one.code == 0, one
        else:
            extra = "train" if command in train else "eval"
            assert one.code == 3, (command, one)
            assert f"pip install 'eqkin[{extra}]'" in one.err, (command, one)


def test_one_missing_library_is_named_with_its_extra(tmp_path, corpora):
    options = ["--small", "--out", tmp_path / "out", "--corpus", corpora[0], "--device", "cpu", "--systems"]
    compare = ["evaluate", "labelled", labelled_file(tmp_path), *options]
    ended = without("sklearn,playwright", [[*compare, name] for name in ("tfidf-tree", "bitmap-cnn", "untrained")])
    assert [one.code for one in ended] == [3, 3, 0]
    for one, name in zip(ended, ("sklearn", "playwright"), strict=False):
        assert name in one.err.splitlines()[-1] and "pip install 'eqkin[eval]'" in one.err
