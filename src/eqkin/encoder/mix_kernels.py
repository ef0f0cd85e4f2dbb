"""The GPU side of `tree_mix` and `tree_moments`, in Triton. Importing this module needs Triton; no CPU imports it."""

# Triton's functions take pointers, which have no type
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eqkin.encoder.architecture import MIX_TERMS

_MIX_NODES, _MIX_WARPS = 4, 4  # of neighbour_mix: nodes and warps of a program, which has all columns
_PRODUCT_NODES, _PRODUCT_STEPS, _PRODUCT_COLUMNS = 16, 16, 64  # of term_products: nodes at a time, times, columns
_MOMENT_ROWS, _MOMENT_WARPS, _MOMENT_COLUMNS = 32, 1, 64  # of segment_moments: nodes at a time, warps, columns


@triton.jit
def _load_rows(x, rows, there, columns, width):  # noqa: ANN001, ANN202
    """Vectors of some nodes in single precision, zero where there is none."""
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    return tl.load(x + at, mask=there[:, None] & (columns < width)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _load_term(terms, number, columns, width):  # noqa: ANN001, ANN202
    """One of the five rows, for all nodes."""
    return tl.load(terms + number * width + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _neighbour_mix_kernel(  # noqa: ANN202
    x, terms, parent, first_child, n_children, out, nodes, width,  # noqa: ANN001
    BACKWARDS: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    node = tl.program_id(0) * NODES + tl.arange(0, NODES)
    inside = node < nodes
    above = tl.load(parent + node, mask=inside, other=-2)
    before = tl.load(parent + node - 1, mask=inside & (node > 0), other=-2)
    after = tl.load(parent + node + 1, mask=node + 1 < nodes, other=-2)
    first = tl.load(first_child + node, mask=inside, other=0)
    children = tl.load(n_children + node, mask=inside, other=0)
    inner = above >= 0
    parents = _load_rows(x, above, inner, columns, width)
    if BACKWARDS:  # of what comes back to a parent a child gets the share it had in the mean
        parents /= tl.load(n_children + above, mask=inner, other=1).to(tl.float32)[:, None]
    mixed = _load_rows(x, node, inside & (above > -2), columns, width) * _load_term(terms, 0, columns, width)
    mixed += parents * _load_term(terms, 2 if BACKWARDS else 1, columns, width)
    left = _load_rows(x, node - 1, inner & (before == above), columns, width)
    right = _load_rows(x, node + 1, inner & (after == above), columns, width)
    mixed += left * _load_term(terms, 4 if BACKWARDS else 3, columns, width)
    mixed += right * _load_term(terms, 3 if BACKWARDS else 4, columns, width)
    below = tl.zeros((NODES, COLUMNS), tl.float32)
    for child in range(tl.max(children, axis=0)):
        below += _load_rows(x, first + child, child < children, columns, width)
    if not BACKWARDS:
        below /= tl.maximum(children, 1).to(tl.float32)[:, None]
    mixed += below * _load_term(terms, 1 if BACKWARDS else 2, columns, width)
    at = node[:, None].to(tl.int64) * width + columns[None, :]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside[:, None] & (columns < width)[None, :])


def launch_neighbour_mix(
    x: Tensor, terms: Tensor, parent: Tensor, first_child: Tensor, n_children: Tensor, *, backwards: bool
) -> Tensor:
    """See `tree_mix`. Sums are taken in single precision and stored in the precision of `x`."""
    nodes, width = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    if nodes:
        _neighbour_mix_kernel[(triton.cdiv(nodes, _MIX_NODES),)](
            x, terms.contiguous(), parent, first_child, n_children, out, nodes, width,
            BACKWARDS=backwards, NODES=_MIX_NODES, COLUMNS=triton.next_power_of_2(width), num_warps=_MIX_WARPS,
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
    """For each of the five terms of a mix, the sum over nodes of what came back times what went in: (5, width)."""
    nodes, width = x.shape
    blocks = triton.cdiv(nodes, _PRODUCT_NODES * _PRODUCT_STEPS)
    partial = x.new_zeros(blocks, MIX_TERMS, width, dtype=torch.float32)
    if nodes:
        _term_products_kernel[(blocks, triton.cdiv(width, _PRODUCT_COLUMNS))](
            back.contiguous(), x.contiguous(), parent, n_children, partial, nodes, width,
            NODES=_PRODUCT_NODES, STEPS=_PRODUCT_STEPS, COLUMNS=_PRODUCT_COLUMNS,
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
    """See `tree_moments`."""
    trees, width = len(offsets) - 1, x.shape[1]
    means, squares = (x.new_empty(trees, width, dtype=torch.float32) for _ in range(2))
    if trees:
        _segment_moments_kernel[(trees, triton.cdiv(width, _MOMENT_COLUMNS))](
            x.contiguous(), offsets, means, squares, width,
            ROWS=_MOMENT_ROWS, COLUMNS=_MOMENT_COLUMNS, num_warps=_MOMENT_WARPS,
        )  # fmt: skip
    return means, squares
