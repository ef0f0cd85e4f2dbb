"""Benchmarks run here and now, each once: what `speed` reports where there are no files of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.sets.library_formulas import compute_content_digest
from eqkin.library import LibraryFiles
from eqkin.training.corpus import Corpus

_TREES, _VECTORS, _QUERIES, _SECONDS = 10_000, 1_000_000, 500, 10.0  # of a full measurement, at most
_BATCHES = (1_024, 128)


def measure_here(
    context: ExperimentContext, *, library: Path | None = None, corpus: Corpus | None = None
) -> dict[str, Any]:
    """The figures `speed` takes, measured on this machine and kept in the store.

    Encoding is always measured, searches and the index with an indexed library, learning with a corpus (needs torch).

    Raises:
        BadInput: the library has too few equations for the index, or is not indexed.
    """
    network = Encoder.load().digest
    runs: dict[str, tuple[Any, Callable[[], Any]]] = {"encode": (network, lambda: _measure_encode(context))}
    if library is not None:
        place = library
        with LibraryFiles.open(place, create=False) as opened:
            searched = [network, compute_content_digest(opened)]
        runs["index"] = searched, lambda: _measure_index(context, place)
        runs["search"] = searched, lambda: _measure_search(context, place)
    if corpus is not None:
        learn = corpus
        runs["train"] = learn.digest, lambda: _measure_train(context, learn)
    here = describe_machine()
    figures: dict[str, Any] = {"machines": dict.fromkeys(runs, here)}
    for name, (data, run) in runs.items():
        context.log(f"speed: measuring {name}, or loading what was measured")
        key = {
            "benchmark": name,
            "data": data,
            "machine": here,
            "device": context.device,
            "scale": asdict(context.scale),
        }
        figures[name] = context.cache.get_or_measure("speed", key, lambda run=run: {"figures": run()})["figures"]  # type: ignore[misc]
    return figures


def _measure_encode(context: ExperimentContext) -> dict[str, Any]:
    from benchmarks.encode import measure

    amount = min(_TREES, context.scale.triplets // 100)
    return dict(
        measure(Encoder.load().model, trees=amount, formulas=context.scale.depth, progress=context.log).summary()
    )


def _measure_index(context: ExperimentContext, library: Path) -> dict[str, Any]:
    from benchmarks.index import measure

    vectors, queries = min(_VECTORS, context.scale.triplets), min(_QUERIES, context.scale.depth)
    return measure(library, vectors=vectors, queries=queries, progress=context.log).summary()


def _measure_search(context: ExperimentContext, library: Path) -> list[dict[str, Any]]:
    from benchmarks.search import measure_server

    return [dict(report.summary()) for report in measure_server(library, searches=min(_QUERIES, context.scale.depth))]


def _measure_train(context: ExperimentContext, corpus: Corpus) -> dict[str, Any]:
    from benchmarks.train import measure
    from eqkin.training.recipes import RECIPES
    from eqkin.training.run import choose_device

    recipe = RECIPES["paper"].override({"width": str(context.scale.width)})
    batches = [min(batch, context.scale.batches[-1]) for batch in _BATCHES]
    seconds = min(_SECONDS, context.scale.triplets / 100_000)
    found = [
        report.summary() for report in measure(corpus, recipe, batches, choose_device(context.device), seconds=seconds)
    ]
    return {"memory": found[0], "batches": found[1:]}
