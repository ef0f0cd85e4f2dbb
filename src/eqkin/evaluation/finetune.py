"""Finetune a model on the equalities of a corpus, and measure it on held-out equalities before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput
from eqkin.evaluation.equalities import PairSet
from eqkin.evaluation.formulas import Float32s
from eqkin.evaluation.measures import compute_mrr, compute_partner_ranks, find_hits
from eqkin.learning.data import Corpus
from eqkin.statistics import RESAMPLES, Score, bootstrap_mean

if TYPE_CHECKING:
    from eqkin.learning.finetuning import FinetuningChoice, FinetuningConfig

DEPTHS = (1, 10, 100)
_MAX_PAIRS = 1_000_000
_NORM_SAMPLE = 10_000  # equations whose vector lengths determine the soft norm


@dataclass(frozen=True)
class FinetuningResult:
    """The finetuned model and its recall on test pairs, by cosine, with intervals over works."""

    model: Path
    learned: int  # pairs
    checked: int
    tested: int
    before: dict[str, Score]  # "r1", "r10", "r100"
    after: dict[str, Score]
    choice: FinetuningChoice


def finetune_model(
    corpus: Corpus,
    out: Path,
    *,
    model: Path | None = None,
    pairs: str = "relations",
    held_out: float = 0.2,
    settings: FinetuningConfig | None = None,
    device: str = "auto",
    resamples: int = RESAMPLES,
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningResult:
    """Finetune a model to find the other side of equalities, and write it to a folder that `Encoder.load` takes.

    Args:
        corpus: Source of the pairs.
        out: The folder to write to.
        model: The folder of the model to start from, by default the bundled one.
        pairs: "equalities", "inequalities", or "relations" for both and similar signs.
        held_out: Share of test pairs, split by work.
        settings: Batch size, epochs and learning rates.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        resamples: Number of resamples of the intervals.
        log: Receives progress, one line at a time.

    Raises:
        BadInput: The folder already holds a model, there is no model to start from, or there are too few pairs.
        StorageFailed: The disk refused.
    """
    from eqkin.learning.config import choose_device
    from eqkin.learning.finetuning import FinetuningConfig, GraphTower, finetune

    if (out / DESCRIPTION_FILE).exists():
        raise BadInput(f"{out} already holds a model: choose another folder")
    if not 0 < held_out < 1:
        raise BadInput(f"the held-out share must be between 0 and 1, such as 0.2, got {held_out}")
    first, settings, chosen_device = Encoder.load(model).model, settings or FinetuningConfig(), choose_device(device)
    chosen = PairSet.split(corpus, pairs, _MAX_PAIRS, held_out)
    learned, checked, tested = (chosen.get_sides(part) for part in (chosen.train, chosen.validation, chosen.test))
    log(f"{len(learned):,} training pairs, {len(checked):,} validation pairs, {len(tested):,} test pairs")

    def make_tower() -> GraphTower:
        return GraphTower(chosen.pairs.forest, first, chosen_device)

    def compute_recall(vectors: Float32s) -> dict[str, Score]:
        ranks = compute_partner_ranks(vectors)
        return {f"r{k}": bootstrap_mean(find_hits(ranks, k), chosen.clusters, resamples=resamples) for k in DEPTHS}

    before = compute_recall(make_tower().compute_vectors(tested.T.ravel()))
    tower, choice = finetune({"network": make_tower}, learned, checked, compute_mrr, settings, log)
    after = compute_recall(tower.compute_vectors(tested.T.ravel()))
    weights = {
        name.removeprefix("network."): np.asarray(tensor.float().cpu().numpy(), np.float32)
        for name, tensor in tower.state_dict().items()
    }
    facts = {
        "model": first.digest, "corpus": corpus.digest, "pairs": pairs, "learned": len(learned),
        "checked": len(checked), "tested": len(tested), "choice": choice.to_dict(),
        "before": {key: asdict(score) for key, score in before.items()},
        "after": {key: asdict(score) for key, score in after.items()},
    }  # fmt: skip
    recipe, training = first.recipe | {"finetuned": settings.to_dict()}, first.training | {"finetuned": facts}

    def make_model(mean: float, deviation: float) -> Model:
        norm = {"soft_norm.mean": np.float32(mean), "soft_norm.deviation": np.float32(deviation)}
        arrays = {name: np.asarray(array, np.float32) for name, array in (weights | norm).items()}
        return Model(first.architecture, first.vocabulary, arrays, recipe, training)

    # finetuning does not control the lengths of vectors: fit the soft norm to those of some equations
    sample = corpus.forest.select(np.arange(0, len(corpus), max(1, len(corpus) // _NORM_SAMPLE)))
    lengths = np.linalg.norm(Encoder(make_model(1, 0)).embed(sample), axis=1)
    make_model(lengths.mean(), lengths.std()).save(out)
    return FinetuningResult(out, len(learned), len(checked), len(tested), before, after, choice)
