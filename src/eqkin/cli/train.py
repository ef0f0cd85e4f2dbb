"""`eqkin train`: learn a network from a library."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from eqkin.api import Library
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.training.corpus import Corpus
    from eqkin.training.ranks import ProcessGroup
    from eqkin.training.recipes import Recipe
    from eqkin.training.run import TrainingProgress as RunProgress
    from eqkin.training.run import TrainingResult, TrainingRun


CorpusFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CORPUS]", help="A file of `eqkin export --forest`; without one, the library."),
]


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(train)


def train(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    recipe: Annotated[str, typer.Option(help="What to learn, and how: eqkin, or paper.")] = "eqkin",
    output: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The run's folder.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    triplets: Annotated[
        int | None, typer.Option(min=1, help="How many to learn from in all.", show_default="the recipe's")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Triplets a step, of all GPUs together.", show_default="the recipe's")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.", show_default="the recipe's")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value for a setting of the recipe; repeatable."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one, for each process.")
    ] = "auto",
    fast: Annotated[bool, typer.Option("--fast/--plain", help="On a GPU, compile and record the steps.")] = True,
    as_json: AsJson = False,
) -> None:
    """Learn a network that places related equations near each other; no labels are needed.

    The recipe `eqkin` learns from three teachers: what equations are made of, which ones stand together, and the words
    around them. `paper` is the recipe of the paper that eqkin started from.

    A part of the works is held out; the share of their triples that the network ranks right is reported on the way and
    at the end, with its interval. Everything is kept in the run's folder: `model/` is what `eqkin.Encoder.load` takes,
    `metrics.jsonl` and `curves.png` show how it went. Stop it whenever you like (Ctrl-C, or a signal to end): its state
    is saved, and `--resume` goes on as if nothing had happened.

    Several GPUs learn together when torchrun, which comes with torch, starts a process for each. The batch is dealt out
    to them, and they learn what one GPU would, up to rounding; with how many a run is resumed makes no difference. If
    a process dies all of them end: start again with `--resume`. Given from the start, it lets torchrun's
    `--max-restarts` do so by itself. Run the same command on every machine; all of them need the corpus, and a disk
    they share for the run's folder.

    Settings for `--set`: loss (kin, histogram, triplet), contexts (section,paper,citation), masking, renamed,
    transpositions, balance, learning_rate, warm_up, schedule (linear, cosine), weight_decay, averaged, temperature,
    structure_weight, context_weight, words_weight, held_out, split_seed, kind (mix, sum), width, layers, normalised,
    dimensions.

    **Examples**

        eqkin train --out runs/mine

        eqkin train corpus.zst --triplets 10000000 --set words_weight=0 -o runs/no-words

        eqkin train --recipe paper --set loss=triplet --set masking=0 -o runs/ablation

        eqkin train --resume -o runs/mine

        torchrun --standalone --nproc-per-node 4 --no-python eqkin train --batch 4096 -o runs/mine

        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node1:29400 -m eqkin train --resume
    """
    require_torch()
    from eqkin.training.distributed import join_process_group
    from eqkin.training.run import TrainingRun, choose_device

    named = {"triplets": triplets, "batch": batch, "seed": seed}
    changes = dict(_parse_setting(setting) for setting in settings or [])
    changes |= {name: str(value) for name, value in named.items() if value is not None}
    with join_process_group(choose_device(device)) as ranks:
        chosen = _load_recipe(recipe, output if resume else None, ranks).override(changes)
        loaded = load_corpus(corpus, library)
        if ranks.is_first and loaded.words is None and chosen.loss == "kin" and chosen.words_weight:
            told = f"{corpus} has no words around its equations, nothing is learned from them: export it again"
            typer.secho(told, err=True, fg="yellow")
        with _StopOnSignal(patient=not ranks.is_single) as stop:
            run = TrainingRun(loaded, chosen, output, device, fast, should_stop=stop, ranks=ranks)
            outcome = _train_with_progress(run, resume=resume, quiet=as_json or not ranks.is_first)
        if ranks.is_first:
            _print_outcome(outcome, output, as_json, drawn=_draw_curves(output), together=not ranks.is_single)
        stopped_by = ranks.find_max(stop.signal)
    if not outcome.finished:
        raise typer.Exit(128 + stopped_by)


def _load_recipe(name: str, resumed: Path | None, ranks: ProcessGroup) -> Recipe:
    """The recipe of the run to resume, if one is saved there, or the one of that name."""
    from eqkin.training.checkpoint import load_checkpoint
    from eqkin.training.recipes import Recipe, get_recipe

    def kept() -> bytes:
        saved = load_checkpoint(resumed) if resumed else None
        if resumed and saved is None:
            typer.secho(f"nothing is saved in {resumed}: starting from the beginning", err=True, fg="yellow")
        return orjson.dumps(saved.facts["recipe"]) if saved else b""

    found = ranks.broadcast(kept)
    return Recipe.from_dict(orjson.loads(found)) if found else get_recipe(name)


class _StopOnSignal:
    """While the context lasts, asks the run to stop when a signal says so; a second signal does not wait.

    Unless `patient`: torchrun passes on what a terminal sends to all processes anyway, and ends them after half a
    minute.
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
    """Raise `BadInput` where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput("learning needs torch: pip install 'eqkin[train]'")


def _parse_setting(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise BadInput(f"--set takes NAME=VALUE, not {setting!r}")
    return name.strip(), value.strip()


def load_corpus(file: Path | None, library: Path) -> Corpus:
    """What to learn from: a packed file, or a library."""
    from eqkin.training.corpus import Corpus

    if file is not None:
        return Corpus.load(file)
    with Library.open(library, create=False) as opened:
        return Corpus.from_library(opened)


def _train_with_progress(run: TrainingRun, *, resume: bool, quiet: bool) -> TrainingResult:
    console = Console(stderr=True)
    shown = not quiet and console.is_terminal
    plain = _ProgressLines(console) if not quiet and not shown else None
    with make_progress_bar(console, shown=shown) as bar:
        task = bar.add_task("preparing ...", total=run.recipe.steps)

        def show(progress: RunProgress) -> None:
            bar.update(task, completed=progress.step, description=describe_progress(progress))
            if plain:
                plain(progress)

        run.on_progress = show
        return run.train(resume=resume)


def make_progress_bar(console: Console, *, shown: bool) -> Progress:
    """A bar with the time left; what else is told goes on in a second line where the terminal is narrow."""
    return Progress(
        BarColumn(12, table_column=Column(min_width=12)),
        TextColumn("{task.percentage:.0f} %", table_column=Column(min_width=5, no_wrap=True)),
        TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn("{task.description}", table_column=Column(ratio=1)),
        console=console,
        disable=not shown,
        expand=True,
    )


def describe_progress(progress: RunProgress) -> str:
    """One line about how far a run is."""
    losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
    ranking = f", held-out ranking {progress.ranking.interval}" if progress.ranking else ""
    return f"{losses}, {progress.triplets_per_second:,.0f} triplets/s{ranking}"


class _ProgressLines:
    """A line at every twentieth of the run, where nobody watches a bar."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0

    def __call__(self, progress: RunProgress) -> None:
        if progress.step >= self._next:
            self._console.print(
                f"{progress.triplets:,} triplets: {describe_progress(progress)}", highlight=False, soft_wrap=True
            )
            self._next = progress.step + max(progress.steps // 20, 1)


def _draw_curves(folder: Path) -> bool:
    from eqkin.plots import draw_training_curves
    from eqkin.training.metrics import read_metrics
    from eqkin.training.run import METRICS_FILE

    try:
        draw_training_curves(read_metrics(folder / METRICS_FILE), folder)
    except BadInput as error:
        typer.secho(f"no curves were drawn: {error}", err=True, fg="yellow")
        return False
    return True


def _print_outcome(outcome: TrainingResult, folder: Path, as_json: bool, *, drawn: bool, together: bool) -> None:
    score = outcome.ranking
    if as_json:
        told: dict[str, Any] = {"finished": outcome.finished, "step": outcome.step, "model": None, "ranking": None}
        if outcome.model:
            told["model"] = str(outcome.model)
        if score:
            told["ranking"] = {
                "score": score.score, "low": score.interval.low, "high": score.interval.high,
                "triples": score.triples, "papers": score.papers,
            }  # fmt: skip
        typer.echo(orjson.dumps(told).decode())
        return
    if not outcome.finished:
        started = "torchrun ... " if together else ""
        again = f"`{started}eqkin train --resume -o {folder}` goes on (name the same library or file)"
        typer.echo(f"stopped at step {outcome.step:,}; {again}")
        return
    typer.echo(f"held-out ranking {score}")
    typer.echo(f"the network is in {outcome.model}" + (f", the curves in {folder / 'curves.png'}" if drawn else ""))
