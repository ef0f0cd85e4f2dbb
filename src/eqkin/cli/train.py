"""`eqkin train` and `eqkin finetune`: train a network on a library."""

from __future__ import annotations

import importlib.util
import signal
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
    from eqkin.learning.distributed import ProcessGroup
    from eqkin.learning.run import TrainingResult, TrainingRun
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
    batch: Annotated[
        int | None, typer.Option(min=1, help="Triplets per step, over all GPUs.", show_default="the recipe's")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", show_default="the recipe's")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the recipe; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one, for each process.")] = "auto",
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
    `eqkin.Encoder.load` and `eqkin index --model` take, `metrics.jsonl` and `curves.png` show the progress. Stop it at
    any time (Ctrl-C or SIGTERM): its state is saved, and `--resume` continues exactly where it stopped.

    To train on several GPUs, start it with torchrun, which comes with torch: one process per GPU. The batch is divided
    among them; the result is the same as on one GPU, up to rounding, and a run can be resumed with another number of
    GPUs. If a process dies, all end: start again with `--resume`, or use it from the start together with torchrun's
    `--max-restarts`. On several machines, run the same command on each; all need the corpus, and a shared disk for the
    folder of the run.

    Settings of `--set`: loss (kin, histogram, triplet), contexts (section,paper,citation), masking, renamed,
    transpositions, balance, learning_rate, warm_up, schedule (linear, cosine), weight_decay, averaged, temperature,
    structure_weight, context_weight, words_weight, notations, rewritten, notations_renamed, notations_paraphrased,
    notations_share, names_share, held_out, split_seed, kind (mix, sum), width, layers, normalised, dimensions.

    **Examples**

        eqkin train --out runs/mine

        eqkin train corpus.zst --triplets 20000000 --set words_weight=0 -o runs/no-words

        eqkin train --recipe paper --set loss=triplet --set masking=0 -o runs/ablation

        eqkin train --resume -o runs/mine

        torchrun --standalone --nproc-per-node 4 --no-python eqkin train --batch 4096 -o runs/mine

        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node1:29400 -m eqkin train --resume
    """
    require_torch()
    from eqkin.learning.config import choose_device
    from eqkin.learning.distributed import join_process_group
    from eqkin.learning.run import TrainingRun

    named = {"triplets": triplets, "batch": batch, "seed": seed}
    changes = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set takes NAME=VALUE, not {setting!r}")
        changes[name.strip()] = value.strip()
    changes |= {name: str(value) for name, value in named.items() if value is not None}
    with join_process_group(choose_device(device)) as group:
        chosen = _load_recipe(recipe, output if resume else None, group).override(changes)
        loaded = load_corpus(corpus, library)
        if group.is_first and loaded.words is None and chosen.loss == "kin" and chosen.words_weight:
            warn(f"{corpus} has no words around its equations, so that objective is skipped: export it again")
        with _StopOnSignal(patient=not group.is_single) as stop:
            run = TrainingRun(loaded, chosen, output, device, fast, should_stop=stop, group=group)
            outcome = _train_with_progress(run, resume=resume, quiet=as_json or not group.is_first)
        if group.is_first:
            _print_outcome(outcome, output, as_json, drawn=_draw_curves(output), together=not group.is_single)
        stopped_by = group.find_max(stop.signal)
    if not outcome.finished:
        raise typer.Exit(128 + stopped_by)


def _load_recipe(name: str, resumed: Path | None, group: ProcessGroup) -> Recipe:
    """Return the recipe of the run to resume, if one is saved there, or the one of that name."""
    from eqkin.learning.checkpoint import load_checkpoint
    from eqkin.learning.config import Recipe, get_recipe

    def load_saved() -> dict[str, Any] | None:
        saved = load_checkpoint(resumed) if resumed else None
        if resumed and saved is None:
            warn(f"nothing is saved in {resumed}: starting from the beginning")
        return saved.facts["recipe"] if saved else None

    saved_recipe = group.broadcast(load_saved)
    return Recipe.from_dict(saved_recipe) if saved_recipe else get_recipe(name)


class _StopOnSignal:
    """Within the context, a signal asks the run to stop; a second one interrupts it at once, unless `patient`.

    Under torchrun be patient: it forwards a terminal's signals, and kills processes after half a minute itself.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.signal, self._patient = 0, patient

    def __enter__(self) -> _StopOnSignal:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal and not self._patient:
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


def _train_with_progress(run: TrainingRun, *, resume: bool, quiet: bool) -> TrainingResult:
    """Train and show the progress: on a terminal as a bar, elsewhere as a line at every twentieth of the run."""
    text, next_line = "preparing", 0
    with ProgressDisplay(lambda: text, quiet=quiet) as display:

        def show(progress: TrainingProgress) -> None:
            nonlocal text, next_line
            text = describe_progress(progress)
            display.update(progress.step, progress.steps)
            if not quiet and not display.is_shown and progress.step >= next_line:
                typer.echo(f"{progress.triplets:,} triplets: {text}", err=True)
                next_line = progress.step + max(progress.steps // 20, 1)

        run.on_progress = show
        return run.train(resume=resume)


def describe_progress(progress: TrainingProgress) -> str:
    """Describe the state of a run in one line."""
    losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
    ranking = f", held-out ranking {str(progress.ranking).partition(' on ')[0]}" if progress.ranking else ""
    return f"{losses}, {progress.triplets_per_second:,.0f} triplets/s{ranking}"


def _draw_curves(folder: Path) -> bool:
    from eqkin.learning.checkpoint import METRICS_FILE, read_metrics
    from eqkin.learning.curves import draw_training_curves

    try:
        draw_training_curves(read_metrics(folder / METRICS_FILE), folder)
    except BadInput as error:
        warn(f"no curves were drawn: {error}")
        return False
    return True


def _print_outcome(outcome: TrainingResult, folder: Path, as_json: bool, *, drawn: bool, together: bool) -> None:
    score = outcome.ranking
    result: dict[str, Any] = {"finished": outcome.finished, "step": outcome.step}
    result |= {"model": str(outcome.model) if outcome.model else None, "ranking": None}
    if score:
        interval = {"score": score.score, "low": score.low, "high": score.high}
        result["ranking"] = interval | {"triples": score.triples, "papers": score.papers}

    def render() -> None:
        if outcome.finished:
            typer.echo(f"held-out ranking {score}")
            curves = f", the curves in {folder / 'curves.png'}" if drawn else ""
            typer.echo(f"the network is in {outcome.model}{curves}")
        else:
            command = f"`{'torchrun ... ' if together else ''}eqkin train --resume -o {folder}`"
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
    from eqkin.learning.distributed import require_single_process

    require_single_process("finetuning")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, but the network needs a folder: choose another name")
    from eqkin.learning.equalities import finetune_model
    from eqkin.learning.finetuning import FinetuningConfig

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

    emit(asdict(found) | {"model": str(found.model), "choice": found.choice.to_dict()}, as_json, render)
