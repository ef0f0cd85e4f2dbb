"""`train`: train a network on a corpus, evaluate it on held-out papers, and keep everything in a folder.

The folder contains

    checkpoint.safetensors.zst   where to continue
    metrics.jsonl                losses, speed and scores
    model/                       the network, for `Encoder.load`
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from eqkin.encoder.model import Model, Vocabulary
from eqkin.errors import BadInput
from eqkin.files import WriterLock, make_folder
from eqkin.learning.batches import DeviceForest
from eqkin.learning.checkpoint import append_metrics, load_checkpoint, read_metrics
from eqkin.learning.config import LoggingConfig, Recipe, choose_device
from eqkin.learning.data import Corpus
from eqkin.learning.losses import build_training_data
from eqkin.learning.related import add_related
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.torch_network import TreeNetwork
from eqkin.learning.trainer import RecipeTrainer, RunSettings, TrainingProgress

MODEL_FOLDER = "model"
# Every run on a corpus holds out the same works.
SPLIT_SEED = 0
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
# An interval holds the true score with probability 1 - delta.
DELTA = 0.05


@dataclass(frozen=True)
class TrainingResult:
    """The end of a run."""

    step: int
    # A run that was stopped instead can be resumed.
    finished: bool
    ranking: RankingScore | None
    model: Path | None


def train(
    corpus: Corpus,
    recipe: Recipe,
    folder: Path,
    *,
    device: str = "auto",
    fast: bool = True,
    resume: bool = False,
    logging: LoggingConfig | None = None,
    on_progress: Callable[[TrainingProgress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Train a network.

    Args:
        corpus: What to learn from; some of its works are held out.
        recipe: How to learn.
        folder: Where everything is stored.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        fast: On a GPU, compile and capture the steps.
        resume: Continue from the folder's checkpoint, if there is one. The result is that of an uninterrupted run
            (bit by bit on CPUs).
        logging: When to log, evaluate and save.
        on_progress: Called every few steps.
        should_stop: Called every few steps; if it returns True, the run saves its state and ends.

    Raises:
        BadInput: The folder contains another run, or nothing can be learned from the corpus.
        CorruptData: The folder's checkpoint is damaged.
        TrainingFailed: The loss or a weight is NaN or infinite; names the step and its equations.
        LibraryBusy: Another process uses the folder.
        StorageFailed: The disk is full or read-only.
    """
    chosen_device, logging = choose_device(device), logging or LoggingConfig()
    # Works are split, not papers: papers of one work share authors and notation.
    learned, held_out = corpus.split(recipe.held_out, SPLIT_SEED)
    with WriterLock(make_folder(folder)):
        saved = load_checkpoint(folder)
        if saved and not resume:
            raise BadInput(
                f"{folder} contains a run at step {saved.facts['step']:,}: "
                "continue it with --resume, or choose another folder"
            )
        # The recipe may ask for pairs that no corpus has: equations in other notations, or with a common name.
        learned = add_related(learned, recipe, folder)
        vocabulary = Vocabulary.learn([learned.forest])
        evaluator = HeldOutEvaluator(held_out, vocabulary, recipe, chosen_device)

        def evaluate(trainer: RecipeTrainer, triples: int = logging.score_triples) -> RankingScore:
            ranking = evaluator.score(trainer.network, triples)
            _log_ranking(folder, trainer, ranking)
            return ranking

        trainer = RecipeTrainer(
            recipe,
            build_training_data(learned, vocabulary, recipe, chosen_device),
            fast=fast,
            get_equation_id=learned.get_equation_id,
            settings=RunSettings(
                folder=folder,
                identity={"recipe": recipe.to_dict(), "corpus": corpus.digest},
                logging=logging,
                evaluate=evaluate,
                on_progress=on_progress,
                should_stop=should_stop,
            ),
        )
        trainer.resume(saved)
        if not trainer.train():
            return TrainingResult(trainer.step, False, trainer.ranking, None)
        trainer.save()
        ranking = evaluate(trainer, logging.final_triples)
        results: dict[str, Any] = {"corpus": corpus.digest, "learned_from": learned.compute_statistics()}
        results |= {"words": len(learned.words.vocabulary) if learned.words is not None else 0}
        _save_model(folder / MODEL_FOLDER, trainer, vocabulary, results, ranking)
        return TrainingResult(trainer.step, True, ranking, folder / MODEL_FOLDER)


class HeldOutEvaluator:
    """Computes the ranking score on held-out papers (paper, sections 5 and 6).

    Triples are drawn from the held-out papers as in training. One is ranked correctly if the anchor is more similar
    (inner product of the embeddings) to its partner than to the negative.

    Raises:
        BadInput: No triple can be drawn from the papers.
    """

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device) -> None:
        self._paper = corpus.paper
        self._forest = DeviceForest(corpus.forest, vocabulary, device)
        try:
            self._sampler = TripletSampler(corpus, seed=recipe.seed, device=device)
        except BadInput as error:
            raise BadInput(
                f"the {len(corpus.papers):,} held-out papers are too few for an evaluation ({error}): "
                "hold out more, or add papers"
            ) from error

    def score(self, network: TreeNetwork, triples: int) -> RankingScore:
        """Return the ranking score on the first `triples` of a fixed sequence of triples, with its interval."""
        zero = torch.zeros(1, 1, dtype=torch.int64, device=self._forest.device)
        drawn = self._sampler.draw(zero, triples).concatenate().view(3, triples)
        trees, index = torch.unique(drawn, return_inverse=True)
        anchor, partner, negative = self._forest.embed(network, trees)[index]
        papers = self._paper[drawn.T.cpu().numpy()]
        positive, against = ((anchor * other).sum(1).cpu().numpy() for other in (partner, negative))
        return score_ranking(positive, against, papers)


