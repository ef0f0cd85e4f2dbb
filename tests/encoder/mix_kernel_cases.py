"""Cases for the Triton kernels of the mix, run by `test_kernels` in separate processes: see `kernel_cases`."""

import pytest
import torch

from eqkin.learning.kernels import launch_neighbour_mix, launch_segment_moments, launch_term_products
from eqkin.learning.tree_ops import (
    TreeBatch,
    _compute_term_gradients,
    _mix_on_cpu,
    compute_tree_moments,
    mix_neighbours,
)
from tests.encoder.batches import batch_trees, padded, random
from tests.encoder.kernel_cases import DEVICE, FORESTS, INTERPRETED, PRECISION


def case(forest, width, dtype, padding=3):
    """Return padded trees, input, gradient, and the five rows of coefficients."""
    trees = padded(batch_trees(forest), padding)
    x, back = (random(len(trees.parent), width, seed, dtype) for seed in (0, 1))
    return trees, x, back, random(5, width, 2, torch.float32)


def kernel_mix(trees, x, terms, *, backwards):
    """Return the kernel's mix on the CPU."""
    structure = [t.to(DEVICE) for t in (trees.parent, trees.first_child, trees.n_children)]
    return launch_neighbour_mix(x.to(DEVICE), terms.to(DEVICE), *structure, backwards=backwards).cpu()


def kernel_products(trees, back, x):
    """Return the kernel's products on the CPU."""
    return launch_term_products(*(t.to(DEVICE) for t in (back, x, trees.parent, trees.n_children))).cpu()


@pytest.mark.parametrize(("forest", "width"), [(0, 1), (1, 5), (2, 24)])
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("backwards", [False, True])
def test_mixes_agree(forest, width, dtype, backwards):
    trees, x, _, terms = case(FORESTS[forest], width, dtype)
    x[-3:] = float("nan")
    result = kernel_mix(trees, x, terms, backwards=backwards)
    expected = _mix_on_cpu(x.double(), terms.double(), trees.parent, trees.n_children, backwards=backwards)
    assert result.dtype == dtype
    assert ((result.double() - expected).abs() <= PRECISION[dtype] * expected.abs() + 1e-5).all()
    assert not result[-3:].any()


@pytest.mark.parametrize(("forest", "width"), [(0, 1), (1, 40), (2, 24)])
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_products_agree(forest, width, dtype):
    trees, x, back, terms = case(FORESTS[forest], width, dtype)
    x[-3:] = float("nan")
    result = kernel_products(trees, back, x)
    expected = _compute_term_gradients(back.double(), x.double(), terms.double(), trees.parent, trees.n_children)
    assert result.dtype == torch.float32
    assert torch.allclose(result.double(), expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(result, kernel_products(trees, back, x))


@pytest.mark.parametrize("forest", FORESTS, ids=["one", "few", "star"])
@pytest.mark.parametrize("width", [24, 130])
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_moments_agree(forest, width, dtype):
    trees, x, _, _ = case(forest, width, dtype)
    x[-3:] = float("nan")
    results = launch_segment_moments(x.to(DEVICE), trees.offsets.to(DEVICE))
    for result, expected in zip(results, compute_tree_moments(x.double(), trees), strict=True):
        assert result.dtype == torch.float32
        assert torch.allclose(result.cpu().double(), expected, atol=1e-5)


@pytest.mark.skipif(INTERPRETED, reason="tensors of a CPU do not go to the kernels by themselves")
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_gradients_on_a_gpu_are_those_of_the_cpu(dtype):
    for forest in FORESTS:
        cpu = padded(batch_trees(forest), 3)
        gpu = TreeBatch(**{name: tensor.to(DEVICE) for name, tensor in vars(cpu).items()})
        gradients = []
        for trees, wide in ((cpu, torch.float64), (gpu, dtype)):
            x = random(len(cpu.parent), 24, dtype=dtype).to(trees.parent.device, wide).requires_grad_()
            terms = random(5, 24, 1).to(trees.parent.device, torch.promote_types(wide, torch.float32)).requires_grad_()
            mean, square = compute_tree_moments(mix_neighbours(x, terms, trees), trees)
            (mean.square() + square).sum().backward()
            gradients.append((x.grad.cpu().double(), terms.grad.cpu().double()))
        for ours, theirs in zip(*gradients, strict=True):
            assert torch.allclose(
                ours, theirs, rtol=4 * PRECISION[dtype], atol=5e-2 if dtype == torch.bfloat16 else 1e-4
            )
