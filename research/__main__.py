"""`python -m research`: run the paper's experiments; results are JSON and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from eqkin.api import Library
from eqkin.cli.console import open_progress, run_app
from eqkin.cli.options import LibraryFolder
from eqkin.cli.train import check_distinct, load_corpus, split_names
from eqkin.encoder.encoder import Encoder
from eqkin.evaluation import JudgedSet, LabelledSet, System
from eqkin.evaluation.labelled import load_atlas_set, read_labelled
from eqkin.evaluation.systems import EngineSystem, make_systems
from research.equalities import run_equalities
from research.experiment import (
    FULL_SCALE,
    HELD_OUT_FRACTION,
    SMALL_SCALE,
    SPLIT_SEED,
    Experiment,
    fit_systems,
)
from research.fasttext import FastText
from research.networks import run_networks
from research.report import save_result, write_report
from research.systems import ALL_SYSTEMS
from research.tables import ExperimentResult, to_markdown

OutFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for fits, networks and results.")]
Systems = Annotated[str, typer.Option("--systems", "-s", metavar="NAMES", help="Systems, with commas.")]
JudgedFolders = Annotated[list[Path] | None, typer.Option("--judged", metavar="DIR", help="A judged set; repeatable.")]
LabelledFiles = Annotated[
    list[Path] | None, typer.Option("--labelled", metavar="FILE", help="A labelled set; repeatable.")
]
Device = Annotated[str, typer.Option(help="Where networks are trained: cpu, cuda, or auto: a GPU if there is one.")]
Small = Annotated[bool, typer.Option("--small", help="Test run: systems are hardly trained, figures mean nothing.")]
DEFAULT_FOLDER = Path("evaluation")
# approach0 indexes only some 10,000 equations per minute, and takes some 70 kB of memory for each.
_LARGE = ",".join(name for name in ALL_SYSTEMS if name != "approach0")

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=__doc__)


@app.command()
def networks(
    library: LibraryFolder,
    labelled_sets: LabelledFiles = None,
    names: Annotated[str, typer.Option("--names", metavar="NAMES", help="Some networks, with commas.")] = "",
    out: OutFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Train the networks of ablation and data size. Nine networks: half an hour on a GPU, days without."""
    with open_experiment(out, small, device) as experiment:
        labelled = [load_atlas_set(), *(read_labelled(path) for path in labelled_sets or [])]
        finish(experiment, *run_networks(experiment, load_corpus(None, library), labelled, split_names(names)))


