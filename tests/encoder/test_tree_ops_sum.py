"""The sum over neighbours and the mean over trees, against torch-geometric, finite differences and the GPU kernels."""

# ruff: noqa: E402

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.tree_ops import (
    _tree_sum,
    _tree_sum_with_moments,
    average_trees,
    sum_neighbours,
    sum_neighbours_with_moments,
)
from tests.encoder.batches import SOME_FORESTS, batch_trees, padded, random
from tests.formulas.strategies import build

WIDTHS = st.integers(1, 9)
PADDINGS = st.integers(0, 4)


@settings(max_examples=8)
@given(SOME_FORESTS, st.integers(1, 3), PADDINGS, st.booleans())
def test_sum_gradient_matches_finite_differences(forest, width, padding, rectify):
    trees = padded(batch_trees(forest), padding)
    x = random(len(trees.parent), width).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: sum_neighbours(x, trees, rectify=rectify), [x])


@settings(max_examples=8)
@given(SOME_FORESTS, st.integers(1, 3), PADDINGS)
def test_mean_gradient_matches_finite_differences(forest, width, padding):
    trees = padded(batch_trees(forest), padding)
    x = random(len(trees.parent), width).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: average_trees(x, trees), [x])


@given(SOME_FORESTS, WIDTHS, st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 1e30, float("nan")]))
def test_sum_of_padding_is_zero(forest, width, padding, rectify, value):
    trees = batch_trees(forest)
    more = padded(trees, padding)
    n = len(forest.tag)
    plain = random(n, width).requires_grad_()
    x = torch.cat([plain.detach(), torch.full((padding, width), value, dtype=torch.float64)]).requires_grad_()
    y, expected = sum_neighbours(x, more, rectify=rectify), sum_neighbours(plain, trees, rectify=rectify)
    assert torch.equal(y[:n], expected)
    assert not y[n:].any()
    back = random(n + padding, width, seed=1)
    (gradient,) = torch.autograd.grad(y, x, back)
    assert torch.equal(gradient[:n], torch.autograd.grad(expected, plain, back[:n])[0])
    assert not gradient[n:].any()
    means = average_trees(x, more)
    assert torch.equal(means, average_trees(plain, trees))
    (gradient,) = torch.autograd.grad(means, x, back[: len(forest)] if len(back) >= len(forest) else means)
    assert not gradient[n:].any()


@settings(max_examples=8)
@given(SOME_FORESTS, st.integers(1, 3), PADDINGS)
def test_moments_and_their_gradients_match_the_rectified_sum(forest, width, padding):
    trees = padded(batch_trees(forest), padding)
    x = random(len(trees.parent), width).requires_grad_()
    y, total, squares = sum_neighbours_with_moments(x, trees)
    plain = sum_neighbours(x, trees, rectify=True)
    assert torch.equal(y, plain)
    assert torch.allclose(total, plain.sum(0))
    assert torch.allclose(squares, plain.square().sum(0))
    assert torch.autograd.gradcheck(lambda x: sum_neighbours_with_moments(x, trees), [x])  # also of one result alone


@pytest.mark.parametrize(("transposed", "gated"), [(False, True), (True, False)])
def test_sum_passes_torch_opcheck(transposed, gated):
    trees = padded(batch_trees(build([("a", "", "", [("b", "", "", []), ("c", "", "", [])]), ("d", "", "", [])])), 2)
    structure = (trees.parent, trees.first_child, trees.n_children)
    x = (random(5, 6).T if transposed else random(6, 5)).requires_grad_()
    # Gated sums are gradients, which are not differentiated again.
    if gated:
        torch.library.opcheck(_tree_sum, (x.detach(), random(6, 5, seed=1), *structure, True))
    else:
        torch.library.opcheck(_tree_sum, (x, None, *structure, True))
    torch.library.opcheck(_tree_sum_with_moments, (x, *structure))
    torch.library.opcheck(_tree_sum_with_moments, (x.detach().bfloat16().requires_grad_(), *structure))
    assert sum_neighbours(x, trees).is_contiguous()  # as the kernels' results are, whatever goes in


def test_rectifier_keeps_nan():
    trees = batch_trees(build([("a", "", "", [("b", "", "", [])]), ("c", "", "", [])]))
    x = torch.tensor([[float("nan")], [1.0], [1.0]])
    assert sum_neighbours(x, trees, rectify=True).isnan().squeeze(1).tolist() == [True, True, False]
