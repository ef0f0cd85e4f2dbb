"""`eqkin train` as a user meets it; what runs do is tested in `tests/learning`."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from eqkin.cli import app
from eqkin.cli.console import ProgressDisplay

if TYPE_CHECKING:
    from eqkin.learning.data import Corpus

runner = CliRunner()

TINY = ["--set", "width=8", "--set", "held_out=0.3", "--batch", "4", "--triplets", "16", "--device", "cpu"]


def test_progress_display_fits_a_terminal_of_80_columns() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    text = "loss 4.8073, similarity 0.5662, masking 4.2411, 563 triplets/s, held-out ranking 52.2 % [31.0, 73.4]"
    display = ProgressDisplay("", console=console)
    display.update(42, 100, text=text)
    with console.capture() as captured:
        console.print(display.render())
    assert {"42%", "-:--:--", *text.split()} <= set(captured.get().split())


def test_progress_display_counts_from_zero_in_whole_numbers() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    display = ProgressDisplay("{done:,} of {total:,} papers", console=console)
    with console.capture() as captured:
        console.print(display.render())
    assert "0 of 0 papers" in captured.get() and "0.0" not in captured.get()


@pytest.fixture(scope="module")
def corpus(unindexed_library: Path) -> Corpus:
    """The trees of four articles."""
    pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")
    from eqkin.api import Library
    from eqkin.learning.data import Corpus

    with Library.open(unindexed_library) as library:
        return Corpus.from_library(library)


def test_train_prints_its_score_as_json(tmp_path: Path, corpus: Corpus, fast_neighbours: None) -> None:
    corpus.save(tmp_path / "corpus.zst")
    arguments = ["train", str(tmp_path / "corpus.zst"), "-o", str(tmp_path / "run"), "--json", *TINY]
    result = runner.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["finished"] and report["step"] == 4
    assert report["ranking"]["low"] <= report["ranking"]["score"] <= report["ranking"]["high"]
    assert Path(report["model"], "model.json").is_file()
    assert (
        json.loads(Path(report["model"], "model.json").read_text())["recipe"]["name"] == "eqkin"
    )  # unless another is asked for
    assert "no words" not in result.stderr


def test_train_warns_of_a_corpus_without_words(tmp_path: Path, corpus: Corpus, fast_neighbours: None) -> None:
    replace(corpus, words=None).save(tmp_path / "corpus.zst")
    for name, said in (("eqkin", True), ("paper", False)):
        arguments = ["train", str(tmp_path / "corpus.zst"), "--recipe", name, "-o", str(tmp_path / name), *TINY]
        result = runner.invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert ("no words around its equations" in result.stderr) == said


def test_help_of_train_names_every_setting() -> None:
    pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")
    from eqkin.cli.train import train
    from eqkin.learning.config import Recipe

    documented = set(re.findall(r"\w+", train.__doc__ or ""))
    named = {"name", "batch", "triplets", "seed", "architecture"}  # options of their own, or none
    assert {field.name for field in [*fields(Recipe), *fields(Recipe().architecture)]} - named <= documented
