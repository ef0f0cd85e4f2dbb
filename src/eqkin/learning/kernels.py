"""Triton kernels: the GPU implementation of `tree_ops`, and of the renaming of symbols in `eqkin.learning`.

Importing this module needs Triton; nothing imports it on a CPU. Block sizes are the fastest of those tried on an H200.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eqkin.encoder.model import CHARACTER_SLOTS, MIX_TERMS

# Neighbour sum: children read at a time, warps per program (one node each).
_SUM_CHILDREN, _SUM_WARPS = 2, 2
# Moments of trees: nodes at a time, warps, columns.
_MEAN_ROWS, _MEAN_WARPS, _MEAN_COLUMNS = 32, 1, 64
# Moments of columns: nodes at a time, iterations, columns.
_MOMENT_ROWS, _MOMENT_STEPS, _MOMENT_COLUMNS = 64, 8, 64
# Neighbour mix: nodes per program (one warp each), children read at a time.
_MIX_NODES, _MIX_CHILDREN = 4, 8
# Term products: nodes at a time, iterations, columns, warps.
_PRODUCT_NODES, _PRODUCT_STEPS, _PRODUCT_COLUMNS, _PRODUCT_WARPS = 16, 16, 64, 2


@triton.jit
def _load_rows(x, rows, there, columns, width):  # noqa: ANN001, ANN202
    """Load the vectors of some nodes in single precision, zero where masked."""
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    return tl.load(x + at, mask=there[:, None] & (columns < width)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _load_gated_rows(  # noqa: ANN202
    x, gate, shift, slope, rows, mask, columns, width, GATED: tl.constexpr, AFFINE: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Load the vectors of some nodes in single precision, zero where masked or where the gate is not positive."""
    values = _load_rows(x, rows, mask, columns, width)
    if GATED:
        opened = _load_rows(gate, rows, mask, columns, width)
        if AFFINE:
            values += shift[None, :] + slope[None, :] * opened
        values = tl.where(opened > 0, values, 0.0)
    return values


