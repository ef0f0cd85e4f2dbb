"""Renaming of symbols: permutations of characters by random transpositions, applied to identifiers."""

# ruff: noqa: E402
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Vocabulary
from eqkin.learning.batches import Augmentation, DeviceForest, _compose, _compute_poisson_cdf
from tests.learning.corpora import FORESTS

CPU = torch.device("cpu")
STEP = torch.tensor(2)
EQUATIONS = 2_000


def draw(mean: float, equations: int = EQUATIONS, step: torch.Tensor = STEP, seed: int = 0):
    return Augmentation(mean, seed=seed, device=CPU).draw(step, equations)


@pytest.mark.parametrize("mean", [1e-13, 0.3, 32.0, 500.0])
def test_renaming_is_a_permutation_with_its_inverse(mean):
    renaming = draw(mean, 100)
    new, old = renaming.new.long(), renaming.old.long()
    everyone = torch.arange(CHARACTER_SLOTS).expand(100, -1)
    assert new.shape == old.shape == (100, CHARACTER_SLOTS)
    assert torch.equal(new.sort(1).values, everyone)
    assert torch.equal(old.gather(1, new), everyone)
    assert torch.equal(new.gather(1, old), everyone)


@pytest.mark.parametrize("mean", [1e-9, 0.01, 1.0, 32.0, 100.0, 500.0])
def test_transposition_count_is_poisson_distributed(mean):
    at_most = _compute_poisson_cdf(mean)
    chances = np.diff(at_most, prepend=0.0)
    expected = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(len(chances))]
    assert chances == pytest.approx(expected, abs=1e-12)
    assert at_most[-1] == pytest.approx(1.0, abs=1e-11)
    assert at_most == sorted(at_most)


def test_renaming_depends_only_on_equation_step_and_seed():
    first = draw(32.0, 50).new
    assert len({tuple(row) for row in first.tolist()}) == 50
    assert torch.equal(first, draw(32.0, 50).new)
    assert torch.equal(first[:20], draw(32.0, 20).new)
    assert not torch.equal(first, draw(32.0, 50, step=STEP + 1).new)
    assert not torch.equal(first, draw(32.0, 50, seed=1).new)


def test_compose_passes_torch_opcheck():
    torch.library.opcheck(
        _compose, (torch.tensor([1, 2]), torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 8]]))
    )


def test_share_renames_a_fraction_of_the_equations_unchanged_otherwise():
    some, every = (Augmentation(100.0, seed=3, device=CPU, share=s).draw(torch.tensor(5), 1_000) for s in (0.3, 1.0))
    same = torch.arange(192, dtype=torch.uint8)
    kept = (some.new == same).all(1)
    assert 0.65 < kept.float().mean() < 0.75
    assert torch.equal(some.old[kept], same.expand(int(kept.sum()), -1))
    assert torch.equal(some.new[~kept], every.new[~kept])
    assert torch.equal(some.old[~kept], every.old[~kept])


@settings(max_examples=30)
@given(FORESTS, st.integers(0, 1000))
def test_renaming_changes_only_characters_of_identifiers(forest, step):
    forest_on_device = DeviceForest(forest, Vocabulary.learn([forest]), CPU)
    batch = forest_on_device.collate(torch.arange(len(forest)), torch.arange(len(forest.tag)))
    renaming = draw(200.0, len(forest), torch.tensor(step))
    before, after = (forest_on_device.build_features(batch, torch.float32, renaming=r) for r in (None, renaming))
    first = TAG_SLOTS + ATTRIBUTE_SLOTS
    assert torch.equal(before[:, :first], after[:, :first])
    for node, tag in enumerate(forest.tag.tolist()):
        tree = int(batch.trees.tree[node])
        if forest.tags[tag] == "mi":
            assert torch.equal(after[node, first:][renaming.new[tree].long()], before[node, first:])
        else:
            assert torch.equal(after[node], before[node])
