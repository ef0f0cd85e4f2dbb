"""InfoNCE against its formula, written out."""

import math

import pytest
import torch

from eqkin.training.losses import InfoNCELoss


def slow(left, right, temperature):
    """The formula with loops."""
    total = 0.0
    for i in range(len(left)):
        cosines = [float(left[i] @ r / left[i].norm() / r.norm()) for r in right]
        total -= math.log(math.exp(cosines[i] / temperature) / sum(math.exp(c / temperature) for c in cosines))
    return total / len(left)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_it_is_the_formula(temperature):
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    assert float(InfoNCELoss(temperature)(left, right)) == pytest.approx(slow(left, right, temperature), rel=1e-5)


def test_lengths_do_not_matter():
    left, right = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(InfoNCELoss()(left, right), InfoNCELoss()(5 * left, 0.1 * right), rtol=1e-4)


def test_pairs_that_match_cost_nothing_and_those_that_do_not_cost_much():
    vectors = torch.eye(4)
    assert float(InfoNCELoss()(vectors, vectors)) < 1e-6
    assert float(InfoNCELoss()(vectors, vectors.roll(1, 0))) == pytest.approx(100, rel=1e-3)


def test_vectors_that_are_all_the_same_cost_the_logarithm_of_their_number():
    assert float(InfoNCELoss()(torch.ones(6, 3), torch.ones(6, 3))) == pytest.approx(math.log(6), rel=1e-5)


def test_descending_it_brings_partners_together():
    generator = torch.Generator().manual_seed(3)
    left, right = torch.randn(2, 5, 4, generator=generator)
    left.requires_grad_()
    before = InfoNCELoss(0.5)(left, right)
    before.backward()
    assert float(InfoNCELoss(0.5)((left - left.grad).detach(), right)) < float(before.detach())
