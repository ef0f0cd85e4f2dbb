"""`eqkin evaluate`: the experiments, each resumable, with intervals, beside the paper's figures and peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from eqkin.cli.evaluate_output import show, show_summaries, teller
from eqkin.cli.options import AsJson, LibraryFolder, output
from eqkin.cli.train import CorpusFile, load_corpus, need_torch
from eqkin.errors import BadInput
from eqkin.library import Library

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import Context
    from eqkin.evaluation.systems.base import System
    from eqkin.learning.corpus import Corpus

Folder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where what is learned and measured is kept.")]
Names = Annotated[
    str,
    typer.Option("--systems", "-s", metavar="NAMES", help="Which to compare, with commas: `eqkin evaluate systems`."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
Small = Annotated[bool, typer.Option("--small", help="A quick look: little is learned, the figures mean nothing.")]

_OUT = Path("evaluation")
_OWN = "a network of your own: the folder that `eqkin train` or `eqkin finetune` wrote"
_LARGE = "paper,untrained,bag-of-words,log-bag-of-words,tfidf-tree,tfidf-latex,tree-pairs,fasttext,transformer"
_EVERY = f"{_LARGE},bitmap-cnn,approach0"


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
    for command in (ablation, labelled, study, equalities, judged, speed, examples, systems):
        group.command()(command)
    group.command("all")(everything)
    app.add_typer(group, name="evaluate")


def ablation(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Names = "bag-of-words,log-bag-of-words,tfidf-tree,tree-pairs,fasttext,untrained,transformer,bitmap-cnn",
    learn_only: Annotated[
        bool, typer.Option("--learn-only", help="Learn the networks and stop; needs no converter, no browser.")
    ] = False,
    out: Folder = _OUT,
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
    need_torch()
    from eqkin.evaluation.experiments import ablation as experiment
    from eqkin.evaluation.sets.labelled import atlas_set

    with teller(as_json) as tell:
        context = _context(out, device, small, tell)
        chosen = [] if learn_only else _systems(names, context)
        papers = load_corpus(corpus, library)
        if learn_only:
            experiment.learn(context, papers)
            return
        result = experiment.ablation(context, papers, chosen, atlas_set())
    show(context, result, as_json)


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
    corpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What systems learn from, instead of the library.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The engine's network.", show_default="the bundled one")
    ] = None,
    skip: Annotated[bool, typer.Option("--skip-unreadable", help="Leave out formulas that cannot be read.")] = False,
    out: Folder = _OUT,
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

        eqkin evaluate labelled equations.json --systems paper,bag-of-words,runs/mine
    """
    from eqkin.evaluation.experiments import labelled as experiment
    from eqkin.evaluation.sets.labelled import atlas_set, read_labelled
    from eqkin.network.encoder import Encoder

    if names and model:
        raise BadInput(f"--model is for the engine: name {model} among the --systems instead")
    with teller(as_json) as tell:
        sets = [read_labelled(path, skip_unreadable=skip) for path in files or []] or [atlas_set()]
        _all_differ("labelled sets", (one.name for one in sets))
        for one in sets:
            if one.skipped and not as_json:
                typer.echo(f"{one.name}: {len(one.skipped):,} formulas cannot be read and are left out", err=True)
        if names:
            context = _context(out, device, small, tell)
            chosen = _fitted(names, context, corpus, library)
            result = experiment.labelled(context, chosen, sets)
        else:
            encoder = Encoder.load(model)
            found = {one.name: experiment.summary(one, encoder) for one in sets}
    if names:
        show(context, result, as_json)
    else:
        show_summaries(found, as_json)


