"""What every experiment is given: where to keep things, how much to do, on which device, whom to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eqkin.evaluation.scale import FULL_SCALE, ExperimentScale
from eqkin.evaluation.store import ResultCache
from eqkin.evaluation.systems.base import System
from eqkin.training.data import Corpus

HELD_OUT_FRACTION = 0.5  # share of the papers that baselines and ablations never see
SPLIT_SEED = 0  # seed of that split


@dataclass(frozen=True)
class ExperimentContext:
    """The surroundings of an experiment."""

    cache: ResultCache
    scale: ExperimentScale = FULL_SCALE
    device: str = "auto"  # for what learns with torch
    log: Callable[[str], None] = lambda message: None  # progress, a line at a time

    def fit(self, system: System, learn: Corpus) -> System:
        """Make a system learn from a corpus, or load what it learned before."""
        if system.settings:
            self.log(f"{system.title}: learning, or loading what was learned")
            key = {"system": system.name, "settings": system.settings, "corpus": learn.digest}
            folder = self.cache.get_or_fit(system.name, key, lambda part: system.fit(learn, part))
            system.fit(learn, folder)
            system.learned_from = learn.digest
        return self.attach_cache(system)

    def attach_cache(self, system: System) -> System:
        """Have a system's vectors kept, where they are worth it."""
        system.cache = self.cache
        return system


def drop_text(corpus: Corpus) -> Corpus:
    """The corpus without the words around its equations, which only eqkin's own recipe learns from.

    What learns from trees alone is found in the store again, whether the corpus has words or not.
    """
    return corpus if corpus.words is None else replace(corpus, words=None)
