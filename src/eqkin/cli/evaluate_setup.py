"""What the commands of `eqkin evaluate` share: options, an experiment's surroundings, systems that have learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.cli.train import load_corpus
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import ExperimentContext
    from eqkin.evaluation.systems.base import System
    from eqkin.training.data import Corpus

Folder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where what is learned and measured is kept.")]
Names = Annotated[
    str,
    typer.Option("--systems", "-s", metavar="NAMES", help="Which to compare, with commas: `eqkin evaluate systems`."),
]
LearnFrom = Annotated[
    Path | None, typer.Option("--corpus", metavar="FILE", help="What systems learn from, instead of the library.")
]
JudgedSets = Annotated[list[Path] | None, typer.Option("--judged", metavar="DIR", help="A judged set; repeatable.")]
LabelledSets = Annotated[
    list[Path] | None, typer.Option("--labelled", metavar="FILE", help="A labelled set; repeatable.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
Small = Annotated[bool, typer.Option("--small", help="A quick look: little is learned, the figures mean nothing.")]

DEFAULT_FOLDER = Path("evaluation")
OWN_NETWORK_HELP = "a network of your own: the folder that `eqkin train` or `eqkin finetune` wrote"
LARGE_SCALE_SYSTEMS = (
    "eqkin,eqkin-vector,paper,untrained,bag-of-words,log-bag-of-words,tfidf-tree,tfidf-latex,tree-pairs,fasttext,"
    "transformer"
)
ALL_SYSTEMS = f"{LARGE_SCALE_SYSTEMS},bitmap-cnn,approach0"


def make_context(out: Path, device: str, small: bool, tell: Callable[[str], None]) -> ExperimentContext:
    """The surroundings of an experiment."""
    from eqkin.evaluation.experiments.context import ExperimentContext
    from eqkin.evaluation.scale import FULL_SCALE, SMALL_SCALE
    from eqkin.evaluation.store import ResultCache

    return ExperimentContext(ResultCache(out), SMALL_SCALE if small else FULL_SCALE, device, tell)


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Raise `BadInput` where two things would stand in the tables under one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput(f"{count} {what} are called {name}, as their files are: rename one")


def parse_systems(names: str, context: ExperimentContext) -> list[System]:
    """Systems by their names, given with commas."""
    from eqkin.evaluation.systems.registry import make_systems

    return make_systems([name.strip() for name in names.split(",") if name.strip()], context)


def parse_and_fit(names: str, context: ExperimentContext, corpus: Path | None, library: Path) -> Sequence[System]:
    """Systems that have learned what they need."""
    chosen = parse_systems(names, context)
    fit_systems(chosen, context, corpus, library)
    return chosen


def fit_systems(chosen: Sequence[System], context: ExperimentContext, corpus: Path | None, library: Path) -> None:
    """Let systems learn what they need from the first half of a corpus, which is read only if one has to."""
    from eqkin.evaluation.experiments.context import HELD_OUT_FRACTION, SPLIT_SEED, drop_text

    half: Corpus | None = None
    for system in chosen:
        if system.settings and half is None:
            try:
                half = drop_text(load_corpus(corpus, library)).split(HELD_OUT_FRACTION, SPLIT_SEED)[0]
            except BadInput as error:
                raise BadInput(f"{system.title} has to learn, and cannot: {error}") from error
        if half is not None:
            context.fit(system, half)
        else:
            context.attach_cache(system)
