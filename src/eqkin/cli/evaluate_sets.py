"""`eqkin evaluate labelled|judged|study`: systems on equations with labels, judgements or keywords."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqkin.api import Library
from eqkin.cli.evaluate_output import open_progress, print_summaries, save_and_print
from eqkin.cli.evaluate_setup import (
    DEFAULT_FOLDER,
    LARGE_SCALE_SYSTEMS,
    Device,
    Folder,
    LearnFrom,
    Names,
    Small,
    check_distinct,
    fit_systems,
    make_context,
    parse_and_fit,
    parse_systems,
)
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.errors import BadInput


def labelled(
    library: LibraryFolder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.json]...", help='[{"latex": ..., "label": ...}]; without one, the atlas.'),
    ] = None,
    names: Annotated[
        str,
        typer.Option(
            "--systems",
            "-s",
            metavar="NAMES",
            help="Compare these, with commas; without, eqkin's engine.",
        ),
    ] = "",
    corpus: LearnFrom = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The engine's network.", show_default="the bundled one")
    ] = None,
    skip: Annotated[bool, typer.Option("--skip-unreadable", help="Leave out formulas that cannot be read.")] = False,
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Labelled equations: has the nearest one the same label (1-NN accuracy), are pairs of one label nearest (ranking).

    Without `--systems` it is only shown; with some, the first is what the others are tested against, and the result is
    kept for `eqkin report`.

    With `--json` and no `--systems`: {"accuracy": percent, "ranking": percent, "embedding": {both, by the vector
    alone}, "intervals": ...}; the first two by the similarity the search engine ranks with.

    **Examples**

        eqkin evaluate labelled

        eqkin evaluate labelled equations.json --json

        eqkin evaluate labelled equations.json --systems eqkin,bag-of-words,runs/mine
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.evaluation.experiments import labelled as experiment
    from eqkin.evaluation.sets.labelled import load_atlas_set, read_labelled

    if names and model:
        raise BadInput(f"--model is for the engine: name {model} among the --systems instead")
    with open_progress(as_json) as tell:
        sets = [read_labelled(path, skip_unreadable=skip) for path in files or []] or [load_atlas_set()]
        check_distinct("labelled sets", (one.name for one in sets))
        for one in sets:
            if one.skipped and not as_json:
                typer.echo(f"{one.name}: {len(one.skipped):,} formulas cannot be read and are left out", err=True)
        if names:
            context = make_context(out, device, small, tell)
            chosen = parse_and_fit(names, context, corpus, library)
            result = experiment.run_labelled(context, chosen, sets)
        else:
            encoder = Encoder.load(model)
            found = {one.name: experiment.summarize(one, encoder) for one in sets}
    if names:
        save_and_print(context, result, as_json)
    else:
        print_summaries(found, as_json)


def study(
    library: LibraryFolder,
    names: Names = LARGE_SCALE_SYSTEMS,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other queries with keywords.", show_default="the bundled ones")
    ] = None,
    corpus: LearnFrom = None,
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """The search study: how many of the first 10, 100, 1,000 results stand in a section with the query's keywords.

    Queries of your own: [{"id": ..., "field": ..., "latex": ..., "keywords": [...]}], keywords in lower case.

    approach0 can take part too, but indexes only some 10,000 equations a minute, and takes some 70 KB of memory each.

    **Examples**

        eqkin evaluate study -l corpus

        eqkin evaluate study --systems eqkin,bag-of-words --queries mine.json
    """
    from eqkin.evaluation.experiments import study as experiment
    from eqkin.evaluation.sets import queries as asking

    with open_progress(as_json) as tell, Library.open(library, create=False) as opened:
        context = make_context(out, device, small, tell)
        asked = asking.load_queries(queries) if queries else None
        result = experiment.run_study(context, opened, parse_and_fit(names, context, corpus, library), asked)
    save_and_print(context, result, as_json)


def judged(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With topics.tsv, formulas.tsv and qrels.txt.")],
    library: LibraryFolder,
    names: Names = "eqkin,eqkin-vector,paper,tfidf-latex",
    runs: Annotated[
        list[Path] | None, typer.Option("--run", metavar="FILE", help="Another system's TREC run; repeatable.")
    ] = None,
    published: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Figures others report for the set, as JSON.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="The others are tested against it.", show_default="the first")] = "",
    corpus: LearnFrom = None,
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Formulas that people judged: nDCG', MAP', P'@10 and bpref of systems and runs, with paired tests.

    The folder holds `topics.tsv` and `formulas.tsv` (id, tab, LaTeX a line) and `qrels.txt` (topic 0 formula grade;
    relevant from grade 2 on). A run's line is: topic Q0 formula rank score tag; it is called as its file is. Published
    figures: [{"title": ..., "scores": {"ndcg": 0.72, "map": ..., "p10": ..., "bpref": ...}}].

    **Examples**

        eqkin evaluate judged arqmath --systems eqkin,tfidf-latex,approach0

        eqkin evaluate judged arqmath --run their-run.txt --baseline tfidf-latex
    """
    from eqkin.evaluation.experiments import judged as experiment
    from eqkin.evaluation.sets.judged import JudgedSet, read_published, read_run

    check_distinct("runs", (path.stem for path in runs or []))
    with open_progress(as_json) as tell:
        context = make_context(out, device, small, tell)
        chosen = parse_systems(names, context)
        known = [system.name for system in chosen] + [path.stem for path in runs or []]
        if baseline and baseline not in known:
            raise BadInput(f"the baseline {baseline} is none of {', '.join(known)}")
        given = JudgedSet.read(folder)  # all files are read before anything is learned
        lists = {path.stem: read_run(path) for path in runs or []}
        rows = read_published(published) if published else ()
        fit_systems(chosen, context, corpus, library)
        result = experiment.run_judged(context, chosen, given, runs=lists, published=rows, baseline=baseline)
    save_and_print(context, result, as_json)