@triton.jit
def _neighbour_sum_kernel(  # noqa: ANN202
    x, gate, shifts, slopes, parent, first_child, n_children, out, width,  # noqa: ANN001
    GATED: tl.constexpr, AFFINE: tl.constexpr, RECTIFY: tl.constexpr, CHILDREN: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    above = tl.load(parent + node + tl.zeros((2,), tl.int32))
    first = tl.load(first_child + node)
    last = first + tl.load(n_children + node)
    shift = tl.zeros((COLUMNS,), tl.float32)
    slope = tl.zeros((COLUMNS,), tl.float32)
    if AFFINE:
        shift = tl.load(shifts + columns, mask=columns < width, other=0.0).to(tl.float32)
        slope = tl.load(slopes + columns, mask=columns < width, other=0.0).to(tl.float32)
    # The node itself, and its parent if it has one.
    rows = tl.where(tl.arange(0, 2) == 0, node, above)
    there = (rows >= 0) & (above > -2)
    total = tl.sum(_load_gated_rows(x, gate, shift, slope, rows, there, columns, width, GATED, AFFINE), axis=0)
    # Children are read ahead, so that a node with many of them does not delay all others.
    for child in tl.range(first, last, CHILDREN, num_stages=3):
        some = child + tl.arange(0, CHILDREN)
        total += tl.sum(
            _load_gated_rows(x, gate, shift, slope, some, some < last, columns, width, GATED, AFFINE), axis=0
        )
    if RECTIFY:
        # Unlike a maximum, this keeps NaN.
        total = tl.where(total < 0, 0.0, total)
    at = node.to(tl.int64) * width + columns
    tl.store(out + at, total.to(out.dtype.element_ty), mask=columns < width)


def launch_neighbour_sum(
    x: Tensor,
    gate: Tensor | None,
    parent: Tensor,
    first_child: Tensor,
    n_children: Tensor,
    rectify: bool,
    shift: Tensor | None = None,
    slope: Tensor | None = None,
) -> Tensor:
    """Run `sum_neighbours` on a GPU: sums in single precision, stored in the precision of `x`."""
    nodes, width = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    affine = shift is not None and slope is not None
    if nodes:
        _neighbour_sum_kernel[(nodes,)](
            x, x if gate is None else gate.contiguous(),
            x if shift is None else shift.contiguous(), x if slope is None else slope.contiguous(),
            parent, first_child, n_children, out, width,
            GATED=gate is not None, AFFINE=affine, RECTIFY=rectify, CHILDREN=_SUM_CHILDREN,
            COLUMNS=triton.next_power_of_2(width), num_warps=_SUM_WARPS,
        )  # fmt: skip
    return out


@triton.jit
def _column_moments_kernel(  # noqa: ANN202
    x, sums, squares, nodes, width, ROWS: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    block = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    squared = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(STEPS):
        rows = (block * STEPS + step) * ROWS + tl.arange(0, ROWS)
        values = _load_rows(x, rows, rows < nodes, columns, width)
        total += values
        squared += values * values
    at = block.to(tl.int64) * width + columns
    tl.store(sums + at, tl.sum(total, axis=0), mask=columns < width)
    tl.store(squares + at, tl.sum(squared, axis=0), mask=columns < width)


def launch_column_moments(x: Tensor) -> Tensor:
    """Sum each column and its squares in single precision, first within blocks, then over the blocks: (2, width)."""
    nodes, width = x.shape
    blocks = triton.cdiv(nodes, _MOMENT_ROWS * _MOMENT_STEPS)
    partial = x.new_empty(2, blocks, width, dtype=torch.float32)
    if nodes:
        _column_moments_kernel[(blocks, triton.cdiv(width, _MOMENT_COLUMNS))](
            x.contiguous(), partial[0], partial[1], nodes, width,
            ROWS=_MOMENT_ROWS, STEPS=_MOMENT_STEPS, COLUMNS=_MOMENT_COLUMNS,
        )  # fmt: skip
    return partial.sum(1)


@triton.jit
def _neighbour_mix_kernel(  # noqa: ANN202
    x, terms, parent, first_child, n_children, out, nodes, width,  # noqa: ANN001
    BACKWARDS: tl.constexpr, NODES: tl.constexpr, CHILDREN: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    # The node itself, its parent, its left and its right neighbour.
    role = tl.arange(0, 4)
    offset = tl.where(role == 2, -1, tl.where(role == 3, 1, 0))
    if BACKWARDS:
        term = tl.where(role == 1, 2, tl.where(role == 2, 4, role))
        below_term = 1
    else:
        term = tl.where(role < 2, role, role + 1)
        below_term = 2
    weights = _load_rows(terms, term, role >= 0, columns, width)
    below_weight = tl.load(terms + below_term * width + columns, mask=columns < width, other=0.0).to(tl.float32)
    for step in tl.static_range(NODES):
        node = tl.program_id(0) * NODES + step
        inside = node < nodes
        above = tl.load(parent + node, mask=inside, other=-2)
        near = node + offset
        same_parent = tl.load(parent + near, mask=(near >= 0) & (near < nodes), other=-2) == above
        there = same_parent & ((above >= 0) | ((role == 0) & (above > -2)))
        values = _load_rows(x, tl.where(role == 1, above, near), there, columns, width)
        first = tl.load(first_child + node, mask=inside, other=0)
        children = tl.load(n_children + node, mask=inside, other=0)
        below = tl.zeros((COLUMNS,), tl.float32)
        for child in tl.range(first, first + children, CHILDREN, num_stages=1):
            some = child + tl.arange(0, CHILDREN)
            below += tl.sum(_load_rows(x, some, some < first + children, columns, width), axis=0)
        # A child receives the share of the gradient that it had in the mean.
        if BACKWARDS:
            siblings = tl.load(n_children + above, mask=above >= 0, other=1).to(tl.float32)
            values = tl.where((role == 1)[:, None], values / siblings, values)
        else:
            below /= tl.maximum(children, 1).to(tl.float32)
        mixed = tl.sum(values * weights, axis=0) + below * below_weight
        at = out + node.to(tl.int64) * width + columns
        tl.store(at, mixed.to(out.dtype.element_ty), mask=inside & (columns < width))


def launch_neighbour_mix(
    x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor, *, backwards: bool
) -> Tensor:
    """Run `mix_neighbours` on a GPU: sums in single precision, stored in the precision of `x`."""
    nodes, width = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    if nodes:
        _neighbour_mix_kernel[(triton.cdiv(nodes, _MIX_NODES),)](
            x, terms.contiguous(), parent, first_child, n_children, out, nodes, width,
            BACKWARDS=backwards, NODES=_MIX_NODES, CHILDREN=_MIX_CHILDREN, COLUMNS=triton.next_power_of_2(width),
            num_warps=1,
        )  # fmt: skip
    return out


@triton.jit
def _term_products_kernel(  # noqa: ANN202
    back, x, parent, n_children, out, nodes, width,  # noqa: ANN001
    NODES: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    own = tl.zeros((NODES, COLUMNS), tl.float32)
    down = tl.zeros((NODES, COLUMNS), tl.float32)
    up = tl.zeros((NODES, COLUMNS), tl.float32)
    right = tl.zeros((NODES, COLUMNS), tl.float32)
    left = tl.zeros((NODES, COLUMNS), tl.float32)
    for step in range(STEPS):
        node = (block * STEPS + step) * NODES + tl.arange(0, NODES)
        inside = node < nodes
        above = tl.load(parent + node, mask=inside, other=-2)
        inner = above >= 0
        second = inner & (tl.load(parent + node - 1, mask=inside & (node > 0), other=-2) == above)
        share = 1.0 / tl.load(n_children + above, mask=inner, other=1).to(tl.float32)[:, None]
        came = _load_rows(back, node, inside & (above > -2), columns, width)
        went = _load_rows(x, node, inside & (above > -2), columns, width)
        own += came * went
        down += came * _load_rows(x, above, inner, columns, width)
        up += went * _load_rows(back, above, inner, columns, width) * share
        right += came * _load_rows(x, node - 1, second, columns, width)
        left += went * _load_rows(back, node - 1, second, columns, width)
    at = out + block.to(tl.int64) * 5 * width + columns
    tl.store(at, tl.sum(own, axis=0), mask=columns < width)
    tl.store(at + width, tl.sum(down, axis=0), mask=columns < width)
    tl.store(at + 2 * width, tl.sum(up, axis=0), mask=columns < width)
    tl.store(at + 3 * width, tl.sum(right, axis=0), mask=columns < width)
    tl.store(at + 4 * width, tl.sum(left, axis=0), mask=columns < width)


def launch_term_products(back: Tensor, x: Tensor, parent: Tensor, n_children: Tensor) -> Tensor:
    """Return, for each of the five terms of a mix, the sum over nodes of the gradient times the input: (5, width)."""
    nodes, width = x.shape
    blocks = triton.cdiv(nodes, _PRODUCT_NODES * _PRODUCT_STEPS)
    partial = x.new_empty(blocks, MIX_TERMS, width, dtype=torch.float32)
    if nodes:
        _term_products_kernel[(blocks, triton.cdiv(width, _PRODUCT_COLUMNS))](
            back.contiguous(), x.contiguous(), parent, n_children, partial, nodes, width,
            NODES=_PRODUCT_NODES, STEPS=_PRODUCT_STEPS, COLUMNS=_PRODUCT_COLUMNS, num_warps=_PRODUCT_WARPS,
        )  # fmt: skip
    return partial.sum(0)


@triton.jit
def _segment_moments_kernel(x, offsets, means, squares, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # noqa: ANN001, ANN202
    tree = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.load(offsets + tree)
    end = tl.load(offsets + tree + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    squared = tl.zeros((COLUMNS,), tl.float32)
    for row in range(start, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        values = _load_rows(x, rows, rows < end, columns, width)
        total += tl.sum(values, axis=0)
        squared += tl.sum(values * values, axis=0)
    at = tree.to(tl.int64) * width + columns
    tl.store(means + at, total / (end - start), mask=columns < width)
    tl.store(squares + at, squared / (end - start), mask=columns < width)


def launch_segment_moments(x: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Run `compute_tree_moments` on a GPU."""
    trees, width = len(offsets) - 1, x.shape[1]
    means, squares = (x.new_empty(trees, width, dtype=torch.float32) for _ in range(2))
    if trees:
        _segment_moments_kernel[(trees, triton.cdiv(width, _MEAN_COLUMNS))](
            x.contiguous(), offsets, means, squares, width,
            ROWS=_MEAN_ROWS, COLUMNS=_MEAN_COLUMNS, num_warps=_MEAN_WARPS,
        )  # fmt: skip
    return means, squares


@triton.jit
def _compose_kernel(flips, one, other, new, old, most, CHARACTERS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    row = tl.program_id(0).to(tl.int64)
    character = tl.arange(0, BLOCK)
    became = character
    for k in range(tl.load(flips + row).to(tl.int32)):
        a = tl.load(one + row * most + k).to(tl.int32)
        b = tl.load(other + row * most + k).to(tl.int32)
        became = tl.where(became == a, b, tl.where(became == b, a, became))
    inside = character < CHARACTERS
    tl.store(new + row * CHARACTERS + character, became.to(tl.uint8), mask=inside)
    tl.store(old + row * CHARACTERS + became, character.to(tl.uint8), mask=inside)


def launch_compose_transpositions(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Compose transpositions on a GPU, with one program per row and the permutation in registers."""
    rows, most = one.shape
    new = torch.empty(rows, CHARACTER_SLOTS, dtype=torch.uint8, device=flips.device)
    old = torch.empty_like(new)
    if rows:
        _compose_kernel[(rows,)](
            flips, one.contiguous(), other.contiguous(), new, old, most,
            CHARACTERS=CHARACTER_SLOTS, BLOCK=triton.next_power_of_2(CHARACTER_SLOTS), num_warps=1,
        )  # fmt: skip
    return new, old
