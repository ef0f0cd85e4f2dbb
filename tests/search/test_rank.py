"""TREC runs over formulas of any collection."""

import numpy as np
import pytest

from eqkin.errors import BadInput
from eqkin.search.query import FormulaReader
from eqkin.search.rank import encode, read_table, run_lines


@pytest.fixture(scope="module")
def reader():
    opened = FormulaReader()
    yield opened
    opened.close()


def test_all_formulas_are_ranked_by_cosine_and_unreadable_ones_last(encoder, reader):
    topics = encode([("t1", "x^2"), ("t2", r"\int f")], encoder, reader)
    formulas = encode([("a", "y^2"), ("bad", r"\begin{nope}"), ("b", "x^2"), ("c", r"\int_0^1 g")], encoder, reader)
    assert list(formulas.problems) == ["bad"]
    rows = [line.split() for line in run_lines(topics, formulas, "tag")]
    assert [row[0] for row in rows] == ["t1"] * 4 + ["t2"] * 4
    assert [row[3] for row in rows] == ["1", "2", "3", "4"] * 2
    assert rows[0][2] == "b" and float(rows[0][4]) == pytest.approx(1, abs=1e-5)
    assert rows[3][2] == rows[7][2] == "bad" and float(rows[3][4]) == -2
    vectors = encoder.encode(["x^2", "y^2"])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = next(float(row[4]) for row in rows if row[:3] == ["t1", "Q0", "a"])
    assert found == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)


def test_nothing_to_rank_is_an_empty_run(encoder, reader):
    empty = encode([], encoder, reader)
    assert list(run_lines(empty, empty)) == []


@pytest.mark.parametrize("content", [b"a x^2\n", b"\tx\n", b"a\tx\na\ty\n", b"a b\tx\n", b"a\t\xff\n"])
def test_tables_that_are_none_are_refused(tmp_path, content):
    (tmp_path / "t.tsv").write_bytes(content)
    with pytest.raises(BadInput, match="t.tsv"):
        read_table(tmp_path / "t.tsv")


def test_tables_are_read_as_written(tmp_path):
    (tmp_path / "t.tsv").write_bytes(b"\xef\xbb\xbfa\tx^2\r\n\nB.1\ty\tz\n")
    assert read_table(tmp_path / "t.tsv") == [("a", "x^2"), ("B.1", "y\tz")]
