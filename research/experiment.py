"""What an experiment is run with: an output folder, an amount of work, a log, and systems that learn from a corpus.

The output folder holds

    results/NAME.json            tables
    fitted/NAME-DIGEST/          what a system learned from a corpus
    networks/NAME/               the run of a network
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqkin.errors import BadInput
from eqkin.evaluation import System
from eqkin.files import make_folder
from eqkin.learning.data import Corpus

# Of the papers: baselines and ablations never see them.
HELD_OUT_FRACTION = 0.5
SPLIT_SEED = 0


@dataclass(frozen=True, kw_only=True)
class ExperimentScale:
    """Amounts of work; nothing else differs between a small run and a full one."""

    # Presentations that a network is trained on.
    triplets: int = 5_000_000
    # Settings that make a network small, as `eqkin train --set` takes them.
    network: tuple[str, ...] = ()
    fasttext_epochs: int = 5
    # Equalities, at most, and epochs of finetuning on them.
    pairs: int = 1_000_000
    epochs: int = 20
    # Length of result lists in the search study.
    depth: int = 1_000
    # Formulas among which labelled ones are to be found.
    distractors: int = 5_000
    # Labelled formulas that are searched in a library, at most.
    searches: int = 1_000
    resamples: int = 2_000


FULL_SCALE = ExperimentScale()
SMALL_SCALE = ExperimentScale(
    triplets=500, network=("width=32",), fasttext_epochs=1, pairs=200, epochs=1, depth=100, distractors=100,
    searches=5, resamples=200,
)  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """Folder, scale, device and log of an experiment."""

    folder: Path
    scale: ExperimentScale = FULL_SCALE
    # For networks that are trained: "cpu", "cuda", or "auto" for a GPU if there is one.
    device: str = "auto"
    # Receives progress, one line at a time.
    log: Callable[[str], None] = lambda message: None


class FittedSystem(System):
    """A system that learns from a corpus before it ranks."""

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the fit besides the corpus, as JSON."""
        return {}

    @abstractmethod
    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn from a corpus and save to `folder`; an earlier fit in the folder is loaded instead."""


def fit_systems(experiment: Experiment, systems: Sequence[System], load_corpus: Callable[[], Corpus]) -> None:
    """Fit systems on one half of a corpus, which is loaded only if one of them learns.

    A fit in the output folder is loaded instead of repeated, if it is of the same settings and the same corpus.

    Raises:
        BadInput: There is no corpus.
    """
    fitted = [system for system in systems if isinstance(system, FittedSystem)]
    if not fitted:
        return
    try:
        half = load_corpus().split(HELD_OUT_FRACTION, SPLIT_SEED)[0]
    except BadInput as error:
        raise BadInput(f"{fitted[0].title} cannot be fitted: {error}") from error
    for system in fitted:
        experiment.log(f"{system.title}: fitting, or loading an earlier fit")
        settings = "".join(f"-{key}{value}" for key, value in system.settings.items() if isinstance(value, int))
        folder = experiment.folder / "fitted" / f"{system.name}{settings}-{half.digest[:16]}"
        if not folder.is_dir():
            # An interrupted fit leaves a folder of another name.
            unfinished = make_folder(folder.with_name(f"{folder.name}.part"))
            system.fit(half, unfinished)
            os.replace(unfinished, folder)
        system.fit(half, folder)
