"""`eqkin report` as a user meets it; what it writes is tested in `tests/evaluation/test_report.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from eqkin.cli import app
from eqkin.evaluation.report import EXPERIMENTS
from eqkin.evaluation.results import ExperimentResult
from tests.cli.running import eqkin


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with two results."""
    for name in ("labelled", "judged-ours"):
        ExperimentResult(name, name.title(), "", [f"Holds: {name}."]).save(tmp_path / "evaluation" / "results")
    return tmp_path / "evaluation"


def test_an_empty_folder_names_the_commands_to_run(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        ended = eqkin("report", folder)
        assert (ended.code, ended.out) == (3, "")
        assert ended.err.startswith(f"eqkin: {folder}: there are no results to report")
        assert all(f"\n  {command}\n" in ended.err for command in EXPERIMENTS.values())
    assert not list(tmp_path.iterdir())


def test_the_page_and_tables_lie_in_the_folder_and_what_is_missing_is_told_apart(store):
    ended = eqkin("report", store)
    assert ended.code == 0
    assert ended.out == f"2 experiments: {store / 'report.html'}\ntables for LaTeX: {store / 'latex'}\n"
    missing = [command for name, command in EXPERIMENTS.items() if name not in ("labelled", "judged")]
    assert ended.err.splitlines() == [f"not run yet: {command}" for command in missing]
    page = (store / "report.html").read_text("utf-8")
    assert "Judged-Ours" in page and "eqkin evaluate ablation" in page and EXPERIMENTS["labelled"] not in page


def test_files_go_where_they_are_asked_for(store, tmp_path):
    asked = [tmp_path / "new" / name for name in ("page.html", "tables", "RESULTS.md")]
    ended = eqkin("report", store, "--out", asked[0], "--latex", asked[1], "--markdown", asked[2])
    assert ended.code == 0
    assert asked[0].is_file() and asked[2].is_file()
    assert not (store / "report.html").exists()


def test_commands_it_names_exist():
    group = typer.main.get_command(app).commands["evaluate"]
    for name, command in EXPERIMENTS.items():
        words = command.split()
        assert words[:3] == ["eqkin", "evaluate", name]
        known = {option for parameter in group.commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("content", ["{", '{"version": 99}', "[]"])
def test_a_damaged_result_is_named_with_what_to_do(store, content):
    (store / "results" / "study.json").write_text(content)
    ended = eqkin("report", store)
    assert ended.code == 5
    assert "study.json" in ended.err and "run the experiment again" in ended.err
    assert not (store / "report.html").exists()


def test_another_folder_is_told_from_a_damaged_result(store):
    (store / "manifest.json").write_text("{}")
    assert eqkin("report", store).code == 0
    (store / "results").rename(store / "other")
    assert "or give the folder that `eqkin evaluate --out` was given" in eqkin("report", store).err


def test_a_page_that_cannot_be_written_is_one_line(store, tmp_path):
    (tmp_path / "file").write_text("")
    ended = eqkin("report", store, "--out", tmp_path / "file" / "page.html")
    assert ended.code == 7
    assert ended.err.splitlines()[-1].startswith("eqkin: ")
