"""Judged sets are read or refused with a reason; the tables of the experiment say who measured what."""

from pathlib import Path

import numpy as np
import orjson
import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.context import SMALL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.experiment import run_judged
from eqkin.evaluation.judged import JudgedSet, read_published, read_qrels, read_run
from eqkin.evaluation.systems.networks import EngineSystem
from eqkin.evaluation.tables import MEASURED, PAPER, PUBLISHED, ExperimentResult, Score, TableRow
from tests.evaluation.small_systems import Characters, Sizes

_TOPICS = "t1\ta+b=c\nt2\t\\frac{x}{y}\n"
_FORMULAS = "1\tu+v=w\n2\t\\frac{p}{q}\n3\t\\sum_i x_i\n4\tx+y\n5\t\\frac{\n6\ta-b=c\n"
_QRELS = "t1 0 1 3\nt1 0 2 0\nt1 0 4 2\nt1 0 99 0\nt2 0 2 3\nt2 0 1 0\nt2 0 5 1\n"


def _folder(folder: Path, topics: str = _TOPICS, formulas: str = _FORMULAS, qrels: str = _QRELS) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in (("topics.tsv", topics), ("formulas.tsv", formulas), ("qrels.txt", qrels)):
        (folder / name).write_text(text, "utf-8")
    return folder


def _file(folder: Path, text: str) -> Path:
    path = folder / "file"
    path.write_text(text, "utf-8")
    return path


def test_judged_set_keeps_unreadable_formulas(tmp_path):
    found = JudgedSet.read(_folder(tmp_path / "my set.v2"))
    assert found.name == "my-set"
    assert list(found.topics.names) == ["t1", "t2"]
    assert list(found.formulas.problems) == ["5"]
    assert found.formulas.formulas.latex[4] == r"\frac{"
    assert len(found.formulas.formulas) == len(found.formulas) == 6
    assert found.qrels == {"t1": {"1": 3, "2": 0, "4": 2, "99": 0}, "t2": {"2": 3, "1": 0, "5": 1}}
    assert (found.judgements, found.missing_formulas) == (7, 1)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"qrels": _QRELS + "t2 0 3 high\n"}, "line 8: the grade 'high' is not a whole number"),
        ({"qrels": _QRELS + "t2 0 3 -1\n"}, "line 8: the grade '-1' is not a whole number"),
        ({"qrels": _QRELS + "t2 0 3 1.5\n"}, "line 8: the grade '1.5' is not a whole number"),
        ({"qrels": _QRELS + "t2 0 3\n"}, "line 8: a judgement has four fields.* not 3"),
        ({"qrels": _QRELS + "t2 0 1 2\n"}, "line 8: formula 1 was already judged for topic t2"),
        ({"qrels": _QRELS + "t3 0 1 2\n"}, "unknown topics: t3"),
        ({"qrels": _QRELS + "t2 0 98 2\n"}, "relevant formulas are missing from the collection: 98"),
        ({"qrels": "\n"}, "no judgements"),
        ({"topics": _TOPICS + "t3\tx\n"}, "topics without judgements, leave them out: t3"),
        ({"topics": ""}, "topics.tsv: no formulas"),
        ({"formulas": "1 x\n"}, "formulas.tsv, line 1: needs an id, a tab"),
    ],
)
def test_judged_set_rejects_inconsistent_files(tmp_path, files, message):
    with pytest.raises(BadInput, match=message):
        JudgedSet.read(_folder(tmp_path / "set", **files))


def test_judged_set_rejects_missing_files(tmp_path):
    with pytest.raises(BadInput, match=r"topics\.tsv: cannot be read"):
        JudgedSet.read(tmp_path)
    (tmp_path / "latin").write_bytes(b"t1 0 \xff 1")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_qrels(tmp_path / "latin")


