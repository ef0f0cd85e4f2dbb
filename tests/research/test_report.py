"""The report: tables of committed results between markers, and pages that match them."""

import json
from pathlib import Path

import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.measures import Score
from research.experiment import Experiment
from research.report import PAGES, RESULTS, fill_tables, list_marked, load_tables, save_result
from research.tables import ExperimentResult, Table, TableColumn, TableRow

ROOT = Path(__file__).parents[2]
TABLE = Table("scores", "Scores", [TableColumn("a", "A")], [TableRow("one", {"a": Score(0.5, 0.4, 0.6)})])


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_pages_match_the_result_files(page):
    text = (ROOT / page).read_text("utf-8")
    assert fill_tables(text, load_tables()) == text, "run `make report`"


def test_every_result_is_shown():
    shown = {name for page in PAGES for name in list_marked((ROOT / page).read_text("utf-8"))}
    assert {name.split("/")[0] for name in shown} == {path.stem for path in RESULTS.glob("*.json")}


def test_cell_can_name_figures_of_other_results(tmp_path):
    place = ["mine/scores", "one", "a"]
    rows = [TableRow("alone", {"a": {"from": [place]}}), TableRow("both", {"a": {"from": [place, place]}})]
    for name, table in (("mine", TABLE), ("summary", Table("all", "All", [TableColumn("a", "A")], rows))):
        save_result(Experiment(tmp_path), ExperimentResult(name, name, [table]))
    cells = [row.cells["a"] for row in load_tables(tmp_path / "results")["summary/all"].rows]
    assert cells == [Score(0.5, 0.4, 0.6), ".500, .500"]
    (tmp_path / "results" / "mine.json").unlink()
    with pytest.raises(BadInput, match="names the figure a of one in mine/scores, of which there are 0"):
        load_tables(tmp_path / "results")


def test_result_files_quote_no_formula():
    for path in RESULTS.glob("*.json"):
        content = json.loads(path.read_bytes())
        cells = [cell for table in content["tables"] for row in table["rows"] for cell in row["cells"].values()]
        assert not [cell for cell in cells if isinstance(cell, str) and "\\" in cell], path.name


def test_saved_result_can_be_shown(tmp_path):
    save_result(Experiment(tmp_path), ExperimentResult("mine", "Mine", [TABLE]))
    tables = load_tables(tmp_path / "results")
    filled = fill_tables("Before.\n<!-- table: mine/scores -->\nold\n<!-- end -->\nAfter.\n", tables)
    assert "| one | .500 [.400, .600] |" in filled and "old" not in filled and filled.endswith("After.\n")
    assert fill_tables(filled, tables) == filled


def test_unknown_table_is_rejected():
    with pytest.raises(BadInput, match="no result for the table other/scores"):
        fill_tables("<!-- table: other/scores -->\n<!-- end -->", {"mine/scores": TABLE})
