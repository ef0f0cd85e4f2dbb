"""Systems by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eqkin.encoder.architecture import Architecture
from eqkin.encoder.model import DESCRIPTION_FILE
from eqkin.errors import BadInput
from eqkin.evaluation.context import ExperimentContext, ResultCache
from eqkin.evaluation.formulas import make_name
from eqkin.evaluation.systems.approach0 import Approach0
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.fasttext import FastText, FastTextSettings
from eqkin.evaluation.systems.networks import EngineSystem, NetworkSystem, UntrainedNetwork
from eqkin.evaluation.systems.sparse import BagOfWords, LogBagOfWords, OperatorTfIdf, TfIdfLatex, TfIdfTree, TreePairs

_MODEL_SUBFOLDER = "model"  # where `eqkin train` writes the network of a run


@dataclass(frozen=True)
class SystemEntry:
    """A system that can be named."""

    description: str
    make: Callable[[ExperimentContext], System]


SYSTEMS: Mapping[str, SystemEntry] = {
    "eqkin": SystemEntry(
        "eqkin's search engine: common terms of both kinds of trees, and vectors",
        lambda context: EngineSystem(device=context.device),
    ),
    "eqkin-vector": SystemEntry(
        "the vector of eqkin's own recipe alone; cosine", lambda context: EngineSystem(device=context.device).vector
    ),
    "paper": SystemEntry(
        "the bundled graph network, trained by the paper's recipe; cosine",
        lambda context: NetworkSystem("paper", "Graph network (bundled)", "paper", device=context.device),
    ),
    "untrained": SystemEntry(
        "the same network with random weights",
        lambda context: UntrainedNetwork(replace(Architecture(), width=context.scale.width), device=context.device),
    ),
    "bag-of-words": SystemEntry(
        "the paper's baseline: sums of the nodes' 256 features; cosine", lambda context: BagOfWords()
    ),
    "log-bag-of-words": SystemEntry("labels of all nodes, log tf-idf; cosine", lambda context: LogBagOfWords()),
    "tfidf-latex": SystemEntry("1- to 3-grams of LaTeX tokens, log tf-idf; cosine", lambda context: TfIdfLatex()),
    "tfidf-tree": SystemEntry(
        "1- to 3-grams of nodes in depth-first order, log tf-idf; cosine", lambda context: TfIdfTree()
    ),
    "tree-pairs": SystemEntry(
        "pairs of parent and child and of siblings, log tf-idf; cosine", lambda context: TreePairs()
    ),
    "operator-terms": SystemEntry(
        "paths and subtrees of operator trees, the same for equivalent notations, log tf-idf; cosine",
        lambda context: OperatorTfIdf(),
    ),
    "fasttext": SystemEntry(
        "mean of fastText vectors of the nodes, trained on serialised trees; cosine",
        lambda context: FastText(replace(FastTextSettings(), epochs=context.scale.fasttext_epochs)),
    ),
    "approach0": SystemEntry(
        "approach0, a structural search engine for LaTeX (pya0; Linux on x86-64)",
        lambda context: Approach0(),
    ),
}


def make_systems(names: Sequence[str], context: ExperimentContext | None = None) -> list[System]:
    """Make systems by their names, or by the folder of a network; none is fitted yet.

    Args:
        names: Some of `SYSTEMS`, or folders that hold a model, also as `model/`, as runs of `eqkin train` do.
        context: Scale, device and log of the systems.

    Raises:
        BadInput: A name is unknown or occurs twice, or what a system needs is not installed.
    """
    context = context or ExperimentContext(ResultCache(Path("evaluation")))
    systems: list[System] = []
    for name in names:
        if name in SYSTEMS:
            systems.append(SYSTEMS[name].make(context))
            continue
        folder = Path(name)
        if (folder / _MODEL_SUBFOLDER / DESCRIPTION_FILE).is_file():
            folder /= _MODEL_SUBFOLDER
        if not (folder / DESCRIPTION_FILE).is_file():
            raise BadInput(f"unknown system {name!r}; choose from {', '.join(SYSTEMS)}, or a folder that holds a model")
        path = folder.resolve()
        base = path.parent.name if path.name == _MODEL_SUBFOLDER else path.name  # all runs have a folder `model`
        title = make_name(base)
        systems.append(NetworkSystem(title, title, folder, device=context.device))
    for index, system in enumerate(systems):
        if system.name in {other.name for other in systems[:index]}:
            raise BadInput(f"two systems are called {system.name}: rename the folder of one")
    return systems
