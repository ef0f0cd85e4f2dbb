"""The GPU side of `augmentation`, in Triton. Importing this module needs Triton; nothing on a CPU imports it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eqkin.trees.vocabulary import CHARACTER_SLOTS


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
    """See `augmentation`: a program a row, the permutation in registers."""
    rows, most = one.shape
    new = torch.empty(rows, CHARACTER_SLOTS, dtype=torch.uint8, device=flips.device)
    old = torch.empty_like(new)
    if rows:
        _compose_kernel[(rows,)](
            flips, one.contiguous(), other.contiguous(), new, old, most,
            CHARACTERS=CHARACTER_SLOTS, BLOCK=triton.next_power_of_2(CHARACTER_SLOTS), num_warps=1,
        )  # fmt: skip
    return new, old
