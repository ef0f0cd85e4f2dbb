"""The campaigns of hostile input: their cases can be repeated, and report what must not happen."""

import random
from types import SimpleNamespace

import pytest

from benchmarks.torture import fuzz
from benchmarks.torture.fuzz import Fuzzer, build_document, mutate


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"), seed=1)


@pytest.mark.parametrize("number", [n for n, kind in enumerate(Fuzzer.kinds) if kind not in ("query", "search")])
def test_cases_of_every_kind_pass(fuzzer: Fuzzer, number: int) -> None:
    assert fuzzer.run_case(number) == Fuzzer.kinds[number]


def test_mutations_and_documents_are_determined_by_their_seed() -> None:
    made = [mutate(b"some text" * 9, random.Random(seed)) for seed in (1, 1, *range(20))]
    assert made[0] == made[1]
    assert len(set(made)) > 5
    archives = [build_document("tar", "$x$", ["x"], random.Random(5)) for _ in range(2)]
    assert archives[0] == archives[1]


def test_reader_whose_time_grows_as_the_square_is_reported(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, power, free = [0.0], [1], [0]

    def read(text: str, *rest: object, **options: object) -> None:
        clock[0] += (len(text) / 50_000) ** power[0] if free[0] == 0 else 0
        free[0] = max(free[0] - 1, 0)

    monkeypatch.setattr(fuzz, "parse", read)
    monkeypatch.setattr(fuzz, "time", SimpleNamespace(process_time=lambda: clock[0]))
    for free_documents in (0, 1):  # the smallest document may be read at once for another reason
        for seed in range(12):
            free[0] = free_documents
            fuzzer._check_repeat(random.Random(seed))
    power[0], free[0] = 2, 0
    with pytest.raises(AssertionError, match="for 1/4, 1/2 and all"):
        for seed in range(12):
            fuzzer._check_repeat(random.Random(seed))
