"""Random numbers are a function of seed, purpose, step and index."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.randomness import RandomStream, make_step_column
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


def test_random_numbers_never_change():
    """If this fails, earlier runs can be neither resumed nor reproduced."""
    stream = RandomStream(0, "anchor")
    assert stream.draw_uniform(torch.tensor(0), torch.arange(3)).tolist() == [
        0.23069264053744476,
        0.08967186827579898,
        0.23315465351962572,
    ]
    assert RandomStream(7, "mask").draw_below(1000, torch.tensor(5), torch.arange(6)).tolist() == [
        361,
        139,
        86,
        267,
        505,
        395,
    ]


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


def test_random_numbers_are_uniform_over_steps():
    numbers = (
        RandomStream(0, "paper")
        .draw_uniform(make_step_column(0, 40_000, torch.device("cpu")), torch.tensor([17]))
        .flatten()
    )
    assert fits(np.bincount((numbers * 100).long(), minlength=100), np.full(100, 0.01))


@pytest.mark.parametrize("bound", [1, 2, 7, 192, 1000])
def test_random_integers_are_uniform_below_their_bound(bound):
    numbers = RandomStream(0, "cited").draw_below(bound, STEP, MANY)
    assert numbers.dtype == torch.int64
    assert fits(np.bincount(numbers, minlength=bound), np.full(bound, 1 / bound))
    bounds = torch.arange(1, 40_001)
    each = RandomStream(0, "cited").draw_below(bounds, STEP, MANY)
    assert ((each >= 0) & (each < bounds)).all()


def test_random_streams_are_uncorrelated():
    numbers = [
        RandomStream(0, "mask").draw_uniform(STEP, MANY),
        RandomStream(1, "mask").draw_uniform(STEP, MANY),
        RandomStream(0, "flips").draw_uniform(STEP, MANY),
        RandomStream(0, "flip-one").draw_uniform(STEP, MANY),
        RandomStream(0, "flip-two").draw_uniform(STEP, MANY),
        RandomStream(0, "mask").draw_uniform(STEP + 1, MANY),
        RandomStream(0, "mask").draw_uniform(STEP + 2, MANY),
        RandomStream(0, "mask").draw_uniform(STEP, MANY + 40_000),
        RandomStream(0, "mask").draw_uniform(STEP, MANY + 1),
        RandomStream(0, "mask").draw_uniform(STEP, 2 * MANY),
    ]
    apart = torch.corrcoef(torch.stack(numbers)) - torch.eye(len(numbers))
    assert apart.abs().max() < 6 / len(MANY) ** 0.5
    bits = torch.stack([(number * 2**10).long() for number in numbers])
    for one in range(len(numbers)):
        for other in range(one):
            same = (bits[one] == bits[other]).sum().item()
            assert abs(same - len(MANY) / 2**10) < 6 * (len(MANY) / 2**10) ** 0.5


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


def test_random_streams_are_named_by_eight_letters():
    assert torch.equal(
        RandomStream(0, "flip-one-more").draw_uniform(STEP, MANY), RandomStream(0, "flip-one").draw_uniform(STEP, MANY)
    )
