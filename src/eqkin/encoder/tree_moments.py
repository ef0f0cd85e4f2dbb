"""The mean over a tree's nodes and the mean of their squares: one operation with two backends, read once.

mean_t = mean over the nodes i of tree t of  x_i,   square_t = mean over them of  x_i^2
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eqkin.encoder.trees import TreeBatch


def compute_tree_moments(x: Tensor, trees: TreeBatch) -> tuple[Tensor, Tensor]:
    """Means of the vectors of each tree's nodes and of their squares, in single precision or better."""
    mean, square = _tree_moments(x, trees.tree, trees.offsets)
    return mean, square


@torch.library.custom_op("eqkin::tree_moments", mutates_args=())
def _tree_moments(x: Tensor, tree: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    if x.device.type == "cuda":
        from eqkin.encoder.mix_kernels import launch_segment_moments

        return launch_segment_moments(x, offsets)
    n = int(offsets[-1])
    wide = x[:n].to(torch.promote_types(x.dtype, torch.float32))
    sums = wide.new_zeros(2, len(offsets) - 1, x.shape[1])
    sums[0].index_add_(0, tree[:n], wide)
    sums[1].index_add_(0, tree[:n], wide.square())
    sizes = offsets.diff()[:, None]
    return sums[0] / sizes, sums[1] / sizes


@_tree_moments.register_fake
def _(x: Tensor, tree: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    shape, dtype = (offsets.shape[0] - 1, x.shape[1]), torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(shape, dtype=dtype), x.new_empty(shape, dtype=dtype)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _compute_gradient(ctx: Any, of_mean: Tensor, of_square: Tensor) -> tuple[Tensor | None, ...]:
    x, tree, offsets = ctx.saved_tensors
    real = torch.arange(tree.shape[0], device=tree.device) < offsets[-1]
    sizes = offsets.diff()[:, None]
    spread = (of_mean / sizes)[tree] + 2 * x * (of_square / sizes)[tree]
    return torch.where(real[:, None], spread, 0.0).to(x.dtype), None, None


_tree_moments.register_autograd(_compute_gradient, setup_context=_save_inputs)
