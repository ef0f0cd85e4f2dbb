"""The campaigns of hostile input: their cases can be repeated, and report what must not happen."""

import random

import pytest

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
