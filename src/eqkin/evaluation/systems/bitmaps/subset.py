"""A part of a corpus that is small enough to render: whole papers, so that related equations stay together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from eqkin.evaluation.systems.bitmaps.gallery import ImageCache, count_empty
from eqkin.training.data import Corpus

SUBSET_SEED = 0  # seed of the parts that experiments use


@dataclass(frozen=True)
class RenderReport:
    """What `render_subset` did."""

    papers: int
    equations: int
    empty: int  # equations whose picture has no ink
    seconds: float


def draw_subset(corpus: Corpus, count: int, seed: int = SUBSET_SEED) -> Corpus:
    """Papers in an order that depends on the seed and their keys alone, until they have `count` equations."""
    equations = np.bincount(corpus.paper, minlength=len(corpus.papers))
    names = [f"{seed}:{key}".encode("utf-8", "surrogatepass") for key in corpus.papers]
    order = sorted(range(len(names)), key=lambda paper: sha256(names[paper]).digest())
    before = np.cumsum(equations[order]) - equations[order]
    return corpus.select(np.array(order, np.int64)[before < count])


def render_subset(
    corpus: Corpus,
    folder: Path,
    count: int,
    seed: int = SUBSET_SEED,
    *,
    tell: Callable[[str], None] = lambda message: None,
) -> RenderReport:
    """Render what `draw_subset` draws into a gallery's folder, where `BitmapCNN` finds it, also on another machine.

    What is there already is not rendered again. Raises what `Gallery.bitmaps` raises.
    """
    started = time.monotonic()
    subset = draw_subset(corpus, count, seed)
    pictures = ImageCache(folder, tell).get_images(subset.forest)
    return RenderReport(len(subset.papers), len(subset), count_empty(pictures), time.monotonic() - started)
