"""`eqkin evaluate`: compare systems on labelled and judged formulas, with intervals and tests."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqkin.cli.console import emit
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.cli.progress import open_progress as open_progress
from eqkin.cli.train import load_corpus
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.evaluation.context import ExperimentContext
    from eqkin.evaluation.systems.base import System
    from eqkin.evaluation.tables import ExperimentResult

CacheFolder = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="DIR", help="Folder for fitted systems and measurements: nothing is computed twice."
    ),
]
SystemNames = Annotated[
    str,
    typer.Option(
        "--systems", "-s", metavar="NAMES", help="Systems, separated by commas; `eqkin evaluate systems` lists them."
    ),
]
FitCorpus = Annotated[
    Path | None, typer.Option("--corpus", metavar="FILE", help="Fit systems on this corpus instead of the library.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]
Small = Annotated[bool, typer.Option("--small", help="Test run: systems are hardly trained, figures mean nothing.")]

DEFAULT_FOLDER = Path("evaluation")
_FILE_WIDTH = 400  # columns of a table that is written to a file


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare eqkin with baselines and peers, with intervals and tests.\n\n"
    "Fits and measurements are kept in a folder (`--out`): an interrupted command continues, and nothing is measured "
    "twice. The paper's experiments are in the repository: `python -m research --help`.",
)


@app.command()
def labelled(
    library: LibraryFolder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.json]...", help='[{"latex": ..., "label": ...}]; by default the atlas.'),
    ] = None,
    names: SystemNames = "",
    corpus: FitCorpus = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the network that the search engine uses.", show_default="the bundled one"
        ),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip-unreadable", help="Leave out formulas that cannot be read.")] = False,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Labelled equations: does the nearest one have the same label (accuracy), are pairs of a label nearest (ranking).

    Without `--systems` the search engine is measured, and its vector alone. With several systems, the others are
    tested against the first.

    With `--json` and no `--systems`: {"accuracy": percent, "ranking": percent, "embedding": {both, of the vector
    alone}, "intervals": ...}.

    **Examples**

        eqkin evaluate labelled

        eqkin evaluate labelled equations.json --json

        eqkin evaluate labelled equations.json --systems eqkin,bag-of-words,runs/mine
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.evaluation.labelled import load_atlas_set, read_labelled, run_labelled, summarize_labelled
    from eqkin.evaluation.systems.registry import make_systems

    if names and model:
        raise BadInput(f"--model is for the engine: name {model} among the --systems instead")
    with open_progress(as_json) as log:
        sets = [read_labelled(path, skip_unreadable=skip) for path in files or []] or [load_atlas_set()]
        check_distinct("labelled sets", (one.name for one in sets))
        for one in sets:
            if one.skipped and not as_json:
                typer.echo(f"{one.name}: {len(one.skipped):,} formulas cannot be read and are left out", err=True)
        if names:
            context = make_context(out, device, small, log)
            chosen = make_systems(split_names(names), context)
            fit_systems(chosen, context, corpus, library)
            result = run_labelled(context, chosen, sets)
        else:
            encoder = Encoder.load(model)
            summaries = {one.name: summarize_labelled(one, encoder) for one in sets}
    if names:
        print_tables(result.mark_small_run() if small else result, as_json)
    else:
        _print_summaries(summaries, as_json)


@app.command()
def judged(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|irds:NAME",
            help="Folder with topics.tsv, formulas.tsv and qrels.txt, or of ARQMath or NTCIR; or an ir_datasets name.",
        ),
    ],
    library: LibraryFolder,
    names: SystemNames = "eqkin,eqkin-vector,paper,tfidf-latex",
    runs: Annotated[
        list[Path] | None, typer.Option("--run", metavar="FILE", help="TREC run of another system; repeatable.")
    ] = None,
    published: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Published figures for the set, as JSON.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="System to test the others against.", show_default="the first")] = "",
    save_runs: Annotated[
        bool, typer.Option("--save-runs", help="Also write the list of each system as a TREC run below `--out`.")
    ] = False,
    corpus: FitCorpus = None,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Judged formulas: nDCG', MAP', P'@10 and bpref of systems and runs, with paired tests.

    The folder has `topics.tsv` and `formulas.tsv` (lines of id, tab, LaTeX) and `qrels.txt` (lines of topic 0 formula
    grade; relevant from grade 2 on). A run has lines of topic Q0 formula rank score tag, and the name of its file.
    Published figures: [{"title": ..., "scores": {"ndcg": 0.72, "map": ..., "p10": ..., "bpref": ...}}].

    **Examples**

        eqkin evaluate judged arqmath --systems eqkin,tfidf-latex,approach0

        eqkin evaluate judged arqmath --run their-run.txt --baseline tfidf-latex

        eqkin evaluate judged arqmath --systems tfidf-latex,fasttext --save-runs --out results
    """
    from eqkin.evaluation.experiment import run_judged
    from eqkin.evaluation.judged import JudgedSet, read_published, read_run
    from eqkin.evaluation.systems.registry import make_systems

    check_distinct("runs", (path.stem for path in runs or []))
    with open_progress(as_json) as log:
        context = make_context(out, device, small, log)
        chosen = make_systems(split_names(names), context)
        known = [system.name for system in chosen] + [path.stem for path in runs or []]
        if baseline and baseline not in known:
            raise BadInput(f"the baseline {baseline} is not one of {', '.join(known)}")
        judged_set = JudgedSet.read(source)  # all files are read before anything is fitted
        lists = {path.stem: read_run(path) for path in runs or []}
        rows = read_published(published) if published else ()
        fit_systems(chosen, context, corpus, library)
        result, _ = run_judged(
            context, chosen, judged_set, runs=lists, published=rows, baseline=baseline, save_runs=save_runs
        )
    print_tables(result.mark_small_run() if small else result, as_json)


