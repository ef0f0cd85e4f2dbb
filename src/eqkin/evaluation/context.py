"""The context of an evaluation: amount of work, device, log, and a cache, so that nothing is done twice.

The folder of a cache holds

    fitted/NAME-KEY/                what a system learned; KEY is a digest of its settings and of the corpus
    rows/EXPERIMENT/KEY.json        one measurement; KEY is a digest of everything it depends on
    locks/                          which process is fitting what
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eqkin.errors import BadInput, StorageFailed
from eqkin.storage.files import WriterLock, make_folder, read_file, write_file

if TYPE_CHECKING:
    from eqkin.evaluation.systems.base import System
    from eqkin.learning.data import Corpus

HELD_OUT_FRACTION = 0.5  # of the papers; baselines and ablations never see them
SPLIT_SEED = 0


class ResultCache:
    """Fitted systems and measurements in a folder; several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_or_fit(self, name: str, key: Any, fit: Callable[[Path], None]) -> Path:
        """Return the folder of what was fitted under `key` (JSON); `fit` fills a new one if there is none.

        A fit that was interrupted finds its own files in the same folder when it runs again.

        Raises:
            LibraryBusy: Another process is fitting the same.
            StorageFailed: The disk refused.
        """
        folder = self.folder / "fitted" / f"{name}-{compute_digest(key)}"
        if folder.exists():
            return folder
        with WriterLock(make_folder(self.folder / "locks" / folder.name)):
            if not folder.exists():  # another process may have just finished
                unfinished = make_folder(folder.with_name(folder.name + ".part"))
                try:
                    fit(unfinished)
                    os.replace(unfinished, folder)
                except OSError as error:
                    raise StorageFailed(f"{unfinished}: cannot be written ({error.strerror or error})") from error
        return folder

    def get_or_measure(self, experiment: str, key: Any, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the measurement kept under `key` (JSON), or call `measure` and keep its result.

        The result has been JSON in both cases: tuples are lists, and NaN is None. Damaged files are measured again.
        Raises `StorageFailed`.
        """
        path = self.folder / "rows" / experiment / f"{compute_digest(key)}.json"
        with suppress(ValueError, KeyError, TypeError):
            content = orjson.loads(read_file(path) or b"")
            if compute_digest(content["key"]) == compute_digest(key) and isinstance(content["measured"], dict):
                return dict(content["measured"])
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        text = orjson.dumps({"key": key, "measured": measure()}, option=option)
        write_file(make_folder(path.parent) / path.name, text)
        return dict(orjson.loads(text)["measured"])


def compute_digest(key: Any) -> str:
    """Return 16 hexadecimal digits that identify a JSON value."""
    return hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


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
