"""`eqkin train`, `eqkin finetune` and `eqkin evaluate`: train a network and measure it."""

from __future__ import annotations

import dataclasses
import importlib.util
import signal
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eqkin
from eqkin.cli.console import emit, open_progress, warn
from eqkin.cli.options import AsJson, LibraryFolder
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
SystemNames = Annotated[
    str,
    typer.Option(
        "--systems",
        "-s",
        metavar="NAMES",
        help="Systems, separated by commas: eqkin, eqkin-vector, paper, tfidf-latex, or folders of networks.",
    ),
]
evaluation = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare eqkin with a baseline, with networks and with runs of other systems, with intervals and tests.",
)


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

    Settings of `--set`: loss (kin, histogram, triplet), masking, renamed,
    transpositions, balance, learning_rate, warm_up, schedule (linear, cosine), weight_decay, averaged, temperature,
    structure_weight, context_weight, words_weight, notations, rewritten, notations_renamed, notations_paraphrased,
    notations_share, names_share, held_out, kind (mix, sum), width, layers, normalised, dimensions.

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
    with _StopOnSignal() as stop, open_progress(as_json) as log:

        def show(progress: TrainingProgress) -> None:
            log(_describe_progress(progress), progress.step, progress.steps)

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


def _describe_progress(progress: TrainingProgress) -> str:
    """Describe the state of a run in one line."""
    losses = ", ".join(f"{name} {value:.4f}" for name, value in progress.losses.items())
    ranking = f", held-out ranking {str(progress.ranking).partition(' on ')[0]}" if progress.ranking else ""
    return (
        f"training: {progress.triplets:,} triplets, {losses}, {progress.triplets_per_second:,.0f} triplets/s{ranking}"
    )


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


@evaluation.command()
def labelled(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.json]...", help='[{"latex": ..., "label": ...}]; by default the atlas.'),
    ] = None,
    names: SystemNames = "",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the network that the search engine uses.", show_default="the bundled one"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Labelled equations: does the nearest one have the same label (accuracy), are pairs of a label nearest (ranking).

    Without `--systems` the search engine is measured, and its vector alone. With several systems, the others are
    tested against the first. With `--json` and no `--systems`: {"accuracy": percent, "ranking": percent, "embedding":
    {both, of the vector alone}, "intervals": ...}.

    **Examples**

        eqkin evaluate labelled equations.json --json

        eqkin evaluate labelled equations.json --systems eqkin,tfidf-latex,runs/mine
    """
    from eqkin.evaluation.labelled import compare_labelled, load_atlas_set, read_labelled, summarize_labelled
    from eqkin.evaluation.systems import make_systems

    if names and model:
        raise BadInput(f"--model is for the engine: name {model} among the --systems instead")
    with open_progress(as_json):
        sets = [read_labelled(path) for path in files or []] or [load_atlas_set()]
        check_distinct("labelled sets", [one.name for one in sets])
        systems = make_systems(split_names(names))
        results: dict[str, Any] = {}
        for one in sets:
            results[one.name] = compare_labelled(systems, one) if systems else summarize_labelled(one, model)

    def render() -> None:
        for name, result in results.items():
            rows = result if systems else [{"system": "eqkin", **result}]
            typer.echo(f"{name}:")
            for row in rows:
                typer.echo(f"  {row['system']:18} {_describe_scores(row)}")
                if "embedding" in row:
                    alone = {**row["embedding"], "intervals": row["intervals"]["embedding"]}
                    typer.echo(f"  {'vector alone':18} {_describe_scores(alone)}")
                for warning in row.get("warnings", ()):
                    typer.echo(f"  {warning}")

    emit(results if len(results) > 1 else next(iter(results.values())), as_json, render)


@evaluation.command()
def judged(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="topics.tsv, formulas.tsv and qrels.txt; or ARQMath or NTCIR-12."),
    ],
    names: SystemNames = "eqkin,eqkin-vector,paper,tfidf-latex",
    runs: Annotated[
        list[Path] | None, typer.Option("--run", metavar="FILE", help="TREC run of another system; repeatable.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="System to test the others against.", show_default="the first")] = "",
    save_runs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the list of each system as a TREC run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judged formulas: nDCG', MAP', P'@10 and bpref of systems and runs, with paired tests.

    The folder has `topics.tsv` and `formulas.tsv` (lines of id, tab, LaTeX) and `qrels.txt` (lines of topic 0 formula
    grade; relevant from grade 2 on). A run has lines of topic Q0 formula rank score tag, and the name of its file.

    **Examples**

        eqkin evaluate judged arqmath --systems eqkin,tfidf-latex --json

        eqkin evaluate judged arqmath --run their-run.txt --baseline tfidf-latex
    """
    from eqkin.evaluation import compare

    check_distinct("runs", [path.stem for path in runs or []])
    with open_progress(as_json) as log:
        chosen = [*split_names(names), *(runs or [])]
        found = compare(chosen, folder, baseline=baseline, runs_folder=save_runs, log=log)
    emit(dataclasses.asdict(found.sets[0]), as_json, lambda: typer.echo(str(found)))


def check_distinct(what: str, names: list[str]) -> None:
    """Raise `BadInput` if two things have the same name in the tables."""
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput(f"{count} {what} have the name {name}, from their files: rename one")


def split_names(names: str) -> list[str]:
    """Split names at commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _describe_scores(row: dict[str, Any]) -> str:
    parts = []
    for key in ("accuracy", "ranking"):
        low, high = row["intervals"][key]
        p = f", p {row['p'][key]:.3f}" if "p" in row else ""
        parts.append(f"{key} {row[key]:.1f} % [{low:.1f}, {high:.1f}]{p}")
    return "   ".join(parts)
