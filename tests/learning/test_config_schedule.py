"""The learning rate over the steps."""

# ruff: noqa: E402
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.config import OptimizerConfig


def rates(steps: int, warm_up: int, peak: float = 1.0, schedule: str = "linear") -> list[float]:
    config = OptimizerConfig(steps, peak, warm_up, schedule)
    return [float(config.compute_rate(torch.tensor(step))) for step in range(steps + 1)]


def test_linear_rate_rises_to_the_peak_and_falls_to_zero():
    found = rates(40, 4, 8.0)
    assert found[:5] == pytest.approx([2, 4, 6, 8, 8])
    assert found[4:] == pytest.approx([8 * (40 - step) / 36 for step in range(4, 41)])


@given(st.integers(1, 60), st.integers(0, 90), st.floats(1e-6, 10))
def test_linear_rate_is_positive_and_unimodal(steps, warm_up, peak):
    found = rates(steps, warm_up, peak)
    assert all(0 < rate <= peak * (1 + 1e-6) for rate in found[:steps])
    assert found[steps] == 0
    top = found.index(max(found))
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)
    warm_up = min(warm_up, steps // 10)  # a short run rises for a tenth of its steps
    if warm_up:
        assert max(found) == pytest.approx(peak)
        assert top == warm_up - 1


def test_cosine_rate_falls_to_a_hundredth_of_the_peak():
    found = rates(100, 10, 2.0, "cosine")[:100]
    assert found[:10] == pytest.approx([0.2 * (i + 1) * (1 + math.cos(math.pi * i / 100)) / 2 for i in range(10)])
    assert found[50] == pytest.approx(1.0)
    assert found[10:] == sorted(found[10:], reverse=True)
    assert found[-1] == pytest.approx(0.02)
    assert min(found) == found[-1]
