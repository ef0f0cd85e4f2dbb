"""Results are records that survive being saved, and what is no result is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.evaluation.results import PAPER, ExperimentResult, Score
from tests.evaluation import reports


@pytest.mark.parametrize("result", [reports.ablation(), reports.study(), reports.examples()])
def test_a_result_comes_back_as_it_was(tmp_path, result):
    path = result.save(tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / f"{result.experiment}.json"
    assert ExperimentResult.load(path) == result
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_numbers_of_numpy_are_numbers(tmp_path):
    made = reports.ablation()
    made.tables[0].rows[0].cells["ranking"] = Score(np.float64(0.5), np.float32(0.25), np.float64(0.75))
    assert ExperimentResult.load(made.save(tmp_path)).tables[0].rows[0].cells["ranking"] == Score(0.5, 0.25, 0.75)


def test_the_papers_rows_are_told_from_ours(tmp_path):
    rows = ExperimentResult.load(reports.ablation().save(tmp_path)).tables[0].rows
    assert {row.origin for row in rows} == {"measured", PAPER}
    assert all(score.low is None for row in rows if row.origin == PAPER for score in row.cells.values())


def test_saving_replaces_what_was_there(tmp_path):
    reports.ablation().save(tmp_path)
    later = ExperimentResult("ablation", "Later", "", ["Holds."])
    assert ExperimentResult.load(later.save(tmp_path)) == later


def test_a_result_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadInput, match="no such result"):
        ExperimentResult.load(tmp_path / "none.json")
    with pytest.raises(BadInput, match="cannot be read"):
        ExperimentResult.load(tmp_path)


def changed(data, name, value):
    """With another first table."""
    return data | {"tables": [data["tables"][0] | {name: value}, *data["tables"][1:]]}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data | {"version": 2},
        lambda data: data | {"unheard": "of"},
        lambda data: {key: value for key, value in data.items() if key != "tables"},
        lambda data: data | {"tables": [{"name": "t"}]},
        lambda data: data | {"plots": [3]},
        lambda data: data | {"title": 3},
        lambda data: data | {"findings": "Holds."},
        lambda data: data | {"facts": {"corpus": None}},
        lambda data: changed(data, "title", []),
        lambda data: changed(data, "columns", [{"key": [], "title": "x"}]),
        lambda data: changed(data, "rows", [{"title": "x", "cells": {"y": {"value": "1"}}}]),
        lambda data: changed(data, "rows", [{"title": "x", "cells": {"y": {"value": 1, "low": [0], "high": 2}}}]),
        lambda data: changed(data, "rows", [{"title": "x", "cells": {"y": True}}]),
        lambda data: [data],
        lambda data: 3,
    ],
)
def test_what_is_no_result_of_this_version_is_refused(tmp_path, change):
    path = reports.ablation().save(tmp_path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CorruptData, match=r"ablation\.json.*run the experiment again"):
        ExperimentResult.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_what_is_not_json_is_refused(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CorruptData, match="run the experiment again"):
        ExperimentResult.load(tmp_path / "x.json")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="could not be made"):
        reports.study().save(tmp_path / "file" / "results")
