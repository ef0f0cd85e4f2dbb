"""How much work experiments do: in full for figures to report, small for a look and for tests on a CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExperimentScale:
    """Amounts; nothing else differs between a small run and a full one."""

    triplets: int = 5_000_000  # to learn a network from, each
    seeds: int = 3  # networks learned a variant
    triples: int = 100_000  # to rank
    width: int = 512  # of the graph network's layers
    transformer_triplets: int = 3_000_000
    transformer_layers: int = 8
    fasttext_epochs: int = 5
    bitmaps: int = 100_000  # equations rendered to learn the bitmap CNN from
    bitmap_triplets: int = 2_000_000
    pairs: int = 1_000_000  # equalities, at most
    epochs: int = 20  # of finetuning
    batches: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)  # whose effect on finetuning is shown
    depth: int = 1_000  # of result lists in the search study
    resamples: int = 2_000  # of a bootstrap


FULL_SCALE = ExperimentScale()
SMALL_SCALE = ExperimentScale(
    triplets=2_000, seeds=1, triples=2_000, width=32, transformer_triplets=500, transformer_layers=1,
    fasttext_epochs=1, bitmaps=100, bitmap_triplets=500, epochs=2, batches=(16, 32), depth=100, resamples=200,
)  # fmt: skip