def study(
    library: LibraryFolder,
    names: Names = _LARGE,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other queries with keywords.", show_default="the bundled ones")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What systems learn from, instead of the library.")
    ] = None,
    out: Folder = _OUT,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """The search study: how many of the first 10, 100, 1,000 results stand in a section with the query's keywords.

    Queries of your own: [{"id": ..., "field": ..., "latex": ..., "keywords": [...]}], keywords in lower case.

    approach0 can take part too, but indexes only some 10,000 equations a minute, and takes some 70 KB of memory each.

    **Examples**

        eqkin evaluate study -l corpus

        eqkin evaluate study --systems paper,bag-of-words --queries mine.json
    """
    from eqkin.evaluation.experiments import study as experiment
    from eqkin.evaluation.sets import queries as asking

    with teller(as_json) as tell, Library.open(library, create=False) as opened:
        context = _context(out, device, small, tell)
        asked = asking.load(queries) if queries else None
        result = experiment.study(context, opened, _fitted(names, context, corpus, library), asked)
    show(context, result, as_json)


def equalities(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    names: Annotated[
        str,
        typer.Option(
            "--systems", "-s", metavar="NAMES", help="Some, with commas: graph, transformer, ...", show_default="all"
        ),
    ] = "",
    out: Folder = _OUT,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Find the right side of an equality from its left: networks and baselines finetuned on half of the pairs.

    **Examples**

        eqkin evaluate equalities -l corpus

        eqkin evaluate equalities corpus.zst --device cuda --systems graph,transformer
    """
    need_torch()
    from eqkin.evaluation.experiments import equalities as experiment

    with teller(as_json) as tell:
        context = _context(out, device, small, tell)
        chosen = [name.strip() for name in names.split(",") if name.strip()]
        result = experiment.equalities(context, load_corpus(corpus, library), chosen or None)
    show(context, result, as_json)


def judged(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With topics.tsv, formulas.tsv and qrels.txt.")],
    library: LibraryFolder,
    names: Names = "paper,tfidf-latex",
    runs: Annotated[
        list[Path] | None, typer.Option("--run", metavar="FILE", help="Another system's TREC run; repeatable.")
    ] = None,
    published: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Figures others report for the set, as JSON.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="The others are tested against it.", show_default="the first")] = "",
    corpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What systems learn from, instead of the library.")
    ] = None,
    out: Folder = _OUT,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Formulas that people judged: nDCG', MAP', P'@10 and bpref of systems and runs, with paired tests.

    The folder holds `topics.tsv` and `formulas.tsv` (id, tab, LaTeX a line) and `qrels.txt` (topic 0 formula grade;
    relevant from grade 2 on). A run's line is: topic Q0 formula rank score tag; it is called as its file is. Published
    figures: [{"title": ..., "scores": {"ndcg": 0.72, "map": ..., "p10": ..., "bpref": ...}}].

    **Examples**

        eqkin evaluate judged arqmath --systems paper,tfidf-latex,approach0

        eqkin evaluate judged arqmath --run their-run.txt --baseline tfidf-latex
    """
    from eqkin.evaluation.experiments import judged as experiment
    from eqkin.evaluation.sets.judged import JudgedSet, read_published, read_run

    _all_differ("runs", (path.stem for path in runs or []))
    with teller(as_json) as tell:
        context = _context(out, device, small, tell)
        chosen = _systems(names, context)
        known = [system.name for system in chosen] + [path.stem for path in runs or []]
        if baseline and baseline not in known:
            raise BadInput(f"the baseline {baseline} is none of {', '.join(known)}")
        given = JudgedSet.read(folder)  # all files are read before anything is learned
        lists = {path.stem: read_run(path) for path in runs or []}
        rows = read_published(published) if published else ()
        _fit(chosen, context, corpus, library)
        result = experiment.judged(context, chosen, given, runs=lists, published=rows, baseline=baseline)
    show(context, result, as_json)


def speed(
    library: LibraryFolder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.json]...", help="What `eqkin bench ... --json` printed; without, measured here."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure learning too, on this corpus (needs torch).")
    ] = None,
    out: Folder = _OUT,
    device: Device = "auto",
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Speed and size beside the paper's: learning, encoding, the index, searches.

    **Examples**

        eqkin bench train corpus.zst --json > train.json

        eqkin evaluate speed train.json index.json

        eqkin evaluate speed -l corpus
    """
    from eqkin.evaluation.experiments import speed as experiment
    from eqkin.evaluation.experiments.speed_here import measure_here

    if corpus:
        need_torch()
    with teller(as_json) as tell:
        context = _context(out, device, small, tell)
        papers = load_corpus(corpus, library) if corpus else None
        if not files:
            Library.open(library, create=False).close()  # better now than after the first benchmark
        figures = experiment.read_figures(files) if files else measure_here(context, library=library, corpus=papers)
        result = experiment.speed(context, figures)
    show(context, result, as_json)


def examples(library: LibraryFolder, out: Folder = _OUT, as_json: AsJson = False) -> None:
    """The paper's two worked examples, Bayes' law and the Ising model, searched in a library.

    **Example**

        eqkin evaluate examples -l corpus
    """
    from eqkin.evaluation.experiments import examples as experiment

    with teller(as_json) as tell:
        context = _context(out, "cpu", False, tell)
        result = experiment.examples(context, library)
    show(context, result, as_json)


def everything(
    library: LibraryFolder,
    judged_sets: Annotated[
        list[Path] | None, typer.Option("--judged", metavar="DIR", help="A judged set; repeatable.")
    ] = None,
    labelled_sets: Annotated[
        list[Path] | None, typer.Option("--labelled", metavar="FILE", help="A labelled set; repeatable.")
    ] = None,
    out: Folder = _OUT,
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
    labelled(library, labelled_sets, _EVERY, out=out, device=device, small=small)
    study(library, out=out, device=device, small=small)
    equalities(library, out=out, device=device, small=small)
    for folder in judged_sets or []:
        judged(folder, library, _EVERY, out=out, device=device, small=small)
    speed(library, out=out, device=device, small=small)
    examples(library, out=out)
    report(out)


def systems(as_json: AsJson = False) -> None:
    """List what can be compared: networks, baselines and peers.

    **Example**

        eqkin evaluate systems
    """
    from eqkin.evaluation.systems.registry import NAMES

    with output():
        if as_json:
            typer.echo(orjson.dumps(NAMES).decode())
            return
        for name, words in [*NAMES.items(), ("DIR", _OWN)]:
            typer.echo(f"{name:18} {words}")


def _context(out: Path, device: str, small: bool, tell: Callable[[str], None]) -> Context:
    from eqkin.evaluation.experiments.context import Context
    from eqkin.evaluation.scale import FULL, SMALL
    from eqkin.evaluation.store import Store

    return Context(Store(out), SMALL if small else FULL, device, tell)


def _all_differ(what: str, names: Iterable[str]) -> None:
    """Raise `BadInput` where two things would stand in the tables under one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput(f"{count} {what} are called {name}, as their files are: rename one")


def _systems(names: str, context: Context) -> list[System]:
    from eqkin.evaluation.systems.registry import systems

    return systems([name.strip() for name in names.split(",") if name.strip()], context)


def _fitted(names: str, context: Context, corpus: Path | None, library: Path) -> Sequence[System]:
    """Systems that have learned what they need."""
    chosen = _systems(names, context)
    _fit(chosen, context, corpus, library)
    return chosen


def _fit(chosen: Sequence[System], context: Context, corpus: Path | None, library: Path) -> None:
    """Let systems learn what they need from the first half of a corpus, which is read only if one has to."""
    from eqkin.evaluation.experiments.context import HELD_OUT, SPLIT

    half: Corpus | None = None
    for system in chosen:
        if system.settings and half is None:
            try:
                half = load_corpus(corpus, library).split(HELD_OUT, SPLIT)[0]
            except BadInput as error:
                raise BadInput(f"{system.title} has to learn, and cannot: {error}") from error
        if half is not None:
            context.fit(system, half)
        else:
            context.keep(system)
