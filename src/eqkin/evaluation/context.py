"""The context of an evaluation: cache, amount of work, device and log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqkin.errors import BadInput
from eqkin.evaluation.cache import ResultCache

if TYPE_CHECKING:
    from eqkin.evaluation.systems.base import System
    from eqkin.training.data import Corpus

HELD_OUT_FRACTION = 0.5  # of the papers; baselines and ablations never see them
SPLIT_SEED = 0


@dataclass(frozen=True)
class ExperimentScale:
    """Amounts of work; nothing else differs between a small run and a full one."""

    triplets: int = 5_000_000  # to train a network on; others are in proportion
    triples: int = 100_000  # held-out triples to rank
    width: int = 512  # of the graph network's layers
    transformer_layers: int = 8
    fasttext_epochs: int = 5
    bitmaps: int = 12_000  # equations rendered to train the bitmap CNN on
    pairs: int = 1_000_000  # equalities, at most
    epochs: int = 20  # of finetuning
    depth: int = 1_000  # of result lists in the search study
    distractors: int = 5_000  # among which labelled formulas are to be found
    searches: int = 1_000  # of labelled formulas in a library, at most
    resamples: int = 2_000  # of a bootstrap


FULL_SCALE = ExperimentScale()
SMALL_SCALE = ExperimentScale(
    triplets=500, triples=2_000, width=32, transformer_layers=1, fasttext_epochs=1, bitmaps=100, pairs=200, epochs=1,
    depth=100, distractors=100, searches=5, resamples=200,
)  # fmt: skip


@dataclass(frozen=True)
class ExperimentContext:
    """Cache, scale, device and log of an evaluation."""

    cache: ResultCache
    scale: ExperimentScale = FULL_SCALE
    device: str = "auto"  # for systems that use torch
    log: Callable[[str], None] = lambda message: None  # receives progress, one line at a time

    def fit(self, system: System, corpus: Corpus) -> System:
        """Fit a system on a corpus, or load what it learned before."""
        if system.settings:
            self.log(f"{system.title}: fitting, or loading an earlier fit")
            key = {"system": system.name, "settings": system.settings, "corpus": corpus.digest}
            folder = self.cache.get_or_fit(system.name, key, lambda part: system.fit(corpus, part))
            system.fit(corpus, folder)
            system.learned_from = corpus.digest
        return system

    def fit_all(self, systems: Sequence[System], load_corpus: Callable[[], Corpus]) -> None:
        """Fit systems on the first half of a corpus, which is loaded only if a system needs it."""
        half: Corpus | None = None
        for system in systems:
            if system.settings and half is None:
                try:
                    half = drop_text(load_corpus()).split(HELD_OUT_FRACTION, SPLIT_SEED)[0]
                except BadInput as error:
                    raise BadInput(f"{system.title} cannot be fitted: {error}") from error
            if half is not None:
                self.fit(system, half)


def drop_text(corpus: Corpus) -> Corpus:
    """Return the corpus without the text around its equations, which only eqkin's own recipe learns from.

    Fits on trees alone have the same cache key whether the corpus has text or not.
    """
    return replace(corpus, words=None, names=None) if corpus.words or corpus.names else corpus
