"""What can be compared, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import System
from eqkin.network.model_files import DESCRIPTION

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import Context

_IN_RUN = "model"  # where a run keeps its network
NAMES = {
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


def systems(names: Sequence[str], context: Context | None = None) -> list[System]:
    """Systems by their names, or by the folder of a network of one's own; none has learned anything yet.

    Args:
        names: Some of `NAMES`, or folders that hold a model, also as `model/`, as runs of `eqkin train` do.
        context: Decides how much they learn, on which device, and whom they tell.

    Raises:
        BadInput: There is no such system, one is named twice, or what it needs is not installed.
    """
    from eqkin.evaluation.experiments.context import Context
    from eqkin.evaluation.store import Store

    unknown = [name for name in names if name not in NAMES and not (_model(name) / DESCRIPTION).is_file()]
    if unknown:
        raise BadInput(
            f"there is no system {unknown[0]!r}; there are {', '.join(NAMES)}, and folders that hold a model"
        )
    context = context or Context(Store(Path("evaluation")))
    made = [_MAKERS[name](context) if name in NAMES else _own_network(_model(name), context) for name in names]
    for at, system in enumerate(made):
        if system.name in {other.name for other in made[:at]}:
            raise BadInput(f"two systems are called {system.name}; folders of networks need names of their own")
    return made


def _model(name: str) -> Path:
    """A folder, or the one in it where `eqkin train` put the network."""
    inside = Path(name) / _IN_RUN
    return inside if (inside / DESCRIPTION).is_file() else Path(name)


def _own_network(folder: Path, context: Context) -> System:
    from eqkin.evaluation.systems.networks import Network

    place = folder.resolve()
    own = place.parent.name if place.name == _IN_RUN else place.name  # all runs call it the same
    name = re.sub(r"[^A-Za-z0-9]+", "-", own).strip("-") or "network"
    return Network(name, name, folder, device=context.device, progress=_progress(name, context))


def _engine(context: Context) -> System:
    from eqkin.evaluation.systems.engine import Engine

    return Engine(device=context.device, progress=_progress(Engine.title, context))


def _vector(context: Context) -> System:
    from eqkin.evaluation.systems.engine import TUNED_ON
    from eqkin.evaluation.systems.networks import Network

    title = "eqkin, vector alone"
    system = Network("eqkin-vector", title, "eqkin", device=context.device, progress=_progress(title, context))
    system.tuned_on = TUNED_ON
    return system


def _paper(context: Context) -> System:
    from eqkin.evaluation.systems.networks import Network

    title = "Graph network (bundled)"
    return Network("paper", title, "paper", device=context.device, progress=_progress(title, context))


def _untrained(context: Context) -> System:
    from eqkin.evaluation.systems.networks import Untrained
    from eqkin.network.architecture import Architecture

    shape = replace(Architecture(), width=context.scale.width)
    return Untrained(shape, device=context.device, progress=_progress(Untrained.title, context))


def _fasttext(context: Context) -> System:
    from eqkin.evaluation.systems.fasttext import FastText, Settings

    return FastText(replace(Settings(), epochs=context.scale.fasttext_epochs))


def _transformer(context: Context) -> System:
    from eqkin.evaluation.systems.terms import installed

    installed("torch")
    from eqkin.evaluation.systems.transformer import Lesson, Transformer
    from eqkin.evaluation.systems.transformer_network import Shape

    shape = replace(Shape(), layers=context.scale.transformer_layers)
    lesson = replace(Lesson(), triplets=context.scale.transformer_triplets)
    return Transformer(shape, lesson, device=context.device, progress=_steps(Transformer.title, context))


def _bitmap_cnn(context: Context) -> System:
    from eqkin.evaluation.systems.terms import installed

    installed("torch")
    from eqkin.evaluation.systems.bitmap_cnn import BitmapCNN, Lesson

    lesson = replace(Lesson(), bitmaps=context.scale.bitmaps, triplets=context.scale.bitmap_triplets)
    return BitmapCNN(lesson, device=context.device, gallery=context.store.folder / "bitmaps", tell=context.tell)


def _approach0(context: Context) -> System:
    from eqkin.evaluation.systems.approach0 import Approach0

    return Approach0(progress=_progress(Approach0.title, context))


def _plain(module: str, name: str) -> Callable[[Context], System]:
    """Makes a system that a context decides nothing about."""

    def make(context: Context) -> System:
        made: System = getattr(import_module(f"eqkin.evaluation.systems.{module}"), name)()
        return made

    return make


_MAKERS: dict[str, Callable[[Context], System]] = {
    "eqkin": _engine,
    "eqkin-vector": _vector,
    "paper": _paper,
    "untrained": _untrained,
    "bag-of-words": _plain("bag_of_words", "BagOfWords"),
    "log-bag-of-words": _plain("bag_of_words", "LogBagOfWords"),
    "tfidf-latex": _plain("tfidf", "TfIdfLatex"),
    "tfidf-tree": _plain("tfidf", "TfIdfTree"),
    "tree-pairs": _plain("tree_pairs", "TreePairs"),
    "fasttext": _fasttext,
    "transformer": _transformer,
    "bitmap-cnn": _bitmap_cnn,
    "approach0": _approach0,
}


def _progress(title: str, context: Context) -> Callable[[int], None]:
    """Tells each time another 10,000 formulas are done."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if done < told:
            told = 0
        if done - told >= 10_000:
            told = done
            context.tell(f"{title}: {done:,} formulas")

    return tell


def _steps(title: str, context: Context) -> Callable[[int, int, float], None]:
    return lambda step, steps, loss: context.tell(f"{title}: step {step:,} of {steps:,}, loss {loss:.4f}")
