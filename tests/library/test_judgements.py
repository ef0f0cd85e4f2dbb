"""Judgements: kept by many writers, checked, exported."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context

import pytest

from eqkin.api import verify
from eqkin.errors import BadInput, CorruptData, LimitReached, StorageFailed
from eqkin.library.judgements import JUDGEMENTS_NAME, Judgement, LocalJudgements
from eqkin.limits import LIMITS
from tests.cancelling import CountingScope
from tests.library.conftest import write_article
from tests.limits import changed_limits

ONE = Judgement(equation="paper#1", relevant=True, latex="x", words="some words", keywords=("a", "b"))


def write_some(folder, number):
    for i in range(5):
        LocalJudgements(folder).add(Judgement(equation=f"paper#{number}-{i}", relevant=True, latex="x"))


def test_reading_judgements_creates_no_file(tmp_path):
    kept = LocalJudgements(tmp_path)
    assert (kept.list_all(), kept.export()) == ([], [])
    assert not list(tmp_path.iterdir())


def test_added_judgement_is_read_back(tmp_path):
    kept = LocalJudgements(tmp_path).add(ONE)
    assert kept.time
    assert LocalJudgements(tmp_path).list_all() == [kept]
    assert replace(kept, time="") == ONE


def test_export_uses_the_last_judgement_of_an_equation(tmp_path):
    judgements = LocalJudgements(tmp_path)
    for relevant in (True, False, True, False):
        judgements.add(replace(ONE, relevant=relevant))
    judgements.add(replace(ONE, equation="paper#2", keywords=("b", "c")))
    judgements.add(replace(ONE, latex="", mathml="<math><mi>x</mi></math>"))
    first, second = judgements.export()
    assert (first.relevant, first.irrelevant, first.keywords) == (["paper#2"], ["paper#1"], ["a", "b", "c"])
    assert (second.latex, second.relevant) == ("", ["paper#1"])


def test_keywords_of_a_query_are_listed_once_in_their_order(tmp_path):
    judgements = LocalJudgements(tmp_path)
    for start in (0, 25):
        judgements.add(replace(ONE, keywords=tuple(str(number) for number in range(start, start + 50))))
    (query,) = judgements.export()
    assert query.keywords == [str(number) for number in range(75)]
    with pytest.raises(LimitReached, match="keywords"):
        judgements.add(replace(ONE, keywords=("x",) * (LIMITS.judgement_keywords + 1)))


def test_export_stops_when_it_is_cancelled(tmp_path):
    LocalJudgements(tmp_path).add(ONE)
    with pytest.raises(LimitReached, match="given up"):
        CountingScope(1).run(LocalJudgements(tmp_path).export)


def test_judgements_are_deleted_by_number(tmp_path):
    judgements = LocalJudgements(tmp_path)
    assert judgements.delete() == 0
    for number in range(4):
        judgements.add(replace(ONE, equation=f"paper#{number}"))
    first, second, *_ = judgements.list_numbered()
    assert judgements.delete([second, 99]) == 1
    assert [each.equation for each in judgements.list_all()] == ["paper#0", "paper#2", "paper#3"]
    assert (judgements.delete(), judgements.list_all()) == (3, [])


def test_several_processes_add_judgements(tmp_path):
    processes = [get_context("spawn").Process(target=write_some, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(LocalJudgements(tmp_path).list_all()) == 15


def test_judgements_are_added_while_papers_are(library, papers):
    """A writer of papers and one of judgements wait for each other; readers see both."""
    judgements = LocalJudgements(library.folder)
    with ThreadPoolExecutor(1) as pool:
        added = pool.submit(lambda: [judgements.add(ONE) for _ in range(20)])
        for number in range(10, 15):
            library.add(write_article(papers, number))
        assert len(added.result()) == 20
    assert len(judgements.list_all()) == 20
    assert (library.folder / "library.db") == judgements.path
    verdict = verify(library.folder)
    assert verdict.papers == 8 and not verdict.problems


def test_empty_or_too_many_judgements_are_refused(tmp_path):
    with pytest.raises(BadInput):
        LocalJudgements(tmp_path).add(Judgement(equation="", relevant=True, latex="x"))
    with pytest.raises(BadInput):
        LocalJudgements(tmp_path).add(Judgement(equation="paper#1", relevant=True))
    few = LocalJudgements(tmp_path)
    few.add(ONE)
    with changed_limits(web_judgements=1), pytest.raises(LimitReached):
        few.add(ONE)


def test_judgements_do_not_change_the_generation(library):
    before = library.read_generation()
    LocalJudgements(library.folder).add(ONE)
    assert library.read_generation() == before


def test_changed_judgement_is_found(tmp_path):
    LocalJudgements(tmp_path).add(ONE)
    with closing(sqlite3.connect(tmp_path / JUDGEMENTS_NAME)) as connection, connection:
        connection.execute("UPDATE judgements SET relevant = 0")
    with pytest.raises(CorruptData):
        LocalJudgements(tmp_path).list_all()


def test_file_that_is_not_a_database_is_named(tmp_path):
    (tmp_path / JUDGEMENTS_NAME).write_bytes(b"nonsense" * 1000)
    with pytest.raises(CorruptData, match=JUDGEMENTS_NAME):
        LocalJudgements(tmp_path).list_all()


def test_add_raises_storage_failed_where_nothing_can_be_written(tmp_path):
    with pytest.raises(StorageFailed):
        LocalJudgements(tmp_path / "nowhere").add(ONE)


def test_file_of_a_writer_killed_before_its_first_judgement_is_empty(tmp_path):
    (tmp_path / JUDGEMENTS_NAME).touch()
    judgements = LocalJudgements(tmp_path)
    assert judgements.list_all() == []
    assert [judgements.add(ONE)] == judgements.list_all()


def test_judgements_are_limited_in_length_and_total_size(tmp_path):
    with pytest.raises(LimitReached):
        LocalJudgements(tmp_path).add(replace(ONE, mathml="x" * LIMITS.judgement_chars))
    small = LocalJudgements(tmp_path)
    with changed_limits(judgements_bytes=20_000), pytest.raises(LimitReached):
        for _ in range(10):
            small.add(replace(ONE, mathml="x" * 10_000))
    assert 0 < len(small.list_all()) < 10
