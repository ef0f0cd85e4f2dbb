"""Losses against their formulas, written as loops."""

# ruff: noqa: E402
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.losses import compute_context_loss, compute_info_nce_loss, compute_triplet_loss
from eqkin.learning.text import select_heaviest
from tests.encoder.batches import random

WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000), st.floats(0, 3))
def test_triplet_loss_matches_its_formula(batch, dimensions, seed, margin):
    anchor, partner, negative = (random(batch, dimensions, seed + i) for i in range(3))
    rows = zip(anchor.tolist(), partner.tolist(), negative.tolist(), strict=True)
    losses = [
        max(0.0, margin - sum(x * y for x, y in zip(a, p, strict=True)) + sum(x * y for x, y in zip(a, n, strict=True)))
        for a, p, n in rows
    ]
    assert float(compute_triplet_loss(anchor, partner, negative, margin)) == pytest.approx(sum(losses) / batch)


def test_triplet_gradient_matches_finite_differences():
    vectors = [random(5, 3, seed).requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(compute_triplet_loss, vectors)


def compute_info_nce(left, right, temperature):
    """Compute the formula with loops."""
    total = 0.0
    for i in range(len(left)):
        cosines = [float(left[i] @ r / left[i].norm() / r.norm()) for r in right]
        total -= math.log(math.exp(cosines[i] / temperature) / sum(math.exp(c / temperature) for c in cosines))
    return total / len(left)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_info_nce_matches_its_formula(temperature):
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    assert float(compute_info_nce_loss(left, right, temperature)) == pytest.approx(
        compute_info_nce(left, right, temperature), rel=1e-5
    )


def unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=1)


def test_context_loss_matches_its_formula():
    torch.manual_seed(0)
    anchor, partner = unit(5, 4), unit(5, 4)
    papers, theirs = [0, 0, 1, 2, 3], [0, 0, 1, 7, 0]
    expected = 0.0
    for i in range(5):
        others = [partner[j] for j in range(5) if j != i and theirs[j] != papers[i]]
        others += [anchor[j] for j in range(5) if papers[j] != papers[i]]
        logits = torch.stack([partner[i], *others]) @ anchor[i] / 0.07
        expected -= logits.log_softmax(0)[0].item() / 5
    found = compute_context_loss(anchor, partner, torch.tensor(papers), torch.tensor(theirs))
    assert found.item() == pytest.approx(expected, rel=1e-4)


@given(st.lists(st.lists(WEIGHTS, max_size=8), max_size=6), st.integers(1, 5))
def test_select_heaviest_keeps_the_heaviest_entries_in_order(rows, width):
    offsets = np.cumsum([0, *map(len, rows)])
    weight = np.array([value for row in rows for value in row], np.float32)
    table, real = select_heaviest(offsets, weight, width)
    assert table.shape == real.shape == (len(rows), width)
    for row, start, numbers, there in zip(rows, offsets, table.tolist(), real.tolist(), strict=False):
        best = sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:width])
        expected = [start + i for i in best]
        assert numbers == expected + [expected[0] if expected else 0] * (width - len(best))
        assert there == [True] * len(best) + [False] * (width - len(best))
