"""The report: tables of committed results between markers, and pages that match them."""

import json
from pathlib import Path

import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.cache import ResultCache
from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.statistics import Score
from reproduce.report import PAGES, RESULTS, fill_tables, list_marked, load_tables, save_result

ROOT = Path(__file__).parents[2]
TABLE = Table("scores", "Scores", [TableColumn("a", "A")], [TableRow("one", {"a": Score(0.5, 0.4, 0.6)})])


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_pages_match_the_result_files(page):
    text = (ROOT / page).read_text("utf-8")
    assert fill_tables(text, load_tables()) == text, "run `make report`"


def test_every_result_is_shown():
    shown = {name for page in PAGES for name in list_marked((ROOT / page).read_text("utf-8"))}
    assert {name.split("/")[0] for name in shown} == {path.stem for path in RESULTS.glob("*.json")}


def test_summary_has_the_scores_of_all_sets():
    tables = {name: json.loads((RESULTS / f"{name}.json").read_bytes())["tables"] for name in ("summary", "sets")}
    measured = {row["title"]: row["cells"] for row in tables["sets"][0]["rows"]}
    searched = {row["title"]: row["cells"] for row in tables["sets"][2]["rows"]}
    names = ["notations-test, MAP", "", "laws-dev, MRR", "arqmath-dev, nDCG'", "atlas, accuracy"]
    for name, row in zip(names, tables["summary"][0]["rows"], strict=True):
        systems = {"c0": "eqkin", "c2": "tfidf-latex", "c3": "approach0"} if name else {"c0": "search"}
        scores = measured[name] if name else searched["notations-test"]
        for column, system in systems.items():
            assert row["cells"][column] == {key: round(value, 3) for key, value in scores[system].items()}
    vectors = [row["cells"]["c0"] for row in tables["summary"][1]["rows"]]
    assert vectors[-1] == f"{measured['mean over sets']['eqkin-vector']['value']:.3f}"[1:]


def test_result_files_quote_no_formula():
    for path in RESULTS.glob("*.json"):
        content = json.loads(path.read_bytes())
        cells = [cell for table in content["tables"] for row in table["rows"] for cell in row["cells"].values()]
        assert not [cell for cell in cells if isinstance(cell, str) and "\\" in cell], path.name


def test_saved_result_can_be_shown(tmp_path):
    save_result(ExperimentContext(ResultCache(tmp_path)), ExperimentResult("mine", "Mine", [TABLE]))
    tables = load_tables(tmp_path / "results")
    filled = fill_tables("Before.\n<!-- table: mine/scores -->\nold\n<!-- end -->\nAfter.\n", tables)
    assert "| one | .500 [.400, .600] |" in filled and "old" not in filled and filled.endswith("After.\n")
    assert fill_tables(filled, tables) == filled


def test_unknown_table_is_rejected():
    with pytest.raises(BadInput, match="no result for the table other/scores"):
        fill_tables("<!-- table: other/scores -->\n<!-- end -->", {"mine/scores": TABLE})


def test_folder_without_results_is_rejected(tmp_path):
    with pytest.raises(BadInput, match="no results; run experiments first"):
        load_tables(tmp_path)
