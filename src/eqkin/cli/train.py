"""`eqkin train` and `eqkin finetune`: train a network on a library."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eqkin
from eqkin.cli.console import emit, warn
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.cli.progress import ProgressDisplay, open_progress
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.learning.config import Recipe
    from eqkin.learning.data import Corpus
    from eqkin.learning.run import TrainingResult
    from eqkin.learning.trainer import TrainingProgress

CorpusFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CORPUS]", help="A file made by `eqkin export --forest`; by default the library."),
]


def train(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    recipe: Annotated[str, typer.Option(help="Losses and settings: eqkin, or paper.")] = "eqkin",
    output: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the run.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in that folder.")] = False,
    triplets: Annotated[
        int | None, typer.Option(min=1, help="Triplets to train on in total.", show_default="the recipe's")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Triplets per step.", show_default="the recipe's")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", show_default="the recipe's")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the recipe; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    fast: Annotated[
        bool, typer.Option("--fast/--plain", help="On a GPU, compile the steps and record CUDA graphs.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Train a network that maps related equations to nearby vectors. It needs no labels.

    The recipe `eqkin` has three objectives: the structure of equations, which equations occur together, and the words
    around them. Most pairs are notations of one equation: eqkin rewrites equations such that they mean the same or
    nearly the same. `paper` is the recipe of the paper that eqkin is based on.

    A part of the works is held out; the share of their triples that the network ranks correctly is reported during and
    after training, with its confidence interval. Everything is kept in the folder of the run: `model/` is what
    `eqkin.Encoder.load` and `eqkin index --model` take, `metrics.jsonl` shows the progress. Stop it at
    any time (Ctrl-C or SIGTERM): its state is saved, and `--resume` continues exactly where it stopped.

    Settings of `--set`: loss (kin, histogram, triplet), contexts (section,paper,citation), masking, renamed,
    transpositions, balance, learning_rate, warm_up, schedule (linear, cosine), weight_decay, averaged, temperature,
    structure_weight, context_weight, words_weight, notations, rewritten, notations_renamed, notations_paraphrased,
    notations_share, names_share, held_out, split_seed, kind (mix, sum), width, layers, normalised, dimensions.

    **Examples**

        eqkin train --out runs/mine

        eqkin train corpus.zst --triplets 20000000 --set words_weight=0 -o runs/no-words

        eqkin train --recipe paper --set loss=triplet --set masking=0 -o runs/ablation

        eqkin train --resume -o runs/mine
    """
    require_torch()
    from eqkin.learning.run import train as train_network

    named = {"triplets": triplets, "batch": batch, "seed": seed}
    changes = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set takes NAME=VALUE, not {setting!r}")
        changes[name.strip()] = value.strip()
    changes |= {name: str(value) for name, value in named.items() if value is not None}
    chosen = _load_recipe(recipe, output if resume else None).override(changes)
    loaded = load_corpus(corpus, library)
    if loaded.words is None and chosen.loss == "kin" and chosen.words_weight:
        warn(f"{corpus} has no words around its equations, so that objective is skipped: export it again")
    with _StopOnSignal() as stop, _show_progress(quiet=as_json) as show:
        outcome = train_network(
            loaded, chosen, output, device=device, fast=fast, resume=resume, on_progress=show, should_stop=stop
        )
    _print_outcome(outcome, output, as_json)
    if not outcome.finished:
        raise typer.Exit(128 + stop.signal)


def _load_recipe(name: str, resumed: Path | None) -> Recipe:
    """Return the recipe of the run to resume, if one is saved there, or the one of that name."""
    from eqkin.learning.checkpoint import load_checkpoint
    from eqkin.learning.config import Recipe, get_recipe

    saved = load_checkpoint(resumed) if resumed else None
    if saved is not None:
        return Recipe.from_dict(saved.facts["recipe"])
    if resumed:
        warn(f"nothing is saved in {resumed}: starting from the beginning")
    return get_recipe(name)


class _StopOnSignal:
    """Within the context, a signal asks the run to stop; a second one interrupts it at once."""

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> _StopOnSignal:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def __call__(self) -> bool:
        return bool(self.signal)


