"""The triplet loss against its formula, written as a loop."""

# ruff: noqa: E402
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.training.losses import TripletLoss
from tests.encoder.batches import random


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000), st.floats(0, 3))
def test_triplet_loss_is_the_mean_shortfall_of_the_margin(batch, dimensions, seed, margin):
    anchor, partner, negative = (random(batch, dimensions, seed + i) for i in range(3))
    rows = zip(anchor.tolist(), partner.tolist(), negative.tolist(), strict=True)
    losses = [
        max(0.0, margin - sum(x * y for x, y in zip(a, p, strict=True)) + sum(x * y for x, y in zip(a, n, strict=True)))
        for a, p, n in rows
    ]
    assert float(TripletLoss(margin)(anchor, partner, negative)) == pytest.approx(sum(losses) / batch)


def test_the_margin_is_1():
    one = torch.tensor([[1.0, 0.0]])
    assert float(TripletLoss()(one, one, one)) == 1.0
    assert float(TripletLoss()(one, 2 * one, one)) == 0.0
    assert float(TripletLoss()(one, one, 2 * one)) == 2.0


def test_the_gradient_is_that_of_finite_differences():
    vectors = [random(5, 3, seed).requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(TripletLoss(), vectors)


def test_triplets_that_are_apart_have_no_gradient():
    anchor = torch.tensor([[1.0, 0.0]], requires_grad=True)
    TripletLoss()(anchor, torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]])).backward()
    assert not anchor.grad.any()
