"""`python -m research`: run the paper's experiments. Each is resumable; results are JSON, Markdown and figures."""

from __future__ import annotations

from importlib.util import find_spec
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
from eqkin.evaluation.systems.networks import EngineSystem
from eqkin.evaluation.systems.registry import SYSTEMS, make_systems
from research.report import save_result, write_report

Systems = Annotated[str, typer.Option("--systems", "-s", metavar="NAMES", help="Systems, with commas.")]
JudgedFolders = Annotated[list[Path] | None, typer.Option("--judged", metavar="DIR", help="A judged set; repeatable.")]
LabelledFiles = Annotated[
    list[Path] | None, typer.Option("--labelled", metavar="FILE", help="A labelled set; repeatable.")
]
Records = Annotated[
    list[Path] | None,
    typer.Option("--records", metavar="FILE", help="Documents as JSON lines, to resolve citations; repeatable."),
]
BenchmarkFiles = Annotated[
    list[Path] | None,
    typer.Option("--benchmark", metavar="FILE", help="Output of `python -m benchmarks --json NAME`; repeatable."),
]
NetworkNames = Annotated[
    str, typer.Option("--names", metavar="NAMES", help="Some networks, with commas.", show_default="all")
]
_ALL = ",".join(SYSTEMS)
_LARGE = ",".join(name for name in SYSTEMS if name != "approach0")  # which is too slow for a large library
_FITTED = "?" * 16  # key of a fit

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=__doc__)


@app.command()
def networks(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    records: Records = None,
    labelled_sets: LabelledFiles = None,
    names: NetworkNames = "",
    measured: Annotated[bool, typer.Option("--measured", help="Train nothing: tables of what was measured.")] = False,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Train the networks of ablation, formulas, data size and equalities, and finetune them.

    In full these are 27 networks: about an hour on a GPU, weeks without. Each measurement is kept as its own file.
    """
    require_torch()
    from eqkin.evaluation.labelled import load_atlas_set, read_labelled
    from eqkin.library.queries import read_fields
    from research.citations import add_citations
    from research.equalities import BAG, list_finetunings, measure_finetuning
    from research.networks import NETWORKS, ExperimentData, NetworkRunner
    from research.paper import PaperTables, try_to
    from research.sets import read_notations

    with open_progress(False) as log, Library.open(library) as opened:
        context = make_context(out, device, small, log)
        papers = add_citations(load_corpus(corpus, library), records or [])
        labelled = [load_atlas_set(), *(read_labelled(path) for path in labelled_sets or []), *read_notations()]
        data = ExperimentData.build(papers, read_fields(opened), labelled, context)
        runner = NetworkRunner(context, data, training=not measured)
        for name in split_names(names) or ([] if measured else [*NETWORKS, BAG]):
            if name != BAG and try_to(lambda name=name: runner.measure(name)) is None:  # type: ignore[misc]
                log(f"{name} is left out: the library has no papers for it")
                continue
            for finetuning, pairs in list_finetunings(name):
                if pairs in data.pairs:
                    measure_finetuning(runner, finetuning, pairs)
        tables = PaperTables(NetworkRunner(context, data, training=False))
        results = [
            tables.make_ablation(), tables.make_formulas(), tables.make_sizes(), tables.make_statistics(),
            tables.make_equalities(),
        ]  # fmt: skip
        for result in results:
            save_result(context, result)
    for result in results:
        print_tables(result, as_json=False)


@app.command()
def bitmaps(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Train the bitmap CNN on images of formulas, and a graph network on the same formulas; needs Chromium."""
    require_torch()
    from eqkin.encoder.model import Model
    from eqkin.evaluation.context import HELD_OUT_FRACTION, SPLIT_SEED
    from eqkin.evaluation.systems.networks import embed_forest
    from research.bitmap_cnn import BITMAP_NETWORKS, BitmapData
    from research.paper import make_bitmaps_result

    with open_progress(False) as log:
        context = make_context(out, device, small, log)
        halves = load_corpus(corpus, library).split(HELD_OUT_FRACTION, SPLIT_SEED)
        sizes = sorted({one.times for one in BITMAP_NETWORKS.values()})
        data, others = {times: BitmapData.build(context, *halves, times) for times in sizes}, {}
        for folder in (out / "fitted").glob(f"base-{_FITTED}/model"):
            model = Model.load(folder)
            vectors = embed_forest(model, data[1.0].test.forest, device)
            others["Graph network, 5 M triplets"] = vectors, model.training["learned_from"]["trees"]
        result = make_bitmaps_result(context, data, others)
        save_result(context, result)
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
    from research.sets import draw_distractors, read_notations, run_end_to_end, run_sets

    with open_progress(False) as log, Library.open(library) as opened:
        context = make_context(out, device, small, log)
        chosen = make_systems(split_names(names), context)
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
    held_out: Annotated[bool, typer.Option("--held-out", help="Search only works that no network saw.")] = False,
    network: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also search as eqkin does, with this network.")
    ] = None,
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Search a library for formulas of many fields, and judge results by keywords in their sections.

    approach0 indexes only some 10,000 equations per minute, and takes some 70 kB of memory for each.
    """
    from research.study import run_study

    with open_progress(False) as log, Library.open(library) as opened:
        context = make_context(out, device, small, log)
        chosen = make_systems(split_names(names), context)
        if network is not None:
            engine = EngineSystem(network, device=device)
            chosen = [engine, engine.vector, *chosen]
        fit_systems(chosen, context, corpus, library)
        result = run_study(context, opened, chosen, held_out=held_out)
        save_result(context, result)
    print_tables(result, as_json=False)


@app.command()
def speed(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json...", help="Output of `python -m benchmarks --json NAME`.")
    ],
    out: CacheFolder = DEFAULT_FOLDER,
) -> None:
    """Compare benchmarks with the paper's figures of speed and size."""
    from research.speed import read_reports, run_speed

    result = run_speed(read_reports(files))
    save_result(make_context(out, "cpu", False, lambda message: None), result)
    print_tables(result, as_json=False)


