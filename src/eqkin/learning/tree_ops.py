"""Operations on batches of trees in torch, each with a CPU and a GPU implementation.

    sum_neighbours    y_i = sum over i, its parent and its children j of  x_j,  then relu if `rectify`
    average_trees     y_t = mean over the nodes i of tree t of  x_i
    mix_neighbours    y_i = a_0 x_i + a_1 x_parent + a_2 (mean of x_children) + a_3 x_left + a_4 x_right
    compute_tree_moments   mean over the nodes i of tree t of  x_i  and of  x_i^2

The CPU implementation is plain torch, the GPU one are the kernels in `kernels`. Every output is written by exactly one
program, without atomics, so that results are the same every time.

The adjacency matrix of a tree with self loops is symmetric, so the sum is its own gradient. With the rectifier
included, the gradient is the same sum over the incoming gradient where the output was positive. The gradient through
batch normalisation, one number per column (`shift`) plus one times the output (`slope`), is added in the same pass. So
one kernel serves forward and backward.

In a mix, left and right are the adjacent siblings: in breadth-first order the nodes before and after a node, if they
have the same parent. In the backward pass each pair swaps its roles: what flowed from parents to children flows from
children to parents, what flowed to the right flows to the left. So the gradient of x is a mix, too, in which the
mean's 1 / n stays with the parent of a pair. The gradient of the a_k is a sum over nodes, computed in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Instead of the number of a parent.
ROOT, PADDING = -1, -2


@dataclass(frozen=True)
class TreeBatch:
    """The structure of a batch of trees in breadth-first order, tree after tree.

    Padding may follow the nodes, so that batches of different sizes can use the same captured CUDA graph. Padding
    belongs to no tree, has no neighbours, and becomes zero in every sum or mix over neighbours.
    """

    # (nodes,) int32, ROOT for roots, PADDING for padding.
    parent: Tensor
    # (nodes,) int32, undefined for leaves.
    first_child: Tensor
    # (nodes,) int32.
    n_children: Tensor
    # (nodes,) int32, among siblings, from 0.
    position: Tensor
    # (nodes,) int64, tree of each node; undefined for padding.
    tree: Tensor
    # (trees + 1,) int32, first node of each tree.
    offsets: Tensor

    @property
    def node_count(self) -> Tensor:
        """Number of nodes without padding, as a tensor on the batch's device."""
        return self.offsets[-1]


def sum_neighbours(x: Tensor, trees: TreeBatch, *, rectify: bool = False) -> Tensor:
    """Sum the vectors of each node, its parent and its children; if `rectify`, negative sums become 0."""
    summed: Tensor = _tree_sum(x, None, trees.parent, trees.first_child, trees.n_children, rectify)
    return summed


def average_trees(x: Tensor, trees: TreeBatch) -> Tensor:
    """Average the vectors of the nodes of each tree, in single precision or better."""
    return compute_tree_moments(x, trees)[0]


