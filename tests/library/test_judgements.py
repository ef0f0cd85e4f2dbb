"""Judgements: kept by many writers, checked, exported."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from eqkin.api import Library, verify
from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.library.judgements import Judgement, LocalJudgements
from eqkin.limits import LIMITS
from tests.cancelling import CountingScope
from tests.library.conftest import write_article
from tests.limits import changed_limits

ONE = Judgement(equation="paper#1", relevant=True, latex="x", words="some words", keywords=("a", "b"))


@pytest.fixture
def folder(tmp_path):
    with Library.open(tmp_path / "library", create=True) as library:
        return library.folder


def write_some(folder, number):
    for i in range(5):
        LocalJudgements(folder).add(Judgement(equation=f"paper#{number}-{i}", relevant=True, latex="x"))


def test_added_judgement_is_read_back(folder):
    kept = LocalJudgements(folder).add(ONE)
    assert kept.time
    assert LocalJudgements(folder).list_all() == [kept]
    assert replace(kept, time="") == ONE


def test_export_uses_the_last_judgement_of_an_equation(folder):
    judgements = LocalJudgements(folder)
    for relevant in (True, False, True, False):
        judgements.add(replace(ONE, relevant=relevant))
    judgements.add(replace(ONE, equation="paper#2", keywords=("b", "c")))
    judgements.add(replace(ONE, latex="", mathml="<math><mi>x</mi></math>"))
    first, second = judgements.export()
    assert (first.relevant, first.irrelevant, first.keywords) == (["paper#2"], ["paper#1"], ["a", "b", "c"])
    assert (second.latex, second.relevant) == ("", ["paper#1"])


def test_keywords_of_a_query_are_listed_once_in_their_order(folder):
    judgements = LocalJudgements(folder)
    for start in (0, 25):
        judgements.add(replace(ONE, keywords=tuple(str(number) for number in range(start, start + 50))))
    (query,) = judgements.export()
    assert query.keywords == [str(number) for number in range(75)]
    with pytest.raises(LimitReached, match="keywords"):
        judgements.add(replace(ONE, keywords=("x",) * (LIMITS.judgement_keywords + 1)))


def test_export_stops_when_it_is_cancelled(folder):
    LocalJudgements(folder).add(ONE)
    with pytest.raises(LimitReached, match="given up"):
        CountingScope(1).run(LocalJudgements(folder).export)


def test_several_processes_add_judgements(folder):
    processes = [get_context("spawn").Process(target=write_some, args=(folder, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(LocalJudgements(folder).list_all()) == 15


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


def test_empty_or_too_many_judgements_are_refused(folder):
    with pytest.raises(BadInput):
        LocalJudgements(folder).add(Judgement(equation="", relevant=True, latex="x"))
    with pytest.raises(BadInput):
        LocalJudgements(folder).add(Judgement(equation="paper#1", relevant=True))
    few = LocalJudgements(folder)
    few.add(ONE)
    with changed_limits(web_judgements=1), pytest.raises(LimitReached):
        few.add(ONE)


def test_judgements_do_not_change_the_generation(library):
    before = library.read_generation()
    LocalJudgements(library.folder).add(ONE)
    assert library.read_generation() == before


def test_add_raises_storage_failed_where_nothing_can_be_written(folder):
    with pytest.raises(CorruptData):
        LocalJudgements(folder / "nowhere").add(ONE)


def test_judgements_are_limited_in_length_and_total_size(folder):
    with pytest.raises(LimitReached):
        LocalJudgements(folder).add(replace(ONE, mathml="x" * LIMITS.judgement_chars))
    small = LocalJudgements(folder)
    with changed_limits(judgements_bytes=20_000), pytest.raises(LimitReached):
        for _ in range(10):
            small.add(replace(ONE, mathml="x" * 10_000))
    assert 0 < len(small.list_all()) < 10