def _log_ranking(folder: Path, trainer: RecipeTrainer, ranking: RankingScore) -> None:
    """Write a record of a ranking score, unless a finished run was resumed and has it already."""
    record = {
        "step": trainer.step, "triplets": trainer.step * trainer.batch,
        "ranking": ranking.score, "low": ranking.low, "high": ranking.high, "triples": ranking.triples,
    }  # fmt: skip
    if record not in read_metrics(folder):
        append_metrics(folder, record)


def _save_model(
    folder: Path, trainer: RecipeTrainer, vocabulary: Vocabulary, results: dict[str, Any], ranking: RankingScore
) -> None:
    """Write the network, the masking heads if there are any, and the results of the run."""
    objective = trainer.objective.state_dict()
    heads = {name: tensor for name, tensor in objective.items() if name.startswith("heads.")}
    weights = {name: tensor.float().cpu().numpy() for name, tensor in (trainer.network.state_dict() | heads).items()}
    results |= {
        "contexts": trainer.data.sampler.shares,
        "triplets": trainer.step * trainer.batch,
        "seconds": round(trainer.seconds, 1),
        "losses": trainer.last_losses,
        "held_out_ranking": {
            "score": ranking.score, "low": ranking.low, "high": ranking.high,
            "triples": ranking.triples, "papers": ranking.papers, "colours": ranking.colours, "delta": DELTA,
        },
    }  # fmt: skip
    recipe = trainer.recipe
    Model(recipe.architecture, vocabulary, weights, recipe.to_dict(), results).save(folder)


@dataclass(frozen=True, kw_only=True)
class RankingScore:
    """The ranking score on a set of triples, with what its interval depends on."""

    # Share of the triples ranked correctly; NaN if there are none.
    score: float
    # Ends of the interval, within [0, 1].
    low: float
    high: float
    triples: int
    # Of the triples, so that no two triples of one colour share a paper.
    colours: int
    # That occur in the triples.
    papers: int

    def __str__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{100 * self.score:.1f} %"
        interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{score} {interval} on {self.triples:,} triples from {self.papers:,} papers"


def score_ranking(positive: Floats, negative: Floats, papers: Integers) -> RankingScore:
    """Compute the share of triples whose positive pair is more similar than the negative pair, with its interval.

    The interval of an incomplete U-statistic, the mean over triples D drawn with replacement, is

        |s - score| <= sqrt( chi ln(2 / delta) / (2 |D|) )   with probability at least 1 - delta

    with chi colours: the paper's one-sided bound at delta / 2, applied to both sides and clipped to [0, 1].

    Args:
        positive: (n,) similarities of anchor and positive.
        negative: (n,) similarities of anchor and negative.
        papers: (n, 3) the papers that contain anchor, positive and negative.

    Returns:
        The score; ties and NaN count as wrong. Without triples the score is NaN and its interval [0, 1].
    """
    triples = np.asarray(papers, np.int64).reshape(-1, 3)
    count = len(triples)
    if np.shape(positive) != (count,) or np.shape(negative) != (count,):
        raise BadInput(f"{count} triples need as many similarities, got {np.shape(positive)} and {np.shape(negative)}")
    if not count:
        return RankingScore(score=math.nan, low=0.0, high=1.0, triples=0, colours=0, papers=0)
    score = float(np.mean(np.asarray(positive) > np.asarray(negative)))
    colours = int(color_triples(triples).max()) + 1
    width = math.sqrt(colours * math.log(2 / DELTA) / (2 * count))
    return RankingScore(
        score=score,
        low=max(0.0, score - width),
        high=min(1.0, score + width),
        triples=count,
        colours=colours,
        papers=len(np.unique(triples)),
    )


def color_triples(papers: Integers) -> npt.NDArray[np.int64]:
    """Give each triple a colour, counted from 0, so that triples that share a paper differ.

    Every triple gets the lowest colour that is free at all of its papers, in the order in which they were drawn. For
    triples in random order this needs hardly more colours than the busiest paper has triples, and no colouring can do
    with fewer; sorting them by degree first makes it worse.

    Args:
        papers: (n, 3) the papers of each triple, any integers; those of one triple may be equal.

    Returns:
        (n,) colours, at most 3 (d - 1) + 1 of them if no paper is in more than d triples.
    """
    names, numbers = np.unique(papers, return_inverse=True)
    # The colours used at a paper are the bits of one integer: time grows with the triples, not with pairs of them.
    used = [0] * len(names)
    colours = np.empty(len(papers), np.int64)
    for index, triple in enumerate(numbers.reshape(-1, 3).tolist()):
        taken = used[triple[0]] | used[triple[1]] | used[triple[2]]
        # The lowest bit that is not set.
        colour = ~taken & (taken + 1)
        colours[index] = colour.bit_length() - 1
        for paper in triple:
            used[paper] |= colour
    return colours
