"""Cases for the Triton kernels, run by `test_kernels` in separate processes: interpreted, and on a GPU."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.learning.kernels import launch_column_moments, launch_neighbour_sum
from eqkin.learning.tree_ops import TreeBatch, _tree_sum, average_trees, sum_neighbours, sum_neighbours_with_moments
from tests.encoder.batches import SOME_FORESTS, batch_trees, padded, random
from tests.formulas.strategies import build

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
LEAF = ("mi", "", "x", [])
FORESTS = [
    build([LEAF]),
    build([LEAF, ("mrow", "", "", [LEAF] * 3), LEAF, ("mrow", "", "", [("mfrac", "", "", [LEAF, LEAF]), LEAF])]),
    build([("mrow", "", "", [LEAF] * 20), LEAF]),
]
PRECISION = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7}  # the interpreter rounds towards 0


def compared(forest, width, dtype, *, gated, rectify, padding=3):
    """Return a kernel's sum and the CPU's in double precision."""
    trees = padded(batch_trees(forest), padding)
    x = random(len(trees.parent), width, dtype=dtype)
    gate = random(len(trees.parent), width, seed=1, dtype=dtype) if gated else None
    structure = (trees.parent, trees.first_child, trees.n_children)
    expected = _tree_sum(x.double(), gate if gate is None else gate.double(), *structure, rectify)
    x, gate, *structure = (t if t is None else t.to(DEVICE) for t in (x, gate, *structure))
    return launch_neighbour_sum(x, gate, *structure, rectify), expected


@pytest.mark.parametrize(("forest", "width"), [(0, 1), (1, 5), (2, 24)])
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize(("gated", "rectify"), [(False, True), (True, False)], ids=["forward", "backward"])
def test_sums_agree(forest, width, dtype, gated, rectify):
    result, expected = compared(FORESTS[forest], width, dtype, gated=gated, rectify=rectify)
    assert result.dtype == dtype
    bound = PRECISION[dtype] * expected.abs() + 1e-5  # sums are taken in single precision, whatever comes in
    assert ((result.cpu().double() - expected).abs() <= bound).all()
    assert not result[-3:].any()


@settings(max_examples=2 if INTERPRETED else 100)
@given(SOME_FORESTS, st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 9))
def test_sums_over_any_trees_agree(forest, width, gated, rectify, padding):
    result, expected = compared(forest, width, torch.float32, gated=gated, rectify=rectify, padding=padding)
    assert torch.allclose(result.cpu().double(), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_gradient_sums_through_a_norm_agree(dtype):
    trees = padded(batch_trees(FORESTS[1]), 3)
    structure = (trees.parent, trees.first_child, trees.n_children)
    x, gate = (random(len(trees.parent), 5, seed, dtype) for seed in (0, 1))
    shift, slope = (random(1, 5, seed, torch.float32)[0] for seed in (2, 3))
    gate[-3:] = 0.0  # as the output of a sum is
    expected = _tree_sum(x.double(), gate.double(), *structure, False, shift.double(), slope.double())
    x, gate, shift, slope, *structure = (t.to(DEVICE) for t in (x, gate, shift, slope, *structure))
    result = launch_neighbour_sum(x, gate, *structure, False, shift, slope)
    assert result.dtype == dtype
    assert ((result.cpu().double() - expected).abs() <= PRECISION[dtype] * expected.abs() + 1e-5).all()


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (255, 24), (256, 128), (600, 130)])
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_moments_agree(rows, width, dtype):
    x = random(rows, width, dtype=dtype)
    total, squares = launch_column_moments(x.to(DEVICE))
    assert total.dtype == squares.dtype == torch.float32
    assert torch.allclose(total.cpu().double(), x.double().sum(0), rtol=1e-5, atol=1e-4)
    assert torch.allclose(squares.cpu().double(), x.double().square().sum(0), rtol=1e-5, atol=1e-4)
    again = launch_column_moments(x.to(DEVICE))
    assert torch.equal(torch.stack([total, squares]), again)


def test_numbers_that_are_none_are_not_rectified_away():
    trees = batch_trees(build([("a", "", "", [LEAF]), LEAF]))
    structure = [t.to(DEVICE) for t in (trees.parent, trees.first_child, trees.n_children)]
    x = torch.tensor([[float("nan")], [1.0], [1.0]], device=DEVICE)
    assert launch_neighbour_sum(x, None, *structure, True).isnan().squeeze(1).tolist() == [True, True, False]


@pytest.mark.skipif(INTERPRETED, reason="tensors of a CPU do not go to the kernels by themselves")
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_gradients_on_a_gpu_are_those_of_the_cpu(dtype):
    for forest in FORESTS:
        cpu = padded(batch_trees(forest), 3)
        gpu = TreeBatch(**{name: tensor.to(DEVICE) for name, tensor in vars(cpu).items()})
        gradients = []
        for trees, wide in ((cpu, torch.float64), (gpu, dtype)):
            x = random(len(cpu.parent), 24, dtype=dtype).to(trees.parent.device, wide).requires_grad_()
            y, total, squares = sum_neighbours_with_moments(sum_neighbours(x, trees, rectify=True), trees)
            (average_trees(y, trees).square().sum() + (0.01 * total.sum() + 0.001 * squares.sum()) / len(x)).backward()
            gradients.append(x.grad.cpu().double())
        assert torch.allclose(*gradients, rtol=2 * PRECISION[dtype], atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
