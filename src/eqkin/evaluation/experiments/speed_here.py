"""Benchmarks run here and now, each once: what `speed` reports where there are no files of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eqkin.benchmarks.machine import machine
from eqkin.evaluation.experiments.context import Context
from eqkin.evaluation.sets.library_formulas import content_digest
from eqkin.learning.corpus import Corpus
from eqkin.library import Library
from eqkin.network.encoder import Encoder

_TREES, _VECTORS, _QUERIES, _SECONDS = 10_000, 1_000_000, 500, 10.0  # of a full measurement, at most
_BATCHES = (1_024, 128)


def measure_here(context: Context, *, library: Path | None = None, corpus: Corpus | None = None) -> dict[str, Any]:
    """The figures `speed` takes, measured on this machine and kept in the store.

    Encoding is always measured, searches and the index with an indexed library, learning with a corpus (needs torch).

    Raises:
        BadInput: the library has too few equations for the index, or is not indexed.
    """
    network = Encoder.load().digest
    runs: dict[str, tuple[Any, Callable[[], Any]]] = {"encode": (network, lambda: _encode(context))}
    if library is not None:
        place = library
        with Library.open(place, create=False) as opened:
            searched = [network, content_digest(opened)]
        runs["index"] = searched, lambda: _index(context, place)
        runs["search"] = searched, lambda: _search(context, place)
    if corpus is not None:
        learn = corpus
        runs["train"] = learn.digest, lambda: _train(context, learn)
    here = machine()
    figures: dict[str, Any] = {"machines": dict.fromkeys(runs, here)}
    for name, (data, run) in runs.items():
        context.tell(f"speed: measuring {name}, or loading what was measured")
        key = {
            "benchmark": name,
            "data": data,
            "machine": here,
            "device": context.device,
            "scale": asdict(context.scale),
        }
        figures[name] = context.store.measured("speed", key, lambda run=run: {"figures": run()})["figures"]  # type: ignore[misc]
    return figures


def _encode(context: Context) -> dict[str, Any]:
    from eqkin.benchmarks.encode import measure

    amount = min(_TREES, context.scale.triplets // 100)
    return dict(
        measure(Encoder.load().model, trees=amount, formulas=context.scale.depth, progress=context.tell).summary()
    )


def _index(context: Context, library: Path) -> dict[str, Any]:
    from eqkin.benchmarks.index import measure

    vectors, queries = min(_VECTORS, context.scale.triplets), min(_QUERIES, context.scale.depth)
    return measure(library, vectors=vectors, queries=queries, progress=context.tell).summary()


def _search(context: Context, library: Path) -> list[dict[str, Any]]:
    from eqkin.benchmarks.search import measure_server

    return [dict(report.summary()) for report in measure_server(library, searches=min(_QUERIES, context.scale.depth))]


def _train(context: Context, corpus: Corpus) -> dict[str, Any]:
    from eqkin.benchmarks.train import measure
    from eqkin.learning.recipes import RECIPES
    from eqkin.learning.run import chosen_device

    recipe = RECIPES["paper"].changed({"width": str(context.scale.width)})
    batches = [min(batch, context.scale.batches[-1]) for batch in _BATCHES]
    seconds = min(_SECONDS, context.scale.triplets / 100_000)
    found = [
        report.summary() for report in measure(corpus, recipe, batches, chosen_device(context.device), seconds=seconds)
    ]
    return {"memory": found[0], "batches": found[1:]}
