"""The histogram loss against its formula, written as loops."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.losses import HISTOGRAM_NODES, compute_histogram, compute_histogram_loss
from tests.encoder.batches import random

SIMILARITIES = st.one_of(
    st.floats(-1, 1),
    st.floats(-3, 3),
    st.sampled_from(
        [-1.0, 1.0, 0.0, np.nextafter(1, 2), np.nextafter(-1, -2), np.nextafter(1, 0), np.nextafter(-1, 0)]
    ),
    st.integers(0, HISTOGRAM_NODES - 1).map(lambda node: -1 + 2 * node / (HISTOGRAM_NODES - 1)),
)


def masses(similarity: float, nodes: int) -> list[float]:
    """Return the mass of one similarity at each node, by the two cases of the paper's kernel."""
    width = 2 / (nodes - 1)
    at = [-1 + node * width for node in range(nodes)]
    s = min(max(similarity, -1.0), 1.0)
    result = []
    for t in at:
        if t - width <= s <= t:
            result.append((s - (t - width)) / width)
        elif t <= s <= t + width:
            result.append((t + width - s) / width)
        else:
            result.append(0.0)
    return result


def loop_loss(positive: list[float], negative: list[float], nodes: int) -> float:
    """Compute the sum over r of h-_r (h+_1 + ... + h+_r)."""
    below = np.mean([masses(s, nodes) for s in positive], axis=0)
    above = np.mean([masses(s, nodes) for s in negative], axis=0)
    return sum(above[r] * below[q] for r in range(nodes) for q in range(r + 1))


@given(st.lists(SIMILARITIES, min_size=1, max_size=20), st.sampled_from([2, 3, 64]))
@example([1.0], 64)
@example([-1.0], 64)
def test_histogram_masses_match_the_kernel_and_sum_to_one(similarities, nodes):
    for dtype, precision in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        result = compute_histogram(torch.tensor(similarities, dtype=dtype), nodes)
        assert result.shape == (nodes,)
        assert (result >= 0).all()
        assert float(result.sum()) == pytest.approx(1.0, abs=precision)
        assert result.tolist() == pytest.approx(
            np.mean([masses(s, nodes) for s in similarities], axis=0), abs=precision
        )


@pytest.mark.parametrize(("similarity", "node"), [(-1.0, 0), (1.0, 63), (-7.0, 0), (7.0, 63)])
def test_histogram_clamps_to_the_outer_nodes(similarity, node):
    for dtype in (torch.float32, torch.float64):
        result = compute_histogram(torch.tensor([similarity], dtype=dtype))
        assert result[node] == 1.0
        assert result.sum() == 1.0


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000), st.floats(0.1, 2.0), st.sampled_from([5, 64]))
def test_histogram_loss_matches_its_formula(batch, dimensions, seed, scale, nodes):
    anchor, partner, negative = (scale * random(batch, dimensions, seed + i) for i in range(3))
    positives = [float(a @ p) for a, p in zip(anchor, partner, strict=True)]
    negatives = [float(a @ n) for a in anchor for n in negative]
    loss = compute_histogram_loss(anchor, partner, negative, nodes)
    assert float(loss) == pytest.approx(loop_loss(positives, negatives, nodes), abs=1e-9)


def test_histogram_gradient_matches_finite_differences():
    vectors = [(0.3 * random(4, 3, seed)).requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(lambda a, p, n: compute_histogram_loss(a, p, n, 8), vectors)
    at = (torch.arange(7) + torch.linspace(0.1, 0.9, 7)).double() * (2 / 7) - 1  # between nodes
    weights = random(1, 8)[0]
    assert torch.autograd.gradcheck(lambda s: compute_histogram(s, 8) @ weights, [at.requires_grad_()])


def unit(*angles: float) -> torch.Tensor:
    return torch.tensor([[np.cos(a), np.sin(a)] for a in angles])


def test_histogram_loss_propagates_nan():
    vectors = [torch.ones(3, 2) for _ in range(3)]
    vectors[0][1] = float("nan")
    vectors[2][2] = float("inf")
    for vector in vectors:
        vector.requires_grad_()
    loss = compute_histogram_loss(*vectors)
    assert loss.isnan()
    loss.backward()
