"""`eqkin finetune` as a user meets it; finetuning itself is tested in `tests/learning`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin import Encoder  # noqa: E402
from tests.cli.running import eqkin  # noqa: E402
from tests.encoder.models import random_model  # noqa: E402
from tests.learning.pairs import corpus_of_equalities  # noqa: E402

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"


class Finetuned(NamedTuple):
    """What a small network became."""

    folder: Path
    first: Path
    report: Any


@pytest.fixture(scope="module")
def finetuned(atlas_library, tmp_path_factory) -> Finetuned:
    place = tmp_path_factory.mktemp("finetuned")
    random_model().save(place / "first")
    command = ["finetune", "-l", atlas_library, "--model", place / "first", "-o", place / "tuned", "--epochs", 2]
    return Finetuned(place / "tuned", place / "first", eqkin(*command, "--batch", 32, "--device", "cpu", "--json").json)


def test_finetune_reports_recall_before_and_after(finetuned):
    report = finetuned.report
    assert report["model"] == str(finetuned.folder)
    assert report["learned"] > report["tested"] > 0 < report["checked"]
    for when in ("before", "after"):
        assert report[when].keys() == {"r1", "r10", "r100"}
        assert all(0 <= recall <= 1 for recall in report[when].values())
    assert 0 <= report["choice"]["epochs"] <= 2


def test_finetuned_model_loads_in_encoder(finetuned):
    encoder = Encoder.load(finetuned.folder)
    first = Encoder.load(finetuned.first)
    assert encoder.digest != first.digest
    vectors = encoder.encode([BAYES, "x^2"])
    assert vectors.shape == first.encode([BAYES, "x^2"]).shape
    assert np.isfinite(vectors).all()
    described = json.loads((finetuned.folder / "model.json").read_text())
    assert described["training"]["finetuned"]["model"] == first.digest


def test_finetuned_model_works_in_commands(finetuned, tmp_path):
    (tmp_path / "topics.tsv").write_text("q1\tx^2\n")
    (tmp_path / "formulas.tsv").write_text("f1\ty^2\nf2\tx^2\n")
    given = [f"--{name}={tmp_path / name}.tsv" for name in ("topics", "formulas")]
    assert eqkin("rank", *given, "--model", finetuned.folder, "--out", tmp_path / "run").code == 0
    assert [line.split()[2] for line in (tmp_path / "run").read_text().splitlines()] == ["f2", "f1"]
    equations = [{"latex": latex, "label": latex[:2]} for latex in ("x^2", "x^3", r"\frac{a}{b}", r"\frac{c}{d}")]
    (tmp_path / "mine.json").write_text(json.dumps(equations))
    measured = ["evaluate", "labelled", tmp_path / "mine.json", "--json"]
    assert eqkin(*measured, "--model", finetuned.folder).json["equations"] == 4
    compared = eqkin(*measured, "--systems", f"paper,{finetuned.folder}").json
    assert [row["system"] for row in compared] == ["paper", "tuned"]


def test_finetune_overwrites_nothing(finetuned, atlas_library, tmp_path):
    before = {path.name: path.read_bytes() for path in finetuned.folder.iterdir()}
    ended = eqkin("finetune", "-l", atlas_library, "-o", finetuned.folder)
    assert ended.code == 3
    assert "already holds a model" in ended.err
    assert {path.name: path.read_bytes() for path in finetuned.folder.iterdir()} == before
    (tmp_path / "file").write_text("precious")
    ended = eqkin("finetune", "-l", atlas_library, "-o", tmp_path / "file")
    assert ended.code == 3
    assert "choose another name" in ended.err
    assert (tmp_path / "file").read_text() == "precious"


def test_finetune_prints_text_from_a_corpus_file(finetuned, tmp_path):
    corpus_of_equalities().save(tmp_path / "corpus.zst")
    command = ["finetune", tmp_path / "corpus.zst", "--model", finetuned.first, "-o", tmp_path / "model", "--epochs", 1]
    ended = eqkin(*command, "--batch", 32, "--device", "cpu", "--pairs", "equalities", "--held-out", 0.4)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("finetuned on ") and lines[-1] == f"the network is in {tmp_path / 'model'}"
    assert [line.split()[0] for line in lines[1:-1]] == ["R@1", "R@10", "R@100"]
    assert "training pairs" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pairs", "sums"], "choose from equalities, inequalities, relations"),
        (["--held-out", 1], "the held-out share must be between 0 and 1"),
        (["--model", "nowhere"], "contains no model"),
        (["--device", "abacus"], "no device 'abacus'"),
    ],
)
def test_finetune_reports_bad_options(tmp_path, options, words):
    corpus_of_equalities().save(tmp_path / "corpus.zst")
    ended = eqkin("finetune", tmp_path / "corpus.zst", "-o", tmp_path / "model", *options)
    assert ended.code == 3
    assert words in ended.err
    assert not (tmp_path / "model").exists()


def test_finetune_reports_too_few_equalities(tmp_path):
    corpus_of_equalities(works=2).save(tmp_path / "corpus.zst")
    ended = eqkin("finetune", tmp_path / "corpus.zst", "-o", tmp_path / "model")
    assert ended.code == 3
    assert "too few" in ended.err
