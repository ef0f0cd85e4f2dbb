"""`eqkin report`: what the experiments found, as a page, LaTeX tables and Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqkin.cli.console import guard_output


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(report)


def report(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where `eqkin evaluate` kept its results.")] = Path(
        "evaluation"
    ),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page.", show_default="DIR/report.html")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For LaTeX tables, a file each.", show_default="DIR/latex")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write Markdown, with plots in `figures/` beside it.")
    ] = None,
) -> None:
    """Make one self-contained HTML page of all results, the paper's figures beside ours, and LaTeX tables.

    **Examples**

        eqkin report

        eqkin report evaluation --out results.html --latex tables/ --markdown docs/RESULTS.md
    """
    from eqkin.evaluation.report import EXPERIMENTS, write_report

    written = write_report(folder, out or folder / "report.html", latex or folder / "latex", markdown)
    for name in written.missing:
        typer.secho(f"not run yet: {EXPERIMENTS[name]}", err=True, fg="yellow")
    with guard_output():
        typer.echo(f"{len(written.experiments)} experiments: {written.files[0]}")
        typer.echo(f"tables for LaTeX: {latex or folder / 'latex'}")
        if markdown:
            typer.echo(f"Markdown: {markdown}")
