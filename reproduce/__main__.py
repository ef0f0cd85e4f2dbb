"""`python -m reproduce`: run the paper's experiments. Each is resumable; results are JSON, Markdown and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqkin.api import Library
from eqkin.cli.console import run_app
from eqkin.cli.evaluate import (
    DEFAULT_FOLDER,
    CacheFolder,
    Device,
    FitCorpus,
    Small,
    check_distinct,
    fit_systems,
    make_context,
    open_progress,
    print_tables,
    split_names,
)
from eqkin.cli.options import LibraryFolder
from eqkin.cli.train import CorpusFile, load_corpus, require_torch
from reproduce.report import save_result, write_report
from reproduce.systems import ALL_SYSTEMS, LARGE_SCALE_SYSTEMS, find_missing_systems, make_all_systems

Systems = Annotated[str, typer.Option("--systems", "-s", metavar="NAMES", help="Systems, with commas.")]
JudgedFolders = Annotated[list[Path] | None, typer.Option("--judged", metavar="DIR", help="A judged set; repeatable.")]
LabelledFiles = Annotated[
    list[Path] | None, typer.Option("--labelled", metavar="FILE", help="A labelled set; repeatable.")
]
BenchmarkFiles = Annotated[
    list[Path] | None,
    typer.Option("--benchmark", metavar="FILE", help="Output of `python -m benchmarks --json NAME`; repeatable."),
]

_LARGE = ",".join(LARGE_SCALE_SYSTEMS)
_EVERY = ",".join(ALL_SYSTEMS)
_ABLATION = "bag-of-words,log-bag-of-words,tfidf-tree,tree-pairs,fasttext,untrained,transformer,bitmap-cnn"
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=__doc__)


@app.command()
def ablation(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Systems = _ABLATION,
    train_only: Annotated[
        bool, typer.Option("--train-only", help="Train the networks and stop; needs no converter, no browser.")
    ] = False,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Train networks without histogram loss, masking or augmentation, and compare them with baselines.

    In full this trains 13 networks, a transformer and a CNN: minutes on a GPU, days without. The bitmap CNN needs
    Chromium.
    """
    require_torch()
    from eqkin.evaluation.labelled import load_atlas_set
    from reproduce.ablation import run_ablation, train_networks

    with open_progress(False) as log:
        context = make_context(out, device, small, log)
        chosen = make_all_systems([] if train_only else split_names(names), context)
        papers = load_corpus(corpus, library)
        if train_only:
            train_networks(context, papers)
            return
        result, plots = run_ablation(context, papers, chosen, load_atlas_set())
        save_result(context, result, plots)
    print_tables(result, as_json=False)


