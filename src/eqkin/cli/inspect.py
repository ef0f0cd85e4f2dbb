"""`eqkin stats`, `eqkin verify`, `eqkin export`: looking into a library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from eqkin.api import Library
from eqkin.cli.index import describe_sizes, get_index_sizes
from eqkin.cli.options import AsJson, LibraryFolder, guard_output


def register(app: typer.Typer) -> None:
    """Put the commands into the app."""
    app.command()(stats)
    app.command()(verify)
    app.command()(export)


def stats(
    library: LibraryFolder,
    as_json: AsJson = False,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Also draw the figures into this folder.")] = None,
) -> None:
    """Show what is in a library: papers, equations by outcome, why some failed, subject areas.

    With `--figures`: papers per subject area, the 50 most frequent characters, and the reasons of failure, as PNG and
    SVG.

    **Examples**

        eqkin stats

        eqkin stats --library my-papers --json

        eqkin stats --figures plots/
    """
    from eqkin.library.statistics import compute_statistics, count_characters

    with Library.open(library, create=False) as opened:
        numbers = compute_statistics(opened) | {"index": get_index_sizes(library)}
        with guard_output():
            if as_json:
                typer.echo(orjson.dumps(numbers).decode())
            else:
                print_statistics(numbers)
        if figures:
            from eqkin.plots import draw_library_figures

            for path in draw_library_figures(numbers, count_characters(opened).most_common(50), figures):
                typer.echo(f"drawn: {path}", err=True)


def print_statistics(numbers: dict[str, Any]) -> None:
    """Show a library's statistics as tables."""
    console = Console()
    equations = numbers["equations"]
    found, converted = max(equations["found"], 1), max(equations["converted"], 1)
    table = Table(title=numbers["library"], title_justify="left", show_header=False, box=None, pad_edge=False)
    rows = [
        ("papers", f"{numbers['papers']:,} ({numbers['papers_with_equations']:,} with equations)"),
        ("equations found", f"{equations['found']:,}"),
        ("  converted", f"{equations['converted']:,} ({equations['converted'] / found:.2%})"),
        (
            "  of these degraded",
            f"{equations['degraded']:,} ({equations['degraded'] / converted:.2%})",
        ),
        ("  of these repaired", f"{equations['repaired']:,}"),
        ("diagrams, apart", f"{equations['diagrams']:,}"),
        ("sections, citations", f"{numbers['sections']:,}, {numbers['citations']:,}"),
        (
            "nodes a tree",
            f"{numbers['trees']['mean_nodes']:.1f} on average, {numbers['trees']['median_nodes']:.0f} median",
        ),
        ("on disk", f"{numbers['bytes'] / 1e6:,.1f} MB"),
        ("converter", f"{numbers['converter']['name']} {numbers['converter']['version']}"),
    ]
    if numbers.get("index"):
        rows.insert(-1, ("  of this the index", describe_sizes(numbers["index"], equations["converted"])))
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    for title, counts in (
        ("equations that failed, by reason", equations["failed"]),
        ("papers that failed, by reason", numbers["papers_failed"]),
        ("papers by subject area", numbers["fields"]),
        ("commands nobody defines, shown by name", numbers["unknown_commands"]),
    ):
        if counts:
            shown = list(counts.items())[:12]
            more = f"; {len(counts) - len(shown)} more" if len(counts) > len(shown) else ""
            console.print(
                f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in shown) + more,
                markup=False,
                highlight=False,
            )


def verify(library: LibraryFolder, as_json: AsJson = False) -> None:
    """Check a library: every file against its hash, every tree for its shape, every paper against its digest.

    Exit code 0 if all is well, 1 if something is damaged. Reading only: nothing is changed.

    **Example**

        eqkin verify --library my-papers
    """
    from eqkin.api import verify as check

    console = Console(stderr=True)
    with console.status("checking ...") as status:
        verdict = check(library, lambda papers: status.update(f"{papers:,} papers checked"))
    if as_json:
        typer.echo(orjson.dumps(verdict).decode())
    else:
        for note in verdict.notes:
            typer.echo(f"note: {note}")
        for problem in verdict.problems:
            typer.secho(f"problem: {problem}", fg="red")
        state = f"{len(verdict.problems)} problems" if verdict.problems else "all well"
        typer.echo(f"{verdict.papers:,} papers, {verdict.equations:,} equations, {verdict.trees:,} trees: {state}")
        typer.echo(f"content {verdict.content}")
    if verdict.problems:
        raise typer.Exit(1)


def export(
    library: LibraryFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write; standard output by default.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Include equations that did not convert, with their reasons.")
    ] = False,
    mathml: Annotated[bool, typer.Option("--mathml/--no-mathml", help="With each equation's MathML.")] = True,
    forest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead: all trees in one file, what `eqkin train` learns from; compressed if FILE ends in .zst.",
        ),
    ] = None,
) -> None:
    """Write a library's equations as JSON lines: LaTeX, MathML, paper, section, and the prose around.

    **Examples**

        eqkin export --out equations.jsonl

        eqkin export --no-mathml | head -3

        eqkin export --forest corpus.zst
    """
    from eqkin.library.export import export_equations
    from eqkin.storage import write_stream

    with Library.open(library, create=False) as opened:
        if forest:
            _export_corpus(opened, forest)
            return
        lines = (orjson.dumps(equation) + b"\n" for equation in export_equations(opened, failed=failed, mathml=mathml))
        if out:
            write_stream(out, lines)
        else:
            with guard_output():
                for line in lines:
                    sys.stdout.buffer.write(line)


def _export_corpus(library: Library, path: Path) -> None:
    from eqkin.training.corpus import Corpus

    with Console(stderr=True).status("gathering trees ...") as status:
        corpus = Corpus.from_library(library)
        status.update(f"writing {len(corpus):,} trees ...")
        corpus.save(path)
    numbers = corpus.compute_statistics()
    typer.echo(
        f"{numbers['trees']:,} trees written to {path} "
        f"(papers: {numbers['papers']:,}, works: {numbers['works']:,}, size: {path.stat().st_size / 1e6:,.1f} MB)"
    )
