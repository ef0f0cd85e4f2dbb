"""Random numbers are a function of seed, purpose, step and index."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.sampling import RandomStream, make_step_column
from tests.learning.corpora import fits

STEP = torch.tensor(3)
MANY = torch.arange(40_000)
SEEDS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=8)


def split_mix(word: int) -> int:
    """Compute the output function of SplitMix64 with Python integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def expected_bits(seed: int, name: str, step: int, index: int) -> int:
    key = (int.from_bytes(name.encode()[:8], "little") ^ (seed * 0x9E3779B97F4A7C15)) % 2**64
    start = split_mix((step * 0xBF58476D1CE4E5B9 + key) % 2**64)
    return split_mix(split_mix(start ^ index)) >> 1


@given(SEEDS, NAMES, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**31))
def test_random_numbers_are_those_of_splitmix64(seed, name, step, index, bound):
    stream = RandomStream(seed, name)
    bits = expected_bits(seed, name, step, index)
    at = torch.tensor(step), torch.tensor([index])
    assert stream.draw_uniform(*at).tolist() == [(bits >> 10) / 2**53]
    assert stream.draw_below(bound, *at).tolist() == [bits % bound]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**62])
@pytest.mark.parametrize("name", ["anchor", "mask", "flip-one"])
def test_random_numbers_are_uniform(seed, name):
    numbers = RandomStream(seed, name).draw_uniform(STEP, MANY)
    assert numbers.dtype == torch.float64
    assert 0 <= numbers.min() <= numbers.max() < 1
    assert fits(np.bincount((numbers * 100).long(), minlength=100), np.full(100, 0.01))
    fine = (numbers * 2**30) % 1  # the lower bits
    assert fits(np.bincount((fine * 100).long(), minlength=100), np.full(100, 0.01))
    assert len(numbers.unique()) == len(MANY)


def test_random_numbers_do_not_depend_on_the_batch():
    stream = RandomStream(3, "negative")
    table = stream.draw_uniform(make_step_column(10, 4, torch.device("cpu")), torch.arange(6)[None, :])
    assert table.shape == (4, 6)
    for row in range(4):
        assert torch.equal(
            table[row], RandomStream(3, "negative").draw_uniform(torch.tensor(10 + row), torch.arange(6))
        )
    assert torch.equal(
        table[:, 2:3], stream.draw_uniform(make_step_column(10, 4, torch.device("cpu")), torch.tensor([2]))
    )