def sum_neighbours_with_moments(x: Tensor, trees: TreeBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rectified sum, and the totals of its values and of their squares over all nodes, each (width,).

    Batch normalisation needs these moments. Computed here, their gradient needs no extra pass over the nodes.
    """
    summed, moments = _tree_sum_with_moments(x, trees.parent, trees.first_child, trees.n_children)
    return summed, moments[0], moments[1]


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
        from eqkin.learning.kernels import launch_neighbour_sum

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
def _(x: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_for_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, gate, parent, first_child, n_children, rectify, _, _ = inputs
    ctx.is_gradient = gate is not None
    ctx.save_for_backward(output if rectify else None, parent, first_child, n_children)


def _compute_sum_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    output, parent, first_child, n_children = ctx.saved_tensors
    if ctx.is_gradient:
        raise NotImplementedError("a tree sum has no second derivative")
    return _tree_sum(gradient, output, parent, first_child, n_children, False), *(None,) * 7


_tree_sum.register_autograd(_compute_sum_gradient, setup_context=_save_for_sum)


@torch.library.custom_op("eqkin::tree_sum_with_moments", mutates_args=())
def _tree_sum_with_moments(x: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor) -> tuple[Tensor, Tensor]:
    y = _tree_sum(x, None, parent, first_child, n_children, True)
    if x.device.type == "cuda":
        from eqkin.learning.kernels import launch_column_moments

        return y, launch_column_moments(y)
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    return y, torch.stack([wide.sum(0), wide.square().sum(0)])


@_tree_sum_with_moments.register_fake
def _(x: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, x.new_empty(2, x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))


def _compute_moments_gradient(ctx: Any, back: Tensor, of_moments: Tensor) -> tuple[Tensor | None, ...]:
    y, parent, first_child, n_children = ctx.saved_tensors
    gradient = _tree_sum(back, y, parent, first_child, n_children, False, of_moments[0], 2 * of_moments[1])
    return gradient, None, None, None


_tree_sum_with_moments.register_autograd(
    _compute_moments_gradient,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[0], *inputs[1:]),
)


def mix_neighbours(x: Tensor, terms: Tensor, trees: TreeBatch) -> Tensor:
    """Mix the vectors of each node and its neighbours, (nodes, width), with the coefficients `terms`, (5, width).

    Padding becomes zero. The result has the precision of `x`; sums are computed in that of `terms` if it is higher.
    """
    mixed: Tensor = _tree_mix(x, terms, trees.parent, trees.first_child, trees.n_children)
    return mixed


@torch.library.custom_op("eqkin::tree_mix", mutates_args=())
def _tree_mix(x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor) -> Tensor:
    if x.device.type == "cuda":
        from eqkin.learning.kernels import launch_neighbour_mix

        return launch_neighbour_mix(x, terms, parent, first_child, n_children, backwards=False)
    return _mix_on_cpu(x, terms, parent, n_children, backwards=False)


@_tree_mix.register_fake
def _(x: Tensor, *others: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("eqkin::tree_mix_gradient", mutates_args=())
def _tree_mix_gradient(
    back: Tensor, x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `x` and of `terms`, given that of the mixes; not differentiable themselves."""
    if x.device.type == "cuda":
        from eqkin.learning.kernels import launch_neighbour_mix, launch_term_products

        of_terms = launch_term_products(back, x, parent, n_children).to(terms.dtype)
        return launch_neighbour_mix(back, terms, parent, first_child, n_children, backwards=True), of_terms
    return _mix_on_cpu(back, terms, parent, n_children, backwards=True), _compute_term_gradients(
        back, x, terms, parent, n_children
    )


@_tree_mix_gradient.register_fake
def _(back: Tensor, x: Tensor, terms: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    layout = torch.contiguous_format
    return torch.empty_like(back, memory_format=layout), torch.empty_like(terms, memory_format=layout)


def _compute_mix_gradient(ctx: Any, back: Tensor) -> tuple[Tensor | None, ...]:
    of_x, of_terms = _tree_mix_gradient(back, *ctx.saved_tensors)
    return of_x, of_terms, None, None, None


_tree_mix.register_autograd(
    _compute_mix_gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


def _find_pairs(parent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes that have a parent, their parents, and the nodes that have a left sibling."""
    inner = torch.nonzero(parent >= 0).squeeze(1)
    right = torch.nonzero((parent[1:] == parent[:-1]) & (parent[1:] >= 0)).squeeze(1) + 1
    return inner, parent[inner].long(), right


def _mix_on_cpu(x: Tensor, terms: Tensor, parent: Tensor, n_children: Tensor, *, backwards: bool) -> Tensor:
    """Compute the mix; if `backwards`, with the roles of each pair swapped."""
    dtype = torch.promote_types(x.dtype, terms.dtype)
    wide, rows = x.to(dtype), terms.to(dtype)
    inner, above, right = _find_pairs(parent)
    left, share = right - 1, 1 / n_children[above].to(dtype)[:, None]
    y = torch.where((parent > PADDING)[:, None], wide * rows[0], 0.0)
    pairs = [(inner, above, rows[1]), (above, inner, rows[2] * share), (right, left, rows[3]), (left, right, rows[4])]
    for to, of, row in pairs:
        to, of = (of, to) if backwards else (to, of)
        y.index_add_(0, to, wide[of] * row)
    return y.to(x.dtype).contiguous()


def _compute_term_gradients(back: Tensor, x: Tensor, terms: Tensor, parent: Tensor, n_children: Tensor) -> Tensor:
    """Return, for each of the five terms, the sum over nodes of the gradient times the input."""
    dtype = torch.promote_types(x.dtype, terms.dtype)
    back, x = back.to(dtype), x.to(dtype)
    inner, above, right = _find_pairs(parent)
    real = parent > PADDING
    share = 1 / n_children[above].to(dtype)[:, None]
    sums = [
        back[real] * x[real],
        back[inner] * x[above],
        back[above] * x[inner] * share,
        back[right] * x[right - 1],
        back[right - 1] * x[right],
    ]
    return torch.stack([products.sum(0) for products in sums]).to(terms.dtype)


def compute_tree_moments(x: Tensor, trees: TreeBatch) -> tuple[Tensor, Tensor]:
    """Return the means of the node vectors of each tree, and of their squares, in single precision or better."""
    mean, square = _tree_moments(x, trees.tree, trees.offsets)
    return mean, square


@torch.library.custom_op("eqkin::tree_moments", mutates_args=())
def _tree_moments(x: Tensor, tree: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    if x.device.type == "cuda":
        from eqkin.learning.kernels import launch_segment_moments

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


def _save_for_tree_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)


def _compute_tree_moments_gradient(
    ctx: Any, of_mean: Tensor | None, of_square: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, tree, offsets = ctx.saved_tensors
    real = torch.arange(tree.shape[0], device=tree.device) < offsets[-1]
    sizes = offsets.diff()[:, None]
    spread = torch.zeros_like(x) if of_mean is None else (of_mean / sizes)[tree]
    if of_square is not None:
        spread = spread + 2 * x * (of_square / sizes)[tree]
    return torch.where(real[:, None], spread, 0.0).to(x.dtype), None, None


_tree_moments.register_autograd(_compute_tree_moments_gradient, setup_context=_save_for_tree_moments)
