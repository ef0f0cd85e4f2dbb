"""`eqkin evaluate`: the experiments, each resumable, with intervals, beside the paper's figures and peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from eqkin.cli.console import guard_output
from eqkin.cli.evaluate_output import open_progress, save_and_print
from eqkin.cli.evaluate_sets import judged, labelled, study
from eqkin.cli.evaluate_setup import (
    ALL_SYSTEMS,
    DEFAULT_FOLDER,
    OWN_NETWORK_HELP,
    Device,
    Folder,
    JudgedSets,
    LabelledSets,
    Names,
    Small,
    make_context,
    parse_systems,
)
from eqkin.cli.evaluate_tune import tune
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.cli.train import CorpusFile, load_corpus, require_torch


def register(app: typer.Typer) -> None:
    """Put the commands into the app."""
    group = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode="markdown",
        help="Run the paper's experiments, and others, with intervals, baselines and peers.\n\n"
        "Everything is kept in a folder (`--out`): stopped experiments go on from there, nothing is learned twice, "
        "and `eqkin report` makes a page of it. A result replaces that of the same experiment before: name all systems "
        "and all sets in one command; what was measured once is not measured again.",
    )
    for command in (ablation, labelled, study, equalities, judged, speed, examples, systems, tune):
        group.command()(command)
    group.command("all")(run_all)
    app.add_typer(group, name="evaluate")


def ablation(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Names = "bag-of-words,log-bag-of-words,tfidf-tree,tree-pairs,fasttext,untrained,transformer,bitmap-cnn",
    learn_only: Annotated[
        bool, typer.Option("--learn-only", help="Learn the networks and stop; needs no converter, no browser.")
    ] = False,
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """What histogram loss, masking and augmentation are worth: networks learned without each, beside baselines.

    Half of the works is learned from, triples of the other half are ranked. In full this learns twelve networks, a
    transformer and a CNN: minutes on a GPU, days without. The bitmap CNN needs a Chromium to render equations.

    **Examples**

        eqkin evaluate ablation -l corpus --out evaluation

        eqkin evaluate ablation corpus.zst --learn-only --device cuda

        eqkin evaluate ablation --small --systems bag-of-words
    """
    require_torch()
    from eqkin.evaluation.experiments import ablation as experiment
    from eqkin.evaluation.sets.labelled import load_atlas_set

    with open_progress(as_json) as tell:
        context = make_context(out, device, small, tell)
        chosen = [] if learn_only else parse_systems(names, context)
        papers = load_corpus(corpus, library)
        if learn_only:
            experiment.train_networks(context, papers)
            return
        result = experiment.run_ablation(context, papers, chosen, load_atlas_set())
    save_and_print(context, result, as_json)


def equalities(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Annotated[
        str,
        typer.Option(
            "--systems", "-s", metavar="NAMES", help="Some, with commas: graph, transformer, ...", show_default="all"
        ),
    ] = "",
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Find the right side of an equality from its left: networks and baselines finetuned on half of the pairs.

    **Examples**

        eqkin evaluate equalities -l corpus

        eqkin evaluate equalities corpus.zst --device cuda --systems graph,transformer
    """
    require_torch()
    from eqkin.evaluation.experiments import equalities as experiment

    with open_progress(as_json) as tell:
        context = make_context(out, device, small, tell)
        chosen = [name.strip() for name in names.split(",") if name.strip()]
        result = experiment.run_equalities(context, load_corpus(corpus, library), chosen or None)
    save_and_print(context, result, as_json)


def speed(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.json...", help="What `python -m benchmarks --json NAME` printed."),
    ],
    out: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Speed and size next to the paper's: training, encoding, the index, searches.

    **Examples**

        python -m benchmarks --json train corpus.zst > train.json

        eqkin evaluate speed train.json index.json
    """
    from eqkin.evaluation.experiments import speed as experiment

    with open_progress(as_json) as tell:
        context = make_context(out, "cpu", False, tell)
        result = experiment.run_speed(context, experiment.read_reports(files))
    save_and_print(context, result, as_json)


def examples(library: LibraryFolder, out: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """The paper's two worked examples, Bayes' law and the Ising model, searched in a library.

    **Example**

        eqkin evaluate examples -l corpus
    """
    from eqkin.evaluation.experiments import examples as experiment

    with open_progress(as_json) as tell:
        context = make_context(out, "cpu", False, tell)
        result = experiment.run_examples(context, library)
    save_and_print(context, result, as_json)


def run_all(
    library: LibraryFolder,
    judged_sets: JudgedSets = None,
    labelled_sets: LabelledSets = None,
    out: Folder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Run all experiments on a library, and make the report.

    In full it needs a GPU, a Chromium and all extras (`eqkin[eval,train]`); what was done before is not done again.

    **Examples**

        eqkin evaluate all -l corpus --judged arqmath

        eqkin evaluate all -l corpus --small
    """
    from eqkin.cli.report import report
    from eqkin.evaluation.sets.judged import JudgedSet
    from eqkin.evaluation.sets.labelled import read_labelled

    for folder in judged_sets or []:
        JudgedSet.read(folder)  # better now than after hours of learning
    for file in labelled_sets or []:
        read_labelled(file)
    ablation(library, out=out, device=device, small=small)
    labelled(library, labelled_sets, ALL_SYSTEMS, out=out, device=device, small=small)
    study(library, out=out, device=device, small=small)
    equalities(library, out=out, device=device, small=small)
    for folder in judged_sets or []:
        judged(folder, library, ALL_SYSTEMS, out=out, device=device, small=small)
    examples(library, out=out)
    report(out)


def systems(as_json: AsJson = False) -> None:
    """List what can be compared: networks, baselines and peers.

    **Example**

        eqkin evaluate systems
    """
    from eqkin.evaluation.systems.registry import SYSTEM_DESCRIPTIONS

    with guard_output():
        if as_json:
            typer.echo(orjson.dumps(SYSTEM_DESCRIPTIONS).decode())
            return
        for name, words in [*SYSTEM_DESCRIPTIONS.items(), ("DIR", OWN_NETWORK_HELP)]:
            typer.echo(f"{name:18} {words}")