@app.command()
def results(
    out: CacheFolder = DEFAULT_FOLDER,
    baseline: Annotated[str, typer.Option(help="System to test the others against.", show_default="the first")] = "",
    as_json: AsJson = False,
) -> None:
    """Show all scores on judged sets that were kept in a folder, of all systems and runs measured so far.

    **Example**

        eqkin evaluate results --out results --baseline tfidf-latex
    """
    from eqkin.evaluation.experiment import Comparison

    found = Comparison.read(out, baseline).results

    def render() -> None:
        for result in found:
            print_tables(result, False)

    emit([dataclasses.asdict(result) for result in found], as_json, render)


@app.command()
def systems(as_json: AsJson = False) -> None:
    """List the systems that can be compared: networks, baselines and peers.

    **Example**

        eqkin evaluate systems
    """
    from eqkin.evaluation.systems.registry import SYSTEMS

    described = {name: entry.description for name, entry in SYSTEMS.items()}

    def render() -> None:
        own = "a network of your own: the folder that `eqkin train` or `eqkin finetune` wrote"
        for name, description in [*described.items(), ("DIR", own)]:
            typer.echo(f"{name:18} {description}")

    emit(described, as_json, render)


def make_context(out: Path, device: str, small: bool, log: Callable[[str], None]) -> ExperimentContext:
    """Make the context of an evaluation from the options of its command."""
    from eqkin.evaluation.context import FULL_SCALE, SMALL_SCALE, ExperimentContext, ResultCache

    return ExperimentContext(ResultCache(out), SMALL_SCALE if small else FULL_SCALE, device, log)


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Raise `BadInput` if two things have the same name in the tables."""
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput(f"{count} {what} have the name {name}, from their files: rename one")


def split_names(names: str) -> list[str]:
    """Split names at commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def fit_systems(chosen: Sequence[System], context: ExperimentContext, corpus: Path | None, library: Path) -> None:
    """Fit systems on the first half of a corpus, which is read only if a system needs it."""
    context.fit_all(chosen, lambda: load_corpus(corpus, library))


def print_tables(result: ExperimentResult, as_json: bool) -> None:
    """Print a result as tables or as JSON; a table that lists the data or is too wide is only named."""
    from rich.console import Console
    from rich.text import Text

    from eqkin.evaluation.tables import clean_text, to_rich

    def render() -> None:
        console = Console()
        if not console.is_terminal:
            console.width = _FILE_WIDTH  # lines of a file are not wrapped
        for table in result.tables:
            shown = to_rich(table)
            width = console.measure(shown, options=console.options.update(max_width=_FILE_WIDTH)).minimum
            if table.quotes or width > console.width:
                reason = "" if table.quotes else "too wide for this terminal; "
                console.print(
                    Text(f"{table.title}: {reason}{len(table.rows):,} rows, only in the JSON"), soft_wrap=True
                )
                continue
            console.print(shown)
            console.print(Text(clean_text(table.caption), style="dim"), soft_wrap=not console.is_terminal)
            console.print()
        for note in result.notes:
            typer.echo(clean_text(note))

    emit(dataclasses.asdict(result), as_json, render)


def _print_summaries(summaries: Mapping[str, dict[str, Any]], as_json: bool) -> None:
    """Print the summary of each labelled set; as JSON, a single one without its name."""

    def render() -> None:
        for name, one in summaries.items():
            typer.echo(f"{name}: {one['equations']:,} equations, {one['labels']:,} labels")
            for key in ("accuracy", "ranking"):
                low, high = one["intervals"][key]
                alone = one["embedding"][key]
                typer.echo(f"  {key:8} {one[key]:5.1f} % [{low:.1f}, {high:.1f}]   vector alone {alone:.1f} %")

    emit(summaries if len(summaries) > 1 else next(iter(summaries.values())), as_json, render)
