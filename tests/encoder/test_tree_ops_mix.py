"""The mix of neighbours and the moments of trees, against their formulas, finite differences and the GPU kernels."""

# ruff: noqa: E402

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.tree_ops import (
    _tree_mix,
    _tree_mix_gradient,
    _tree_moments,
    compute_tree_moments,
    mix_neighbours,
)
from tests.encoder.batches import SOME_FORESTS, batch_trees, padded, random, slow_mix
from tests.formulas.strategies import build

WIDTHS = st.integers(1, 9)
LEAF = ("mi", "", "x", [])


@given(SOME_FORESTS, WIDTHS)
def test_mix_matches_its_formula(forest, width):
    x, terms = random(len(forest.tag), width), random(5, width, seed=1)
    assert torch.allclose(mix_neighbours(x, terms, batch_trees(forest)), slow_mix(forest, x, terms), atol=1e-12)


@given(SOME_FORESTS, WIDTHS)
def test_tree_moments_match_their_formula(forest, width):
    x, start = random(len(forest.tag), width), forest.offsets.tolist()
    mean, square = compute_tree_moments(x, batch_trees(forest))
    for tree, (a, b) in enumerate(zip(start, start[1:], strict=False)):
        assert torch.allclose(mean[tree], x[a:b].mean(0))
        assert torch.allclose(square[tree], x[a:b].square().mean(0))


@settings(max_examples=8)
@given(SOME_FORESTS, st.integers(1, 3), st.integers(0, 4))
def test_mix_gradients_match_finite_differences(forest, width, padding):
    trees = padded(batch_trees(forest), padding)
    x, terms = random(len(trees.parent), width).requires_grad_(), random(5, width, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, terms: mix_neighbours(x, terms, trees), [x, terms])
    assert torch.autograd.gradcheck(lambda x: compute_tree_moments(x, trees), [x])


@given(SOME_FORESTS, WIDTHS, st.integers(1, 4), st.sampled_from([0.0, 1e30, float("nan")]))
def test_mix_of_padding_is_zero(forest, width, padding, value):
    trees, n = batch_trees(forest), len(forest.tag)
    more = padded(trees, padding)
    plain = random(n, width).requires_grad_()
    x = torch.cat([plain.detach(), torch.full((padding, width), value, dtype=torch.float64)]).requires_grad_()
    rows = [random(5, width, seed=1).requires_grad_() for _ in range(2)]
    y, expected = mix_neighbours(x, rows[0], more), mix_neighbours(plain, rows[1], trees)
    assert torch.equal(y[:n], expected)
    assert not y[n:].any()
    back = random(n + padding, width, seed=2)
    padded_gradients = torch.autograd.grad(y, [x, rows[0]], back)
    gradients = torch.autograd.grad(expected, [plain, rows[1]], back[:n])
    assert torch.equal(padded_gradients[0][:n], gradients[0])
    assert not padded_gradients[0][n:].any()
    assert torch.allclose(padded_gradients[1], gradients[1])
    mean, square = compute_tree_moments(x, more)
    for ours, theirs in zip((mean, square), compute_tree_moments(plain, trees), strict=True):
        assert torch.equal(ours, theirs)
    (gradient,) = torch.autograd.grad(mean.sum() + square.sum(), x)
    assert not gradient[n:].any()


@pytest.mark.parametrize("transposed", [False, True])
def test_mix_passes_torch_opcheck(transposed):
    trees = padded(batch_trees(build([("a", "", "", [LEAF, LEAF]), LEAF])), 2)
    structure = (trees.parent, trees.first_child, trees.n_children)
    x = (random(5, 6).T if transposed else random(6, 5)).requires_grad_()
    terms = (random(5, 5, 1).T if transposed else random(5, 5, 1)).requires_grad_()
    torch.library.opcheck(_tree_mix, (x, terms, *structure))
    torch.library.opcheck(_tree_mix, (x.detach().bfloat16().requires_grad_(), terms.detach().float(), *structure))
    torch.library.opcheck(_tree_mix_gradient, (random(6, 5, 2), x.detach(), terms.detach(), *structure))
    torch.library.opcheck(_tree_moments, (x, trees.tree, trees.offsets))
    torch.library.opcheck(_tree_moments, (x.detach().bfloat16().requires_grad_(), trees.tree, trees.offsets))
    assert mix_neighbours(x, terms, trees).is_contiguous()  # as the kernels' results are, whatever goes in
