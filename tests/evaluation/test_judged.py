"""Judged sets and runs are read, or refused with a reason."""

from pathlib import Path

import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.judged import JudgedSet, read_qrels, read_run

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
        ({"topics": ""}, "no topics or no formulas"),
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