@app.command()
def sets(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    names: Systems = "eqkin,eqkin-vector,operator-terms,tfidf-latex,approach0",
    corpus: FitCorpus = None,
    searched: Annotated[bool, typer.Option("--end-to-end", help="Also search a copy of the library.")] = False,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Compare systems on all sets: judged, labelled, the atlas, and laws in several notations among other formulas.

    Other formulas are drawn from the library. The first system is tested against each other one.
    """
    from eqkin.evaluation.judged import JudgedSet
    from eqkin.evaluation.labelled import load_atlas_set, read_labelled
    from reproduce.sets import draw_distractors, read_notations, run_end_to_end, run_sets

    with open_progress(False) as log, Library.open(library, create=False) as opened:
        context = make_context(out, device, small, log)
        chosen = make_all_systems(split_names(names), context)
        judged = [JudgedSet.read(folder) for folder in judged_sets or []]
        notations = read_notations()
        labelled = [*(read_labelled(path) for path in labelled_sets or []), load_atlas_set(), *notations]
        check_distinct("sets", [one.name for one in judged] + [one.name for one in labelled])
        fit_systems(chosen, context, corpus, library)
        others = draw_distractors(opened, context.scale.distractors, labelled)
        result = run_sets(context, chosen, judged, labelled, others)
        if searched:
            result.tables.append(run_end_to_end(context, opened, notations))
        save_result(context, result)
    print_tables(result, as_json=False)


@app.command()
def study(
    library: LibraryFolder,
    names: Systems = _LARGE,
    corpus: FitCorpus = None,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Search a library for formulas of many fields, and judge results by keywords in their sections.

    approach0 indexes only some 10,000 equations per minute, and takes some 70 kB of memory for each.
    """
    from reproduce.study import run_study

    with open_progress(False) as log, Library.open(library, create=False) as opened:
        context = make_context(out, device, small, log)
        chosen = make_all_systems(split_names(names), context)
        fit_systems(chosen, context, corpus, library)
        result, plots = run_study(context, opened, chosen)
        save_result(context, result, plots)
    print_tables(result, as_json=False)


@app.command()
def equalities(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Annotated[
        str, typer.Option("--systems", "-s", metavar="NAMES", help="Some, with commas.", show_default="all")
    ] = "",
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Find the right side of an equality from its left: networks and baselines finetuned on half of the pairs."""
    require_torch()
    from reproduce.equalities import run_equalities

    with open_progress(False) as log:
        context = make_context(out, device, small, log)
        result, plots = run_equalities(context, load_corpus(corpus, library), split_names(names) or None)
        save_result(context, result, plots)
    print_tables(result, as_json=False)


@app.command()
def speed(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json...", help="Output of `python -m benchmarks --json NAME`.")
    ],
    out: CacheFolder = DEFAULT_FOLDER,
) -> None:
    """Compare benchmarks with the paper's figures of speed and size."""
    from reproduce.speed import read_reports, run_speed

    result = run_speed(read_reports(files))
    save_result(make_context(out, "cpu", False, lambda message: None), result)
    print_tables(result, as_json=False)


@app.command()
def examples(library: LibraryFolder, out: CacheFolder = DEFAULT_FOLDER) -> None:
    """Search a library for the paper's two worked examples, Bayes' law and the Ising model."""
    from reproduce.examples import run_examples

    with open_progress(False) as log, Library.open(library, create=False) as opened:
        context = make_context(out, "cpu", False, log)
        result = run_examples(context, opened)
        save_result(context, result)
    print_tables(result, as_json=False)


@app.command()
def weights(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Network of the engine.", show_default="the bundled one")
    ] = None,
    small: Small = False,
) -> None:
    """Measure the weights of the ranking on judged and labelled sets, the atlas and the laws to develop with.

    Prints the scores with all similarities, without each one, and of weights chosen on the other sets. Labelled
    equations are searched among formulas drawn from the library, as in `sets`.
    """
    from rich.console import Console

    from eqkin.encoder.encoder import Encoder
    from eqkin.evaluation.context import FULL_SCALE, SMALL_SCALE
    from eqkin.evaluation.judged import JudgedSet
    from eqkin.evaluation.labelled import LabelledSet, load_atlas_set, read_labelled
    from eqkin.evaluation.tables import to_rich
    from reproduce.sets import draw_distractors, read_notations
    from reproduce.weights import compare_set, make_weights_table

    with open_progress(False) as log, Library.open(library, create=False) as opened:
        judged = [JudgedSet.read(folder) for folder in judged_sets or []]
        labelled = [*(read_labelled(path) for path in labelled_sets or []), load_atlas_set(), read_notations()[0]]
        known: list[JudgedSet | LabelledSet] = [*judged, *labelled]
        check_distinct("sets", [one.name for one in known])
        others = draw_distractors(opened, (SMALL_SCALE if small else FULL_SCALE).distractors, labelled)
        encoder, compared = Encoder.load(model), []
        for one in known:
            log(f"{one.name}: comparing formulas")
            compared.append(compare_set(one, others, encoder))
        table = make_weights_table(compared, log)
    Console().print(to_rich(table))


@app.command()
def frequencies(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="Folder of a large library.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the table, a safetensors file.")],
) -> None:
    """Count the document frequencies of terms in every third equation of a library, as for the bundled table."""
    from reproduce.weights import count_frequencies

    found = count_frequencies(library)
    found.save(file)
    typer.echo(f"{found.formulas:,} formulas, {len(found.codes):,} terms: {file}")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where experiments kept their results.")] = (
        DEFAULT_FOLDER
    ),
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="The report.", show_default="DIR/RESULTS.md")
    ] = None,
) -> None:
    """Join the results of all experiments into one Markdown file with figures."""
    path = out or folder / "RESULTS.md"
    names = write_report(folder, path)
    typer.echo(f"{', '.join(names)}: {path}")


@app.command("all")
def run_all(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    benchmarks: BenchmarkFiles = None,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Run all experiments on a library, and write the report; an interrupted run continues.

    In full it needs a GPU and all extras (`eqkin[eval,train]`). Without Chromium the bitmap CNN is left out, without
    pya0 approach0.
    """
    from reproduce.speed import read_reports

    read_reports(benchmarks or [])  # errors now rather than after hours of training
    missing = find_missing_systems()
    for name in missing:
        typer.secho(f"{name} is left out: what it needs is not installed", err=True, fg="yellow")

    def select(names: str) -> str:
        return ",".join(name for name in split_names(names) if name not in missing)

    sets(library, judged_sets, labelled_sets, select(_EVERY), searched=True, out=out, device=device, small=small)
    ablation(library, names=select(_ABLATION), out=out, device=device, small=small)
    study(library, out=out, device=device, small=small)
    equalities(library, out=out, device=device, small=small)
    if benchmarks:
        speed(benchmarks, out=out)
    examples(library, out=out)
    report(out)


def main() -> None:
    """Run the command line."""
    run_app(app, "reproduce")


if __name__ == "__main__":
    main()
