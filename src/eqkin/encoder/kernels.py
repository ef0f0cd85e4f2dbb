"""The GPU side of `tree_sum`, in Triton. Importing this module needs Triton; nothing on a CPU imports it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# the fastest of those tried on an H200
_CHILDREN, _WARPS = 2, 2  # of neighbour_sum: children read at a time, and warps of a program, which has one node
_MEAN_ROWS, _MEAN_WARPS, _MEAN_COLUMNS = 32, 1, 64  # of segment_mean: nodes at a time, warps, columns a program
_MOMENT_ROWS, _MOMENT_STEPS, _MOMENT_COLUMNS = 64, 8, 64  # of column_moments: nodes at a time, times, columns


@triton.jit
def _load_rows(  # noqa: ANN202
    x, gate, shift, slope, rows, mask, columns, width, GATED: tl.constexpr, AFFINE: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Vectors of some nodes in single precision, zero where masked out or gated off."""
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    mask = mask[:, None] & (columns < width)[None, :]
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if GATED:
        opened = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
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
    rows = tl.where(tl.arange(0, 2) == 0, node, above)  # the node itself, and its parent if it has one
    there = (rows >= 0) & (above > -2)
    total = tl.sum(_load_rows(x, gate, shift, slope, rows, there, columns, width, GATED, AFFINE), axis=0)
    for child in range(first, last, CHILDREN):
        some = child + tl.arange(0, CHILDREN)
        total += tl.sum(_load_rows(x, gate, shift, slope, some, some < last, columns, width, GATED, AFFINE), axis=0)
    if RECTIFY:
        total = tl.where(total < 0, 0.0, total)  # unlike maximum, this keeps NaN
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
    """See `tree_sum`. Sums are taken in single precision and stored in the precision of `x`."""
    nodes, width = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    affine = shift is not None and slope is not None
    if nodes:
        _neighbour_sum_kernel[(nodes,)](
            x, x if gate is None else gate.contiguous(),
            x if shift is None else shift.contiguous(), x if slope is None else slope.contiguous(),
            parent, first_child, n_children, out, width,
            GATED=gate is not None, AFFINE=affine, RECTIFY=rectify, CHILDREN=_CHILDREN,
            COLUMNS=triton.next_power_of_2(width), num_warps=_WARPS,
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
        at = rows[:, None].to(tl.int64) * width + columns[None, :]
        inside = (rows < nodes)[:, None] & (columns < width)[None, :]
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        total += values
        squared += values * values
    at = block.to(tl.int64) * width + columns
    tl.store(sums + at, tl.sum(total, axis=0), mask=columns < width)
    tl.store(squares + at, tl.sum(squared, axis=0), mask=columns < width)


def launch_column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of each column and of its squares, in single precision: in blocks, then over the blocks."""
    nodes, width = x.shape
    blocks = triton.cdiv(nodes, _MOMENT_ROWS * _MOMENT_STEPS)
    partial = x.new_zeros(2, blocks, width, dtype=torch.float32)
    if nodes:
        _column_moments_kernel[(blocks, triton.cdiv(width, _MOMENT_COLUMNS))](
            x.contiguous(), partial[0], partial[1], nodes, width,
            ROWS=_MOMENT_ROWS, STEPS=_MOMENT_STEPS, COLUMNS=_MOMENT_COLUMNS,
        )  # fmt: skip
    return partial[0].sum(0), partial[1].sum(0)


@triton.jit
def _segment_mean_kernel(x, offsets, out, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # noqa: ANN001, ANN202
    tree = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.load(offsets + tree)
    end = tl.load(offsets + tree + 1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for row in range(start, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        at = rows[:, None].to(tl.int64) * width + columns[None, :]
        inside = (rows < end)[:, None] & (columns < width)[None, :]
        total += tl.sum(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), axis=0)
    tl.store(out + tree.to(tl.int64) * width + columns, total / (end - start), mask=columns < width)


def launch_segment_mean(x: Tensor, offsets: Tensor) -> Tensor:
    """See `tree_mean`."""
    trees, width = len(offsets) - 1, x.shape[1]
    out = x.new_empty(trees, width, dtype=torch.float32)
    if trees:
        _segment_mean_kernel[(trees, triton.cdiv(width, _MEAN_COLUMNS))](
            x.contiguous(), offsets, out, width, ROWS=_MEAN_ROWS, COLUMNS=_MEAN_COLUMNS, num_warps=_MEAN_WARPS
        )
    return out