@app.command()
def equalities(
    library: LibraryFolder,
    names: Systems = "bag-of-words,fasttext,paper,eqkin-vector",
    out: OutFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Find the other side of equalities, by systems and by the bundled networks after finetuning."""
    with open_experiment(out, small, device) as experiment:
        systems = choose_systems(experiment, names, library)
        held_out = load_corpus(None, library).split(HELD_OUT_FRACTION, SPLIT_SEED)[1]
        finish(experiment, run_equalities(experiment, held_out, systems, {"paper": "paper", "eqkin": "eqkin"}))


@app.command()
def sets(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    names: Systems = "eqkin,eqkin-vector,operator-terms,tfidf-latex,approach0",
    searched: Annotated[bool, typer.Option("--end-to-end", help="Also search a copy of the library.")] = False,
    out: OutFolder = DEFAULT_FOLDER,
    small: Small = False,
) -> None:
    """Compare systems on all sets: judged, labelled, the atlas, and laws in several notations among other formulas.

    Other formulas are drawn from the library. The first system is tested against each other one.
    """
    from research.sets import draw_distractors, read_notations, run_end_to_end, run_sets

    with open_experiment(out, small) as experiment, Library.open(library) as opened:
        judged, labelled = read_sets(judged_sets, labelled_sets, read_notations())
        systems = choose_systems(experiment, names, library)
        others = draw_distractors(opened, experiment.scale.distractors, labelled)
        result = run_sets(experiment, systems, judged, labelled, others)
        if searched:
            result.tables.append(run_end_to_end(experiment, opened, read_notations()))
        finish(experiment, result)


@app.command()
def study(
    library: LibraryFolder,
    names: Systems = _LARGE,
    held_out: Annotated[bool, typer.Option("--held-out", help="Search only works that no network saw.")] = False,
    network: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also search as eqkin does, with this network.")
    ] = None,
    out: OutFolder = DEFAULT_FOLDER,
    small: Small = False,
) -> None:
    """Search a library for formulas of many fields, and judge results by keywords in their sections."""
    from research.study import run_study

    with open_experiment(out, small) as experiment, Library.open(library) as opened:
        systems = choose_systems(experiment, names, library)
        if network is not None:
            engine = EngineSystem(network)
            systems = [engine, engine.vector, *systems]
        finish(experiment, run_study(experiment, opened, systems, held_out=held_out))


@app.command()
def data(library: LibraryFolder, out: OutFolder = DEFAULT_FOLDER) -> None:
    """Count papers, equations, fields and characters of a library, as in the paper's section on its data."""
    from research.data import describe_data

    with open_experiment(out) as experiment, Library.open(library) as opened:
        finish(experiment, describe_data(opened))


@app.command()
def examples(library: LibraryFolder, out: OutFolder = DEFAULT_FOLDER) -> None:
    """Search a library for the paper's two worked examples, Bayes' law and the Ising model."""
    from research.examples import run_examples

    with open_experiment(out) as experiment, Library.open(library) as opened:
        finish(experiment, run_examples(experiment, opened))


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
    from research.sets import draw_distractors, read_notations
    from research.weights import compare_set, make_weights_table

    with open_experiment(DEFAULT_FOLDER, small) as experiment, Library.open(library) as opened:
        judged, labelled = read_sets(judged_sets, labelled_sets, read_notations()[:1])
        others = draw_distractors(opened, experiment.scale.distractors, labelled)
        encoder = Encoder.load(model)
        compared = []
        known: list[JudgedSet | LabelledSet] = [*judged, *labelled]
        for one in known:
            experiment.log(f"{one.name}: comparing formulas")
            compared.append(compare_set(one, others, encoder))
        table = make_weights_table(compared, experiment.log)
    typer.echo(to_markdown(table))


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
def report(root: Annotated[Path, typer.Argument(metavar="[DIR]", help="The repository.")] = Path(".")) -> None:
    """Write the tables of `research/results` into research/RESULTS.md and the other pages that show them."""
    for path in write_report(root):
        typer.echo(str(path))


@app.command("all")
def run_all(
    library: LibraryFolder,
    judged_sets: JudgedFolders = None,
    labelled_sets: LabelledFiles = None,
    names: Annotated[str, typer.Option("--names", metavar="NAMES", help="Some networks, with commas.")] = "",
    out: OutFolder = DEFAULT_FOLDER,
    device: Device = "auto",
    small: Small = False,
) -> None:
    """Run all experiments on a library; networks continue where they were interrupted. Results are in DIR/results.

    In full it needs a GPU and the extras `eqkin[eval,train]`. Without pya0 approach0 is left out.
    """
    everything = _LARGE if find_spec("pya0") is None else ",".join(ALL_SYSTEMS)
    sets(library, judged_sets, labelled_sets, everything, searched=True, out=out, small=small)
    data(library, out=out)
    networks(library, labelled_sets, names, out=out, device=device, small=small)
    equalities(library, out=out, device=device, small=small)
    study(library, out=out, small=small)
    # A network that saw none of the works that are searched takes the place of the bundled one.
    own = out / "networks" / "eqkin" / "model"
    others = ",".join(name for name in _LARGE.split(",") if not name.startswith("eqkin"))
    study(library, others if own.is_dir() else _LARGE, True, own if own.is_dir() else None, out=out, small=small)
    examples(library, out=out)


@contextmanager
def open_experiment(out: Path, small: bool = False, device: str = "auto") -> Iterator[Experiment]:
    """Open what an experiment is run with; progress is shown on standard error."""
    with open_progress(False) as log:
        yield Experiment(out, SMALL_SCALE if small else FULL_SCALE, device, log)


def choose_systems(experiment: Experiment, names: str, library: Path) -> list[System]:
    """Make systems by their names, and fit those that learn on one half of a library."""
    known: dict[str, Callable[[], System]] = dict(ALL_SYSTEMS)
    known["fasttext"] = lambda: FastText(experiment.scale.fasttext_epochs)
    systems = make_systems(split_names(names), known)
    fit_systems(experiment, systems, lambda: load_corpus(None, library))
    return systems


def read_sets(
    judged: list[Path] | None, labelled: list[Path] | None, notations: Sequence[LabelledSet]
) -> tuple[list[JudgedSet], list[LabelledSet]]:
    """Read judged sets, and labelled ones with the atlas and laws in several notations."""
    found = [JudgedSet.read(folder) for folder in judged or []]
    others = [*(read_labelled(path) for path in labelled or []), load_atlas_set(), *notations]
    check_distinct("sets", [one.name for one in found] + [one.name for one in others])
    return found, others


def finish(experiment: Experiment, *results: ExperimentResult) -> None:
    """Save results, and print their tables but those that quote the data."""
    for result in results:
        save_result(experiment, result)
        for table in result.tables:
            if not table.quotes:
                typer.echo(to_markdown(table))


def main() -> None:
    """Run the command line."""
    run_app(app, "research")


if __name__ == "__main__":
    main()
