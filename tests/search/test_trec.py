"""TREC runs over formulas of any collection."""

import numpy as np
import pytest

from eqkin.errors import BadInput
from eqkin.search.candidates import compare_collections
from eqkin.search.trec import encode_formulas, iter_run_lines, read_table

FORMULAS = {"a": "y^2", "bad": r"\begin{nope}", "b": "x^2", "c": r"\int_0^1 g", "d": "y^2 + x^2 = 1", "e": "a + b"}


@pytest.fixture(scope="module")
def ranked(encoder, reader):
    """A function that returns the rows of a run: topic, formula, rank, score."""

    def rows(**topics):
        asked = encode_formulas(topics.items(), encoder, reader, wildcards=True)
        lines = iter_run_lines(asked, encode_formulas(FORMULAS.items(), encoder, reader), "tag")
        found = [line.split() for line in lines]
        assert all(row[1] == "Q0" and row[5] == "tag" for row in found)
        return [(row[0], row[2], int(row[3]), float(row[4])) for row in found]

    return rows


def test_run_ranks_all_formulas_by_relevance_and_unreadable_ones_last(ranked, forest, units):
    rows = ranked(t1="x^2", t2=r"\int f")
    assert [row[0] for row in rows] == ["t1"] * 6 + ["t2"] * 6
    assert [row[2] for row in rows] == [1, 2, 3, 4, 5, 6] * 2
    assert rows[0][1::2] == ("b", 1)
    assert rows[6][1] == "c"
    assert rows[5][1::2] == rows[11][1::2] == ("bad", -1)
    readable = [name for name in FORMULAS if name != "bad"]
    queries, formulas = forest("x^2", r"\int f"), forest(*(FORMULAS[name] for name in readable))
    expected = compare_collections(queries, units(queries), formulas, units(formulas))
    for topic, scores in zip(("t1", "t2"), expected, strict=True):
        found = {row[1]: row[3] for row in rows if row[0] == topic and row[1] != "bad"}
        assert [found[name] for name in readable] == pytest.approx(scores.tolist(), abs=1e-5)
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_unreadable_topic_does_not_affect_others(ranked):
    rows = ranked(good="x^2", wrong=r"\begin{nope}")
    assert {row[3] for row in rows if row[0] == "wrong"} == {-1}
    assert [row[1:] for row in rows[:6]] == [row[1:] for row in ranked(good="x^2")]


@pytest.mark.parametrize("topic", ["?a^2", r"\qvar{a}^2"])
def test_topic_with_wildcards_ranks_matches_first(ranked, topic):
    rows = ranked(t=topic)
    assert {row[1] for row in rows[:2]} == {"a", "b"}
    assert rows[2][1] == "d"
    scores = [row[3] for row in rows]
    assert scores[1] > 2 / 3 > scores[2] > 1 / 3 > scores[3] > scores[5] == -1


def test_wildcards_count_in_topics_only(encoder, reader):
    formulas = encode_formulas([("a", "?x^2"), ("b", "x^2")], encoder, reader)
    assert formulas.patterns == {} and formulas.problems == {}
    assert not np.allclose(formulas.vectors[0], formulas.vectors[1])


def test_run_without_formulas_is_empty(encoder, reader):
    empty = encode_formulas([], encoder, reader)
    assert list(iter_run_lines(empty, empty)) == []


@pytest.mark.parametrize("content", [b"a x^2\n", b"\tx\n", b"a\tx\na\ty\n", b"a b\tx\n", b"a\t\xff\n"])
def test_read_table_refuses_malformed_files(tmp_path, content):
    (tmp_path / "t.tsv").write_bytes(content)
    with pytest.raises(BadInput, match="t.tsv"):
        read_table(tmp_path / "t.tsv")


def test_read_table_returns_ids_and_formulas(tmp_path):
    (tmp_path / "t.tsv").write_bytes(b"\xef\xbb\xbfa\tx^2\r\n\nB.1\ty\tz\n")
    assert read_table(tmp_path / "t.tsv") == [("a", "x^2"), ("B.1", "y\tz")]
