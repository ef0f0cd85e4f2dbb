"""The sum over a node and its neighbours, and the mean over a tree: one operation each, with two backends.

    tree_sum    y_i = sum over i, its parent and its children j of  x_j,  then relu if `rectify`
    tree_mean   y_t = mean over the nodes i of tree t of  x_i

A tree's adjacency with self loops is symmetric, so the sum is its own gradient. With the rectifier inside, the gradient
is the same sum over what comes back where the output was positive; and what comes back through batch normalisation,
a number for each column (`shift`) and one times the output (`slope`), is added on the way. So one kernel serves forward
and backward. Children stand in one run and every output is written by one program: no atomics, the same result
every time. On CPUs plain torch does it, on GPUs the kernels in `kernels`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eqkin.encoder.trees import PADDING, TreeBatch


def sum_neighbours(x: Tensor, trees: TreeBatch, *, rectify: bool = False) -> Tensor:
    """Sum of each node's vector and those of its parent and children; negative sums become 0 if `rectify`."""
    summed: Tensor = _tree_sum(x, None, trees.parent, trees.first_child, trees.n_children, rectify)
    return summed


def average_trees(x: Tensor, trees: TreeBatch) -> Tensor:
    """Mean of the vectors of each tree's nodes, in single precision or better."""
    means: Tensor = _tree_mean(x, trees.tree, trees.offsets)
    return means


def sum_neighbours_with_moments(x: Tensor, trees: TreeBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The rectified sum, and over all nodes the sum of its values and of their squares, each (width,).

    Batch normalisation needs the moments. Taken here, their gradient costs no pass over the nodes of its own.
    """
    summed, total, squares = _tree_sum_with_moments(x, trees.parent, trees.first_child, trees.n_children)
    return summed, total, squares


@torch.library.custom_op("eqkin::tree_sum", mutates_args=())
def _tree_sum(
    x: Tensor,
    gate: Tensor | None,
    parent: Tensor,
    first_child: Tensor,
    n_children: Tensor,
    rectify: bool,
    shift: Tensor | None = None,
    slope: Tensor | None = None,
) -> Tensor:
    if x.device.type == "cuda":
        from eqkin.encoder.kernels import launch_neighbour_sum

        return launch_neighbour_sum(x, gate, parent, first_child, n_children, rectify, shift, slope)
    if gate is not None:
        if shift is not None and slope is not None:
            x = (x + shift + slope * gate).to(x.dtype)
        x = torch.where(gate > 0, x, 0.0)
    inner = torch.nonzero(parent >= 0).squeeze(1)
    above = parent[inner].long()
    y = torch.where((parent > PADDING)[:, None], x, 0.0).contiguous()
    y.index_add_(0, above, x[inner])
    y.index_add_(0, inner, x[above])
    return y.relu_() if rectify else y


@_tree_sum.register_fake
def _(
    x: Tensor,
    gate: Tensor | None,
    parent: Tensor,
    first_child: Tensor,
    n_children: Tensor,
    rectify: bool,
    shift: Tensor | None = None,
    slope: Tensor | None = None,
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_for_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, gate, parent, first_child, n_children, rectify, shift, _ = inputs
    ctx.affine = shift is not None
    ctx.save_for_backward(gate, output if rectify else None, parent, first_child, n_children)


def _compute_sum_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    gate, output, parent, first_child, n_children = ctx.saved_tensors
    if ctx.affine:
        raise NotImplementedError("a tree sum with moments has no second derivative")
    back = _tree_sum(gradient, output, parent, first_child, n_children, False)
    return back if gate is None else torch.where(gate > 0, back, 0.0), *(None,) * 7


_tree_sum.register_autograd(_compute_sum_gradient, setup_context=_save_for_sum)


@torch.library.custom_op("eqkin::tree_sum_with_moments", mutates_args=())
def _tree_sum_with_moments(
    x: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    y = _tree_sum(x, None, parent, first_child, n_children, True)
    if x.device.type == "cuda":
        from eqkin.encoder.kernels import launch_column_moments

        return y, *launch_column_moments(y)
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    return y, wide.sum(0), wide.square().sum(0)


@_tree_sum_with_moments.register_fake
def _(x: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, x.new_empty(x.shape[1], dtype=dtype), x.new_empty(x.shape[1], dtype=dtype)


def _save_for_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0], *inputs[1:])


def _compute_moments_gradient(
    ctx: Any, back: Tensor, of_total: Tensor, of_squares: Tensor
) -> tuple[Tensor | None, ...]:
    y, parent, first_child, n_children = ctx.saved_tensors
    gradient = _tree_sum(back, y, parent, first_child, n_children, False, of_total, 2 * of_squares)
    return gradient, None, None, None


_tree_sum_with_moments.register_autograd(_compute_moments_gradient, setup_context=_save_for_moments)


@torch.library.custom_op("eqkin::tree_mean", mutates_args=())
def _tree_mean(x: Tensor, tree: Tensor, offsets: Tensor) -> Tensor:
    if x.device.type == "cuda":
        from eqkin.encoder.kernels import launch_segment_mean

        return launch_segment_mean(x, offsets)
    n = int(offsets[-1])
    wide = x[:n].to(torch.promote_types(x.dtype, torch.float32))
    sums = wide.new_zeros(len(offsets) - 1, x.shape[1]).index_add_(0, tree[:n], wide)
    return sums / offsets.diff()[:, None]


@_tree_mean.register_fake
def _(x: Tensor, tree: Tensor, offsets: Tensor) -> Tensor:
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(offsets.shape[0] - 1, x.shape[1], dtype=dtype)


def _save_for_mean(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, tree, offsets = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(tree, offsets)


def _compute_mean_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    tree, offsets = ctx.saved_tensors
    real = torch.arange(tree.shape[0], device=tree.device) < offsets[-1]
    spread = (gradient / offsets.diff()[:, None]).to(ctx.dtype)[tree]
    return torch.where(real[:, None], spread, 0.0), None, None


_tree_mean.register_autograd(_compute_mean_gradient, setup_context=_save_for_mean)
