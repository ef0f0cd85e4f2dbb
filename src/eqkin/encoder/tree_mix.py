"""The mix of a node and its neighbours: one operation with two backends.

    y_i = a_0 x_i + a_1 x_parent + a_2 (mean of x_children) + a_3 x_left + a_4 x_right

Left and right are the siblings next to a node: in breadth-first order the nodes before and after it, if they have the
same parent. Read backwards every pair has its roles swapped: what went from parents to children goes from children to
parents, what went to the right goes to the left. So the gradient of x is a mix too, in which the mean's 1 / n stays
with the parent of a pair. The gradient of the a_k is a sum over nodes, taken in blocks and then over the blocks. Every
output is written by one program: no atomics, the same result every time. On CPUs plain torch does it, on GPUs the
kernels in `mix_kernels`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eqkin.encoder.trees import PADDING, TreeBatch


def mix_neighbours(x: Tensor, terms: Tensor, trees: TreeBatch) -> Tensor:
    """Mixes of each node's vector and its neighbours', (nodes, width), by five rows of numbers, (5, width).

    Padding comes out as zeros. The result has the precision of `x`; sums are taken in that of `terms`, if it is higher.
    """
    mixed: Tensor = _tree_mix(x, terms, trees.parent, trees.first_child, trees.n_children)
    return mixed


@torch.library.custom_op("eqkin::tree_mix", mutates_args=())
def _tree_mix(x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor) -> Tensor:
    if x.device.type == "cuda":
        from eqkin.encoder.mix_kernels import launch_neighbour_mix

        return launch_neighbour_mix(x, terms, parent, first_child, n_children, backwards=False)
    return _mix_on_cpu(x, terms, parent, n_children, backwards=False)


@_tree_mix.register_fake
def _(x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("eqkin::tree_mix_gradient", mutates_args=())
def _tree_mix_gradient(
    back: Tensor, x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `x` and of `terms`, given that of the mixes; they have no gradients of their own."""
    if x.device.type == "cuda":
        from eqkin.encoder.mix_kernels import launch_neighbour_mix, launch_term_products

        of_terms = launch_term_products(back, x, parent, n_children).to(terms.dtype)
        return launch_neighbour_mix(back, terms, parent, first_child, n_children, backwards=True), of_terms
    return _mix_on_cpu(back, terms, parent, n_children, backwards=True), _compute_term_gradients(
        back, x, terms, parent, n_children
    )


@_tree_mix_gradient.register_fake
def _(
    back: Tensor, x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(back, memory_format=torch.contiguous_format), torch.empty_like(
        terms, memory_format=torch.contiguous_format
    )


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _compute_gradient(ctx: Any, back: Tensor) -> tuple[Tensor | None, ...]:
    of_x, of_terms = _tree_mix_gradient(back, *ctx.saved_tensors)
    return of_x, of_terms, None, None, None


_tree_mix.register_autograd(_compute_gradient, setup_context=_save_inputs)


def _find_pairs(parent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which nodes have a parent, these parents, and which nodes have a sibling before them."""
    inner = torch.nonzero(parent >= 0).squeeze(1)
    right = torch.nonzero((parent[1:] == parent[:-1]) & (parent[1:] >= 0)).squeeze(1) + 1
    return inner, parent[inner].long(), right


def _mix_on_cpu(x: Tensor, terms: Tensor, parent: Tensor, n_children: Tensor, *, backwards: bool) -> Tensor:
    """The mix; backwards each pair has its roles swapped."""
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
    """For each of the five terms, the sum over nodes of what came back times what went in."""
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