@app.command()
def data(
    library: LibraryFolder,
    records: Records = None,
    out: CacheFolder = DEFAULT_FOLDER,
) -> None:
    """Count papers, equations, fields and characters of a library, as in the paper's section on its data."""
    from research.data import describe_data

    with open_progress(False) as log, Library.open(library) as opened:
        context = make_context(out, "cpu", False, log)
        result = describe_data(opened, records or [])
        save_result(context, result)
    print_tables(result, as_json=False)


@app.command()
def examples(library: LibraryFolder, out: CacheFolder = DEFAULT_FOLDER) -> None:
    """Search a library for the paper's two worked examples, Bayes' law and the Ising model."""
    from research.examples import run_examples

    with open_progress(False) as log, Library.open(library) as opened:
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
    from research.sets import draw_distractors, read_notations
    from research.weights import compare_set, make_weights_table

    with open_progress(False) as log, Library.open(library) as opened:
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
    from research.weights import count_frequencies

    found = count_frequencies(library)
    found.save(file)
    typer.echo(f"{found.formulas:,} formulas, {len(found.codes):,} terms: {file}")


@app.command()
def report(
    root: Annotated[Path, typer.Argument(metavar="[DIR]", help="The repository.")] = Path("."),
) -> None:
    """Write the tables of `research/results` into docs/RESULTS.md and the other pages that show them."""
    for path in write_report(root):
        typer.echo(str(path))


@app.command("all")
def run_all(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    benchmarks: BenchmarkFiles = None,
    systems: Systems = _ALL,
    names: NetworkNames = "",
    out: CacheFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Run all experiments on a library; an interrupted run continues. Results are in DIR/results.

    In full it needs a GPU and all extras (`eqkin[eval,train]`). Without Chromium the bitmap CNN is left out, without
    pya0 approach0.
    """
    from research.bitmaps import find_chromium
    from research.speed import read_reports

    read_reports(benchmarks or [])  # errors now rather than after hours of training
    chosen = [name for name in split_names(systems) if name != "approach0" or find_spec("pya0") is not None]
    large = [name for name in chosen if name != "approach0"]
    sets(library, judged_sets, labelled_sets, ",".join(chosen), searched=True, out=out, device=device, small=small)
    data(library, out=out)
    networks(library, labelled_sets=labelled_sets, names=names, out=out, device=device, small=small)
    if find_chromium() is not None and find_spec("playwright") is not None:
        bitmaps(library, out=out, device=device, small=small)
    else:
        typer.secho("the bitmap CNN is left out: there is no Chromium", err=True, fg="yellow")
    study(library, ",".join(large), out=out, device=device, small=small)
    own = next((out / "fitted").glob(f"eqkin-{_FITTED}/model"), None)  # takes the place of the bundled one
    others = [name for name in large if own is None or not name.startswith("eqkin")]
    study(library, ",".join(others), held_out=True, network=own, out=out, device=device, small=small)
    if benchmarks:
        speed(benchmarks, out=out)
    examples(library, out=out)


def main() -> None:
    """Run the command line."""
    run_app(app, "research")


if __name__ == "__main__":
    main()