def test_read_run_sorts_by_score_then_rank(tmp_path):
    lines = "t Q0 a 1 0.5 x\nt Q0 b 4 0.7 x\nt Q0 c 3 0.5 x\nt Q0 d 2 0.5 x\nu\tQ0\te\t1\t-inf\tx\n"
    assert read_run(_file(tmp_path, lines)) == {"t": ["b", "a", "d", "c"], "u": ["e"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t Q0 a 1 0.5\n", "line 1: a line of a run is"),
        ("t Q0 a first 0.5 x\n", "line 1: a line of a run is"),
        ("t Q0 a 1 nan x\n", "'nan' is not a number"),
        ("t Q0 a 1 0.5 x\n\nt Q0 a 2 0.4 x\n", "line 3: formula a is twice"),
        ("", "no results"),
    ],
)
def test_read_run_rejects_bad_lines(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read_run(_file(tmp_path, text))


def test_read_published_makes_rows_without_intervals(tmp_path):
    given = [
        {"title": "approach0", "scores": {"ndcg": 0.7178}, "note": "pya0 0.3.7"},
        {"title": "Full model", "scores": {"map": 0.5}, "origin": "paper"},
    ]
    assert read_published(_file(tmp_path, orjson.dumps(given).decode())) == [
        TableRow("approach0", {"ndcg": Score(0.7178)}, PUBLISHED, "pya0 0.3.7"),
        TableRow("Full model", {"map": Score(0.5)}, PAPER),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "a list"),
        ('[{"title": "a"}]', "entry 1: needs the form"),
        ('[{"title": "a", "scores": {"map": "high"}}]', "entry 1: needs the form"),
        ('[{"title": "a", "scores": {"nDCG": 0.5}}]', "unknown measure 'nDCG'; choose from ndcg, map, p10, bpref"),
        ('[{"title": "a", "scores": {}, "origin": "measured"}]', "entry 1: the origin must be"),
    ],
)
def test_read_published_rejects_bad_entries(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read_published(_file(tmp_path, text))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResult:
    base = tmp_path_factory.mktemp("judged")
    folder = _folder(base / "demo")
    (folder / "published.json").write_text('[{"title": "BM25", "scores": {"ndcg": 0.5, "p10": 0.1}}]')
    run = _file(base, "t1 Q0 1 1 0.9 x\nt1 Q0 4 2 0.8 x\n")
    messages: list[str] = []
    context = ExperimentContext(ResultCache(base / "store"), SMALL_SCALE, log=messages.append)
    judged = JudgedSet.read(folder)
    found, _ = run_judged(context, [Sizes(), Characters()], judged, runs={"Their run": read_run(run)})
    assert len(messages) == 2
    return found


def test_judged_rows_have_intervals_unless_published(result):
    table = result.tables[0]
    assert [(row.title, row.origin) for row in table.rows] == [
        ("Sizes of trees", MEASURED), ("Shared characters", MEASURED), ("Their run", MEASURED), ("BM25", PUBLISHED),
    ]  # fmt: skip
    assert [column.title for column in table.columns] == ["nDCG'", "MAP'", "P'@10", "bpref"]
    for row in table.rows[:3]:
        assert set(row.cells) == {"ndcg", "map", "p10", "bpref"}
        assert all(score.low <= score.value <= score.high for score in row.cells.values())
    assert table.rows[3].cells == {"ndcg": Score(0.5), "p10": Score(0.1)}
    their = table.rows[2].cells
    assert (their["ndcg"].value, their["map"].value, their["p10"].value) == (0.5, 0.5, 0.1)  # nothing for one topic


def test_judged_differences_have_intervals_and_p_values(result):
    scores, differences = result.tables[:2]
    assert [row.title for row in differences.rows] == ["Shared characters", "Their run"]
    for row, measured in zip(differences.rows, scores.rows[1:3], strict=True):
        for key in ("ndcg", "map", "p10", "bpref"):
            expected = measured.cells[key].value - scores.rows[0].cells[key].value
            assert row.cells[key].value == pytest.approx(expected)
            assert row.cells[key].low <= row.cells[key].value <= row.cells[key].high
            assert row.cells[f"p_{key}"] in {".500", "1.000"}  # two topics: four sign patterns


@pytest.mark.parametrize(("name", "noted"), [("demo", True), ("other", False)])
def test_judged_notes_systems_tuned_on_the_set(tmp_path, name, noted):
    system = Characters()
    system.tuned_on = ("demo",)
    found, _ = run_judged(
        ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE),
        [system, Sizes()],
        JudgedSet.read(_folder(tmp_path / name)),
    )
    assert [text.startswith("Shared characters: trained or tuned on demo") for text in found.notes] == [True] * noted


def test_judged_topics_table_and_facts(result):
    topics = result.tables[2]
    assert [(row.title, row.cells["formula"]) for row in topics.rows] == [("t1", "a+b=c"), ("t2", r"\frac{x}{y}")]
    assert [row.cells["related"].value for row in topics.rows] == [2, 1]
    for number, row in enumerate(result.tables[0].rows[:3]):
        values = [topic.cells[f"system-{number}"].value for topic in topics.rows]
        assert np.mean(values) == pytest.approx(row.cells["ndcg"].value)
    assert result.facts["unreadable formulas"].startswith("1;")
    assert result.facts["judged formulas that are missing"].startswith("1,")
    assert result.facts["topics without results in Their run"].startswith("1;")


def test_judged_engine_finds_related_formulas(tmp_path):
    found, _ = run_judged(
        ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE),
        [EngineSystem()],
        JudgedSet.read(_folder(tmp_path / "set")),
    )
    assert len(found.tables) == 2  # nothing to test it against
    assert found.tables[0].rows[0].cells["ndcg"].value > 0.9


def test_judged_notes_engine_on_its_development_set(tmp_path):
    context = ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE)
    found, _ = run_judged(
        context, [EngineSystem(), Sizes()], JudgedSet.read(_folder(tmp_path / EngineSystem.tuned_on[0]))
    )
    assert [text.partition(":")[0] for text in found.notes] == ["eqkin"]
    assert not run_judged(context, [EngineSystem(), Sizes()], JudgedSet.read(_folder(tmp_path / "another")))[0].notes
