"""`TrainingRun`: train a network on a corpus, evaluate it on held-out papers, and keep everything in a folder.

The folder contains

    checkpoint.safetensors   where to continue
    metrics.jsonl            losses, speed and scores
    model/                   the network, for `Encoder.load`

Several processes may train together (see `distributed`): the first one writes, evaluates and reports. Only the first
needs the folder; it sends the others what it reads there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.formulas import Vocabulary
from eqkin.learning.batches import DeviceForest
from eqkin.learning.checkpoint import METRICS_FILE, Checkpoint, MetricsFile, load_checkpoint, lock_run, read_metrics
from eqkin.learning.config import LoggingConfig, Recipe, choose_device
from eqkin.learning.data import Corpus
from eqkin.learning.distributed import SINGLE_PROCESS, ProcessGroup
from eqkin.learning.notations import add_related
from eqkin.learning.objective import build_training_data
from eqkin.learning.ranking import DELTA, RankingScore, score_ranking
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.torch_network import TreeNetwork
from eqkin.learning.trainer import RecipeTrainer, TrainingProgress

MODEL_FOLDER = "model"


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
            self._sampler = TripletSampler(corpus, kinds=recipe.contexts, seed=recipe.seed, device=device)
        except BadInput as error:
            raise BadInput(
                f"the {len(corpus.papers):,} held-out papers are too few for an evaluation ({error}): "
                "hold out more, or choose others with another split_seed"
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


@dataclass(frozen=True)
class TrainingResult:
    """The end of a run."""

    step: int
    finished: bool  # otherwise it was stopped, and can be resumed
    ranking: RankingScore | None  # None in all processes but the first
    model: Path | None  # likewise


@dataclass
class TrainingRun:
    """A run in a folder.

    Attributes:
        corpus: What to learn from; some of its works are held out.
        recipe: How to learn.
        folder: Where everything is stored.
        device: "cpu", "cuda", or "auto" for a GPU if there is one; ignored if there are several processes.
        fast: On a GPU, compile and capture the steps.
        logging: When to log, evaluate and save.
        on_progress: Called every few steps in the first process.
        should_stop: Called every few steps in every process; if any returns True, the run saves its state and ends.
        group: The processes that train together, each with a `TrainingRun` like this one.
    """

    corpus: Corpus
    recipe: Recipe
    folder: Path
    device: str = "auto"
    fast: bool = True
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    on_progress: Callable[[TrainingProgress], None] = lambda progress: None
    should_stop: Callable[[], bool] = lambda: False
    group: ProcessGroup = SINGLE_PROCESS

    def train(self, *, resume: bool = False) -> TrainingResult:
        """Train until the recipe's last step or until stopped.

        Args:
            resume: Continue from the folder's checkpoint, if there is one. The result is that of an uninterrupted run
                (bit by bit on CPUs).

        Raises:
            BadInput: The folder contains another run, nothing can be learned from the corpus, or the batch cannot be
                divided among the processes.
            CorruptData: The folder's checkpoint is damaged.
            TrainingFailed: The loss or a weight is NaN or infinite; names the step and its equations.
            LibraryBusy: Another process uses the folder.
            StorageFailed: The disk is full or read-only.
            Unreachable: Another process of the run is lost.
        """
        recipe, group = self.recipe, self.group
        device = choose_device(self.device) if group.is_single else group.device
        group.check_batch_size(recipe.batch)
        if not group.is_single:
            group.check_same("equations", self.corpus.digest)
            group.check_same("recipes", json.dumps(recipe.to_dict()))
        train_corpus, held_out = self.corpus.split(recipe.held_out, recipe.split_seed)
        with ExitStack() as stack:
            saved = self._open_folder(stack, resume=resume)
            prepared = group.run_on_first(lambda: add_related(train_corpus, recipe, self.folder))
            train_corpus = prepared or add_related(train_corpus, recipe, self.folder)  # others read what it wrote
            vocabulary = Vocabulary.learn([train_corpus.forest])
            evaluator = group.run_on_first(lambda: HeldOutEvaluator(held_out, vocabulary, recipe, device))
            data = build_training_data(train_corpus, vocabulary, recipe, device, group)
            fast = self.fast and device.type == "cuda"
            get_id = train_corpus.get_equation_id
            trainer = RecipeTrainer(recipe, data, compiled=fast, captured=fast, group=group, get_equation_id=get_id)
            trainer.folder, trainer.logging = self.folder, self.logging
            trainer.identity = {"recipe": recipe.to_dict(), "corpus": self.corpus.digest}
            trainer.on_progress, trainer.should_stop = self.on_progress, self.should_stop
            if evaluator is not None:
                trainer.metrics = MetricsFile(self.folder / METRICS_FILE)
                triples = self.logging.score_triples
                trainer.evaluate = lambda step: self._evaluate(evaluator, trainer, triples)
            if saved is not None:
                trainer.resume(saved)
            elif trainer.metrics is not None:
                trainer.metrics.rewind(-1)
            if not trainer.train():
                return TrainingResult(trainer.step, False, trainer.ranking, None)
            trainer.save()
            if evaluator is None:
                return TrainingResult(trainer.step, True, None, None)
            ranking = self._evaluate(evaluator, trainer, self.logging.final_triples)
            self._save_model(trainer, train_corpus, vocabulary, ranking)
            return TrainingResult(trainer.step, True, ranking, self.folder / MODEL_FOLDER)

    def _open_folder(self, stack: ExitStack, *, resume: bool) -> Checkpoint | None:
        """Lock the folder and read its checkpoint in the first process, which sends it to the others."""

        def open_in_first() -> Checkpoint | None:
            stack.enter_context(lock_run(self.folder))
            saved = load_checkpoint(self.folder)
            if saved and not resume:
                raise BadInput(
                    f"{self.folder} contains a run at step {saved.facts['step']:,}: "
                    "continue it with --resume, or choose another folder"
                )
            return saved

        return self.group.broadcast(open_in_first)

    def _evaluate(self, evaluator: HeldOutEvaluator, trainer: RecipeTrainer, triples: int) -> RankingScore:
        """Compute the ranking score on held-out papers and write a record of it."""
        ranking = evaluator.score(trainer.network, triples)
        metrics = trainer.metrics
        record = {
            "step": trainer.step, "triplets": trainer.step * self.recipe.batch,
            "ranking": ranking.score, "low": ranking.low, "high": ranking.high, "triples": triples,
        }  # fmt: skip
        key = (trainer.step, triples)
        if metrics is not None and key not in ((r["step"], r.get("triples")) for r in read_metrics(metrics.path)):
            metrics.append(record)  # unless a finished run was resumed
        return ranking

    def _save_model(
        self, trainer: RecipeTrainer, train_corpus: Corpus, vocabulary: Vocabulary, ranking: RankingScore
    ) -> None:
        """Write the network with the weights of the objective and the results of the run."""
        state = trainer.network.state_dict() | trainer.objective.get_extra_weights()
        results: dict[str, Any] = {
            "corpus": self.corpus.digest,
            "learned_from": train_corpus.compute_statistics(),
            "words": len(train_corpus.words.vocabulary) if train_corpus.words is not None else 0,
            "contexts": trainer.data.sampler.shares,
            "triplets": trainer.step * self.recipe.batch,
            "seconds": round(trainer.seconds, 1),
            "losses": trainer.last_losses,
            "held_out_ranking": {
                "score": ranking.score, "low": ranking.low, "high": ranking.high,
                "triples": ranking.triples, "papers": ranking.papers, "colours": ranking.colours,
                "delta": DELTA,
            },
        }  # fmt: skip
        Model(
            architecture=self.recipe.architecture,
            vocabulary=vocabulary,
            weights={name: tensor.float().cpu().numpy() for name, tensor in state.items()},
            recipe=self.recipe.to_dict(),
            training=results,
        ).save(self.folder / MODEL_FOLDER)
