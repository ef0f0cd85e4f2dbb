"""Pairs of sides: splits by work, finetuned models."""

import numpy as np
import pytest
from eqkin.evaluation.equalities import PairSet, split_by_work
from eqkin.evaluation.finetune import finetune_model
from eqkin.statistics import Score

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.formulas import Vocabulary
from eqkin.learning.finetuning import FinetuningConfig
from tests.encoder.models import random_model
from tests.evaluation.pairs import corpus_of_equalities


def test_pair_split_keeps_pairs_of_a_work_together():
    pairs = PairSet.split(corpus_of_equalities(), "equalities", 1_000)
    works = [set(pairs.work[part].tolist()) for part in (pairs.train, pairs.validation, pairs.test)]
    assert works[0].isdisjoint(works[1] | works[2])
    assert works[1].isdisjoint(works[2])
    assert sorted(np.concatenate([pairs.train, pairs.validation, pairs.test]).tolist()) == list(range(len(pairs.pairs)))
    assert abs(len(pairs.test) - len(pairs.pairs) / 2) < 10
    assert 0 < len(pairs.validation) < len(pairs.train)


def test_split_by_work_does_not_depend_on_order():
    works = [f"work{number % 20}" for number in range(100)]
    mask = split_by_work(works, 0.3, "seed")
    assert {work for work, taken in zip(works, mask, strict=True) if taken} == {
        work for work, taken in zip(works[::-1], split_by_work(works[::-1], 0.3, "seed"), strict=True) if taken
    }
    assert mask.sum() == 30
    assert not np.array_equal(mask, split_by_work(works, 0.3, "another seed"))


def test_split_by_work_skips_large_works_and_never_takes_all():
    assert split_by_work(["large"] * 9 + ["small"], 0.2, "").tolist() == [False] * 9 + [True]
    assert split_by_work(["a", "b"], 0.9, "").sum() == 1
    assert split_by_work(["large"] * 5 + ["larger"] * 6, 0.1, "").sum() == 5


def test_pair_split_rejects_too_few_works_and_unknown_sets():
    with pytest.raises(BadInput, match="too few"):
        PairSet.split(corpus_of_equalities(works=2), "equalities", 1_000)
    with pytest.raises(BadInput, match="unknown set of pairs 'sums'"):
        PairSet.split(corpus_of_equalities(), "sums", 1_000)


def test_pair_split_limits_number_of_pairs():
    assert len(PairSet.split(corpus_of_equalities(), "relations", 50).pairs) == 50


def test_finetune_model_improves_recall_and_can_be_loaded(tmp_path):
    corpus = corpus_of_equalities()
    random_model(vocabulary=Vocabulary.learn([corpus.forest])).save(tmp_path / "first")
    settings = FinetuningConfig(batch=16, epochs=10, rates=(3e-3,))
    done = finetune_model(
        corpus, tmp_path / "second", model=tmp_path / "first", settings=settings, device="cpu", resamples=50
    )
    assert done.after["r10"].value > done.before["r10"].value
    assert isinstance(done.after["r1"], Score)
    assert done.learned + done.checked + done.tested == 24 * 8
    first, second = Encoder.load(tmp_path / "first"), Encoder.load(tmp_path / "second")
    assert first.digest != second.digest
    assert second.model.recipe["finetuned"]["batch"] == 16
    lengths = np.linalg.norm(second.embed(corpus.forest), axis=1)
    assert lengths.mean() == pytest.approx(1 - lengths.std(), abs=0.01)
    with pytest.raises(BadInput, match="already holds a model"):
        finetune_model(corpus, tmp_path / "second", device="cpu")
