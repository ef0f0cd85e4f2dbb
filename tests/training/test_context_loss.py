"""Context as a teacher: the loss against its formula, and who is in the way."""

# ruff: noqa: E402
import pytest

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.training.losses import ContextLoss


def unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=1)


def test_an_anchor_finds_its_partner_among_those_of_other_papers():
    torch.manual_seed(0)
    anchor, partner = unit(5, 4), unit(5, 4)
    papers, theirs = [0, 0, 1, 2, 3], [0, 0, 1, 7, 0]
    expected = 0.0
    for i in range(5):
        others = [partner[j] for j in range(5) if j != i and theirs[j] != papers[i]]
        others += [anchor[j] for j in range(5) if papers[j] != papers[i]]
        logits = torch.stack([partner[i], *others]) @ anchor[i] / 0.07
        expected -= logits.log_softmax(0)[0].item() / 5
    found = ContextLoss()(anchor, partner, torch.tensor(papers), torch.tensor(theirs))
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_context_loss_is_zero_without_negatives():
    same = torch.zeros(3, dtype=torch.int64)
    assert ContextLoss()(unit(3, 4), unit(3, 4), same, same).item() == pytest.approx(0, abs=1e-6)
