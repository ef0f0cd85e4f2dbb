"""`eqkin stats` and `verify`: look into a library; `export`, `pack`, `unpack` and `push`: share it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

import eqkin
from eqkin.cli.build import describe_sizes, measure_index
from eqkin.cli.console import ProgressDisplay, emit, guard_output, print_problems, stop_politely
from eqkin.cli.options import MILVUS_VARIABLE, AsJson, CollectionName, LibraryFolder
from eqkin.errors import strip_control_chars

if TYPE_CHECKING:
    from eqkin.cluster.milvus_push import PushReport


def stats(
    library: LibraryFolder,
    as_json: AsJson = False,
) -> None:
    """Show what is in a library: papers, equations by outcome, reasons of failure, subject areas.

    **Examples**

        eqkin stats

        eqkin stats --library my-papers --json
    """
    from eqkin.library.queries import compute_statistics

    with eqkin.Library.open(library) as opened:
        sizes, unparsed = measure_index(library)
        numbers = compute_statistics(opened) | {"index": sizes}
        numbers["equations"]["unparsed"] = unparsed
        emit(numbers, as_json, lambda: print_statistics(numbers))


def print_statistics(numbers: dict[str, Any]) -> None:
    """Print the statistics of a library."""
    equations = numbers["equations"]
    found = max(equations["found"], 1)
    converted = max(equations["converted"], 1)
    rows = [
        ("papers", f"{numbers['papers']:,} ({numbers['papers_with_equations']:,} with equations)"),
        ("equations found", f"{equations['found']:,}"),
        ("  converted", f"{equations['converted']:,} ({equations['converted'] / found:.2%})"),
        ("  of these degraded", f"{equations['degraded']:,} ({equations['degraded'] / converted:.2%})"),
        ("  of these repaired", f"{equations['repaired']:,}"),
        ("diagrams, not counted", f"{equations['diagrams']:,}"),
        ("rows, inline formulas", f"{equations['rows']:,}, {equations['inline']:,}"),
        ("sections, citations", f"{numbers['sections']:,}, {numbers['citations']:,}"),
        ("on disk", f"{numbers['bytes'] / 1e6:,.1f} MB"),
        ("converter", f"{numbers['converter']['name']} {numbers['converter']['version']}"),
    ]
    if "unparsed" in equations:
        incomplete = f"{equations['unparsed']:,} ({equations['unparsed'] / converted:.2%})"
        rows.insert(5, ("  of these not parsed completely", incomplete))
    if numbers.get("index"):
        rows.insert(-1, ("  of which the index", describe_sizes(numbers["index"], equations["converted"])))
    typer.secho(numbers["library"], italic=True)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:{width}}  {value}")
    for title, counts in (
        ("equations that failed, by reason", equations["failed"]),
        ("papers that failed, by reason", numbers["papers_failed"]),
        ("papers by subject area", numbers["fields"]),
        ("undefined commands, shown by name", numbers["unknown_commands"]),
    ):
        if counts:
            shown = list(counts.items())[:12]
            more = f"; {len(counts) - len(shown)} more" if len(counts) > len(shown) else ""
            listed = ", ".join(f"{name} {count:,}" for name, count in shown)
            typer.echo(strip_control_chars(f"{title}: {listed}{more}"))


def verify(library: LibraryFolder, as_json: AsJson = False) -> None:
    """Check a library: the hash of every file, the shape of every tree, the digest of every paper.

    Exit code 0 if everything is intact, 1 if something is damaged. Nothing is changed.

    **Example**

        eqkin verify --library my-papers
    """
    from eqkin.api import verify as verify_folder

    with ProgressDisplay("{done:,} papers checked") as display:
        report = verify_folder(library, display.update)

    def render() -> None:
        for note in report.notes:
            typer.echo(f"note: {note}")
        for problem in report.problems:
            typer.secho(strip_control_chars(f"problem: {problem}"), fg="red")
        state = f"{len(report.problems)} problems" if report.problems else "no problems"
        typer.echo(f"{report.papers:,} papers, {report.equations:,} equations, {report.trees:,} trees: {state}")
        typer.echo(f"content {report.content}")

    emit(report, as_json, render)
    if report.problems:
        raise typer.Exit(1)


def export(
    library: LibraryFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write; standard output by default.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Include equations that did not convert, with their reasons.")
    ] = False,
    mathml: Annotated[bool, typer.Option("--mathml/--no-mathml", help="Include the MathML of each equation.")] = True,
    forest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all trees to one file for `eqkin train` instead; compressed if FILE ends in .zst.",
        ),
    ] = None,
    citations: Annotated[bool, typer.Option("--citations", help="Write citations instead: paper, cited id.")] = False,
    equalities: Annotated[
        bool, typer.Option("--equalities", help="Write pairs of sides of equalities and inequalities instead.")
    ] = False,
) -> None:
    """Write a library's equations as JSON lines: LaTeX, MathML, paper, section, and the surrounding text.

    **Examples**

        eqkin export --out equations.jsonl

        eqkin export --no-mathml | head -3

        eqkin export --forest corpus.zst

        eqkin export --citations --out citations.jsonl
    """
    from eqkin.files import write_stream
    from eqkin.library.queries import list_citations
    from eqkin.library.records import export_equations

    with eqkin.Library.open(library) as opened:
        if forest:
            _export_corpus(opened, forest)
            return
        records: Iterable[dict[str, Any]] = export_equations(opened, failed=failed, mathml=mathml)
        if citations:
            records = ({"paper": paper, "cites": cited} for paper, cited in list_citations(opened))
        elif equalities:
            from eqkin.learning.data import Corpus
            from eqkin.learning.finetuning import export_pairs

            records = export_pairs(Corpus.from_library(opened))
        lines = (orjson.dumps(record) + b"\n" for record in records)
        if out:
            write_stream(out, lines)
        else:
            with guard_output():
                for line in lines:
                    sys.stdout.buffer.write(line)


def _export_corpus(library: eqkin.Library, path: Path) -> None:
    from eqkin.learning.data import Corpus

    with ProgressDisplay("writing trees"):
        corpus = Corpus.from_library(library)
        corpus.save(path)
    numbers = corpus.compute_statistics()
    typer.echo(
        f"{numbers['trees']:,} trees written to {path} "
        f"(papers: {numbers['papers']:,}, works: {numbers['works']:,}, size: {path.stat().st_size / 1e6:,.1f} MB)"
    )


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, for example papers.eqkin.")],
    library: LibraryFolder,
) -> None:
    """Write a library with its index to one file, which another machine opens with `eqkin unpack`.

    **Example**

        eqkin pack --library my-papers my-papers.eqkin
    """
    from eqkin.api import pack as pack_library

    with ProgressDisplay("packing: {done:,.1f} MB") as display:
        pack_library(library, file, lambda count: display.update(count / 1e6))
    typer.echo(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")


def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `eqkin pack` wrote.")],
    library: LibraryFolder,
) -> None:
    """Make a library from a packed file; every byte is checked, and an existing folder is never overwritten.

    **Example**

        eqkin unpack --library my-papers my-papers.eqkin
    """
    from eqkin.api import unpack as unpack_library

    with ProgressDisplay("unpacking: {done:,.1f} MB") as display:
        unpack_library(file, library, lambda count: display.update(count / 1e6))
    typer.echo(f"{library}: ready, `eqkin search --library {library}` searches it")


def push(
    library: LibraryFolder,
    milvus: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar=MILVUS_VARIABLE,
            help="The server, as in `http://localhost:19530`; user and password in it, or in `$MILVUS_TOKEN`.",
            show_default=False,
        ),
    ],
    collection: CollectionName = "eqkin",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete papers from the collection that the library does not have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load a library into a Milvus server, from which `eqkin serve --milvus` serves it on any number of machines.

    Papers that are there already are skipped, changed ones replaced. Stop it at any time: the same command continues
    where it stopped.

    **Examples**

        eqkin push --milvus http://localhost:19530

        eqkin push --milvus https://eqkin:secret@milvus.example.org:19530 --collection physics --library my-papers
    """
    from eqkin.cluster.milvus_push import push_library
    from eqkin.index.manifest import load_encoder

    with (
        stop_politely("what was pushed stays, run the same command again to continue"),
        eqkin.Library.open(library) as opened,
        ProgressDisplay("connecting") as display,
    ):

        def show(report: PushReport) -> None:
            done = report.papers + report.unchanged
            text = f"{done:,} of {report.total:,} papers, {report.equations:,} equations"
            display.update(done, report.total, text=text)

        digest = load_encoder(opened.folder).digest
        report = push_library(opened, milvus, digest, collection, prune=prune, progress=show)
    emit(report, as_json, lambda: _print_pushed(report, collection))


def _print_pushed(report: PushReport, collection: str) -> None:
    rate = report.equations / max(report.seconds, 1e-9)
    typer.echo(f"{report.papers:,} papers pushed, {report.unchanged:,} there already, {report.removed:,} dropped")
    typer.echo(
        f"{report.equations:,} equations pushed ({rate:,.0f}/s), {report.deleted:,} deleted; "
        f"the collection {collection} has {report.collection:,}"
    )
    print_problems(report.oversized, "too large for Milvus, left out", "--json lists them")
