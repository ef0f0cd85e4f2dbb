"""What can be compared, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from eqkin.encoder.model import DESCRIPTION_FILE
from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import System

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import ExperimentContext

_MODEL_SUBFOLDER = "model"  # where a run keeps its network
SYSTEM_DESCRIPTIONS = {
    "eqkin": "eqkin's search engine: counted structure, common runs and vectors, weighed by what was learned",
    "eqkin-vector": "its vector alone, by the network of eqkin's own recipe; cosine",
    "paper": "the graph network that comes with eqkin, learned by the paper's recipe; cosine",
    "untrained": "the same network before it learns anything",
    "bag-of-words": "the paper's baseline: sums of the nodes' 256 features; cosine",
    "log-bag-of-words": "the labels of all nodes, log tf-idf; cosine",
    "tfidf-latex": "runs of one to three LaTeX tokens, log tf-idf; cosine",
    "tfidf-tree": "runs of one to three nodes in depth-first order, log tf-idf; cosine",
    "tree-pairs": "parents with children and neighbouring siblings, log tf-idf; cosine",
    "fasttext": "mean of fastText's vectors of the nodes, learned on serialised trees; cosine",
    "transformer": "a transformer over a tree's nodes, learned as the graph network is; cosine",
    "bitmap-cnn": "a convolutional network over pictures of the formulas; cosine",
    "approach0": "approach0, a structural search engine for LaTeX (pya0; Linux on x86-64)",
}


def make_systems(names: Sequence[str], context: ExperimentContext | None = None) -> list[System]:
    """Systems by their names, or by the folder of a network of one's own; none has learned anything yet.

    Args:
        names: Some of `NAMES`, or folders that hold a model, also as `model/`, as runs of `eqkin train` do.
        context: Decides how much they learn, on which device, and whom they tell.

    Raises:
        BadInput: There is no such system, one is named twice, or what it needs is not installed.
    """
    from eqkin.evaluation.experiments.context import ExperimentContext
    from eqkin.evaluation.store import ResultCache

    unknown = [
        name
        for name in names
        if name not in SYSTEM_DESCRIPTIONS and not (_find_model(name) / DESCRIPTION_FILE).is_file()
    ]
    if unknown:
        raise BadInput(
            f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEM_DESCRIPTIONS)}, and folders that hold a model"
        )
    context = context or ExperimentContext(ResultCache(Path("evaluation")))
    made = [
        _MAKERS[name](context) if name in SYSTEM_DESCRIPTIONS else _make_own_network(_find_model(name), context)
        for name in names
    ]
    for at, system in enumerate(made):
        if system.name in {other.name for other in made[:at]}:
            raise BadInput(f"two systems are called {system.name}; folders of networks need names of their own")
    return made


def _find_model(name: str) -> Path:
    """A folder, or the one in it where `eqkin train` put the network."""
    inside = Path(name) / _MODEL_SUBFOLDER
    return inside if (inside / DESCRIPTION_FILE).is_file() else Path(name)


def _make_own_network(folder: Path, context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.networks import NetworkSystem

    place = folder.resolve()
    own = place.parent.name if place.name == _MODEL_SUBFOLDER else place.name  # all runs call it the same
    name = re.sub(r"[^A-Za-z0-9]+", "-", own).strip("-") or "network"
    return NetworkSystem(name, name, folder, device=context.device, progress=_make_progress(name, context))


def _make_engine(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.engine import EngineSystem

    return EngineSystem(device=context.device, progress=_make_progress(EngineSystem.title, context))


def _make_vector(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.engine import TUNED_ON
    from eqkin.evaluation.systems.networks import NetworkSystem

    title = "eqkin, vector alone"
    system = NetworkSystem(
        "eqkin-vector", title, "eqkin", device=context.device, progress=_make_progress(title, context)
    )
    system.tuned_on = TUNED_ON
    return system


def _make_paper(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.networks import NetworkSystem

    title = "Graph network (bundled)"
    return NetworkSystem("paper", title, "paper", device=context.device, progress=_make_progress(title, context))


def _make_untrained(context: ExperimentContext) -> System:
    from eqkin.encoder.architecture import Architecture
    from eqkin.evaluation.systems.networks import UntrainedNetwork

    shape = replace(Architecture(), width=context.scale.width)
    return UntrainedNetwork(shape, device=context.device, progress=_make_progress(UntrainedNetwork.title, context))


def _make_fasttext(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.fasttext import FastText, FastTextSettings

    return FastText(replace(FastTextSettings(), epochs=context.scale.fasttext_epochs))


def _make_transformer(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.terms import import_optional

    import_optional("torch")
    from eqkin.evaluation.systems.transformer import Transformer, TransformerTraining
    from eqkin.evaluation.systems.transformer_network import TransformerShape

    shape = replace(TransformerShape(), layers=context.scale.transformer_layers)
    lesson = replace(TransformerTraining(), triplets=context.scale.transformer_triplets)
    return Transformer(shape, lesson, device=context.device, progress=_make_step_progress(Transformer.title, context))


def _make_bitmap_cnn(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.terms import import_optional

    import_optional("torch")
    from eqkin.evaluation.systems.bitmap_cnn import BitmapCNN, BitmapTraining

    lesson = replace(BitmapTraining(), bitmaps=context.scale.bitmaps, triplets=context.scale.bitmap_triplets)
    return BitmapCNN(lesson, device=context.device, gallery=context.cache.folder / "bitmaps", tell=context.log)


def _make_approach0(context: ExperimentContext) -> System:
    from eqkin.evaluation.systems.approach0 import Approach0

    return Approach0(progress=_make_progress(Approach0.title, context))


def _make_factory(module: str, name: str) -> Callable[[ExperimentContext], System]:
    """Makes a system that a context decides nothing about."""

    def make(context: ExperimentContext) -> System:
        made: System = getattr(import_module(f"eqkin.evaluation.systems.{module}"), name)()
        return made

    return make


_MAKERS: dict[str, Callable[[ExperimentContext], System]] = {
    "eqkin": _make_engine,
    "eqkin-vector": _make_vector,
    "paper": _make_paper,
    "untrained": _make_untrained,
    "bag-of-words": _make_factory("bag_of_words", "BagOfWords"),
    "log-bag-of-words": _make_factory("bag_of_words", "LogBagOfWords"),
    "tfidf-latex": _make_factory("tfidf", "TfIdfLatex"),
    "tfidf-tree": _make_factory("tfidf", "TfIdfTree"),
    "tree-pairs": _make_factory("tree_pairs", "TreePairs"),
    "fasttext": _make_fasttext,
    "transformer": _make_transformer,
    "bitmap-cnn": _make_bitmap_cnn,
    "approach0": _make_approach0,
}


def _make_progress(title: str, context: ExperimentContext) -> Callable[[int], None]:
    """Tells each time another 10,000 formulas are done."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if done < told:
            told = 0
        if done - told >= 10_000:
            told = done
            context.log(f"{title}: {done:,} formulas")

    return tell


def _make_step_progress(title: str, context: ExperimentContext) -> Callable[[int, int, float], None]:
    return lambda step, steps, loss: context.log(f"{title}: step {step:,} of {steps:,}, loss {loss:.4f}")