def require_torch() -> None:
    """Raise `BadInput` if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput("training needs torch: pip install 'eqkin[train]'")


def load_corpus(file: Path | None, library: Path) -> Corpus:
    """Load the corpus to train on: a packed file, or a library."""
    from eqkin.learning.data import Corpus

    if file is not None:
        return Corpus.load(file)
    with eqkin.Library.open(library) as opened:
        return Corpus.from_library(opened)


@contextmanager
def _show_progress(*, quiet: bool) -> Iterator[Callable[[TrainingProgress], None]]:
    """Show the progress: on a terminal as a bar, elsewhere as a line at every twentieth of the run."""
    next_line = 0
    with ProgressDisplay("preparing", quiet=quiet) as display:

        def show(progress: TrainingProgress) -> None:
            nonlocal next_line
            text = describe_progress(progress)
            display.update(progress.step, progress.steps, text=text)
            if not quiet and not display.is_shown and progress.step >= next_line:
                typer.echo(f"{progress.triplets:,} triplets: {text}", err=True)
                next_line = progress.step + max(progress.steps // 20, 1)

        yield show


def describe_progress(progress: TrainingProgress) -> str:
    """Describe the state of a run in one line."""
    losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
    ranking = f", held-out ranking {str(progress.ranking).partition(' on ')[0]}" if progress.ranking else ""
    return f"{losses}, {progress.triplets_per_second:,.0f} triplets/s{ranking}"


def _print_outcome(outcome: TrainingResult, folder: Path, as_json: bool) -> None:
    score = outcome.ranking
    result: dict[str, Any] = {"finished": outcome.finished, "step": outcome.step}
    result |= {"model": str(outcome.model) if outcome.model else None, "ranking": None}
    if score:
        interval = {"score": score.score, "low": score.low, "high": score.high}
        result["ranking"] = interval | {"triples": score.triples, "papers": score.papers}

    def render() -> None:
        if outcome.finished:
            typer.echo(f"held-out ranking {score}")
            typer.echo(f"the network is in {outcome.model}")
        else:
            command = f"`eqkin train --resume -o {folder}`"
            typer.echo(f"stopped at step {outcome.step:,}; {command} continues (name the same library or file)")

    emit(result, as_json, render)


def finetune(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the network to.")] = Path(
        "finetuned"
    ),
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Network to start from.", show_default="the bundled one")
    ] = None,
    pairs: Annotated[str, typer.Option(help="equalities, inequalities, or relations: both and similar signs.")] = (
        "relations"
    ),
    held_out: Annotated[float, typer.Option(help="Share of test pairs, split by work.")] = 0.2,
    batch: Annotated[int, typer.Option(min=2, help="Pairs per step; all other pairs of a step are negatives.")] = 1_024,
    epochs: Annotated[int, typer.Option(min=1, help="Maximum; the best number on validation pairs is used.")] = 20,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a network to find the other side of an equality, on the equalities of a library (InfoNCE).

    Equations are split at their relation signs into sides of similar size. Most pairs are trained on, some choose
    learning rate and epochs, the rest is for testing: how often the other side is found, before and after. The folder
    works with `eqkin rank --model`, `eqkin evaluate` and `eqkin.Encoder.load`.

    **Examples**

        eqkin finetune -l corpus --out finetuned

        eqkin finetune corpus.zst --pairs equalities --batch 4096 --device cuda
    """
    require_torch()
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, but the network needs a folder: choose another name")
    from eqkin.learning.finetuning import FinetuningConfig, finetune_model

    with open_progress(as_json) as log:
        found = finetune_model(
            load_corpus(corpus, library), out, model=model, pairs=pairs, held_out=held_out,
            settings=FinetuningConfig(batch=batch, epochs=epochs), device=device, log=log,
        )  # fmt: skip

    def render() -> None:
        typer.echo(f"finetuned on {found.learned:,} pairs, tested on {found.tested:,} others:")
        for key, before in found.before.items():
            typer.echo(f"  R@{key[1:]:4} {before:.3f} before, {found.after[key]:.3f} after")
        typer.echo(f"the network is in {found.model}")

    emit(asdict(found) | {"model": str(found.model)}, as_json, render)
