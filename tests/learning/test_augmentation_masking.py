"""Masking of nodes, and the loss of predicting them."""

# ruff: noqa: E402
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from torch.nn import functional

from eqkin.learning.batches import Masking, NodeMask
from eqkin.learning.losses import MASKING_CLASSES, MaskingHeads, _SelectRows
from tests.encoder.batches import random

SHARE = 0.15
WIDTH = 6


def draw(nodes: int, count: int | None = None, share: float = SHARE, step: int = 0, seed: int = 0) -> NodeMask:
    masking = Masking(share, seed=seed)
    return masking.draw(torch.tensor(step), torch.arange(nodes), torch.tensor(nodes if count is None else count))


def targets_for(rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(n, (rows,), generator=generator) for n in MASKING_CLASSES.values()], dim=1)


@pytest.mark.parametrize("share", [0.02, SHARE, 0.5, 0.97])
def test_masking_hides_the_given_fraction(share):
    hidden = torch.stack([draw(2_000, share=share, step=step).hidden for step in range(50)]).double()
    assert abs(float(hidden.mean()) - share) < 6 * (share * (1 - share) / hidden.numel()) ** 0.5
    assert (hidden.mean(0) - share).abs().max() < 6 * (share * (1 - share) / 50) ** 0.5  # at every place


@given(st.integers(0, 300), st.integers(0, 300), st.floats(0.01, 0.99), st.integers(0, 100))
def test_mask_is_consistent_and_never_hides_padding(count, padding, share, step):
    nodes = count + padding
    mask = draw(nodes, count, share, step)
    hidden = torch.nonzero(mask.hidden).squeeze(1)
    assert (hidden < count).all()
    guessed = hidden[: int(mask.count)]
    assert len(guessed) == min(len(hidden), len(mask.nodes))
    assert torch.equal(mask.nodes[: int(mask.count)], guessed)
    assert ((mask.nodes >= 0) & (mask.nodes < max(nodes, 1))).all()
    expected = torch.full((nodes,), -1)
    expected[guessed] = torch.arange(len(guessed))
    assert torch.equal(mask.room, expected)


def test_mask_depends_only_on_step_and_seed():
    first = draw(500).hidden
    assert torch.equal(first, draw(500).hidden)
    assert not torch.equal(first, draw(500, step=1).hidden)
    assert not torch.equal(first, draw(500, seed=1).hidden)


@given(st.integers(1, 200), st.integers(0, 50), st.integers(0, 100))
def test_masking_loss_is_the_mean_cross_entropy_of_hidden_nodes(count, padding, step):
    torch.manual_seed(0)
    heads = MaskingHeads(WIDTH).double()
    mask = draw(count + padding, count, step=step)
    answers = targets_for(count + padding)
    results = []
    for rows in (mask.nodes, torch.nonzero(mask.hidden).squeeze(1)):
        nodes = random(count + padding, WIDTH).requires_grad_()
        if rows is mask.nodes:
            loss = heads(nodes, mask, answers[rows])
        elif len(rows):
            scores = {name: getattr(heads, name)(nodes[rows]) for name in MASKING_CLASSES}
            tasks = zip(scores.values(), answers[rows].unbind(1), strict=True)
            loss = sum(functional.cross_entropy(score, answer) for score, answer in tasks) / 3
        else:
            loss = nodes.sum() * 0
        heads.zero_grad()
        loss.backward()
        results.append([loss, nodes.grad, *(parameter.grad for parameter in heads.parameters())])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, torch.zeros_like(ours) if theirs is None else theirs, atol=1e-12)


def test_masking_loss_is_zero_without_hidden_nodes():
    heads = MaskingHeads(WIDTH)
    nodes = torch.ones(5, WIDTH, requires_grad=True)
    mask = draw(5, 0)
    assert int(mask.count) == 0
    loss = heads(nodes, mask, targets_for(len(mask.nodes)))
    loss.backward()
    assert loss.item() == 0.0
    assert not nodes.grad.any()
    assert not any(parameter.grad.any() for parameter in heads.parameters())


def test_select_rows_has_the_gradient_of_index_select():
    mask = draw(200)
    real = torch.arange(len(mask.nodes)) < mask.count
    back = random(len(mask.nodes), WIDTH, seed=1) * real[:, None]  # padding is not predicted
    gradients = []
    for rows in (lambda x: _SelectRows.apply(x, mask.nodes, mask.room), lambda x: x.index_select(0, mask.nodes)):
        nodes = random(200, WIDTH).requires_grad_()
        gradients.append(torch.autograd.grad(rows(nodes), nodes, back)[0])
    assert torch.equal(*gradients)
