"""Cases for the Triton kernel of renamings, run by `test_kernels` in separate processes."""

import os

import pytest
import torch

from eqkin.encoder.model import CHARACTER_SLOTS
from eqkin.learning.batches import _compose
from eqkin.learning.kernels import launch_compose_transpositions

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_permutations_are_those_of_the_cpu(rows):
    generator = torch.Generator().manual_seed(rows)
    most = 12
    flips = torch.arange(rows) * 3
    one = torch.randint(CHARACTER_SLOTS, (most, rows), generator=generator).T  # not in the order of memory
    other = (one + torch.randint(1, CHARACTER_SLOTS, (rows, most), generator=generator)) % CHARACTER_SLOTS
    expected = _compose(flips, one, other)
    results = launch_compose_transpositions(flips.to(DEVICE), one.to(DEVICE), other.to(DEVICE))
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.cpu(), theirs)
