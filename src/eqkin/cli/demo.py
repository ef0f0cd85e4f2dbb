"""`eqkin demo`: the bundled atlas as a library, and a look at it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from eqkin.cli.inspect import print_statistics
from eqkin.cli.options import data_folder
from eqkin.library import Library

_SHOWN = ("atlas:probability#bayes", "atlas:statistical-physics#ising", "atlas:finance#black-scholes")


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(demo)


def demo(
    library: Annotated[
        str,
        typer.Option(
            "--library", "-l", metavar="DIR", help="Where to build it.", show_default="the user's data folder"
        ),
    ] = "",
) -> None:
    """Build a library from the bundled atlas (articles of many fields) and show what is in it.

    **Example**

        eqkin demo
    """
    from eqkin.atlas import kin_groups
    from eqkin.library.statistics import statistics

    folder = library or str(data_folder() / "atlas")
    with Library.open(folder) as opened:
        report = opened.add("atlas:")
        typer.echo(f"The atlas is in {folder}: {report.papers} articles read, {report.unchanged} unchanged.\n")
        print_statistics(statistics(opened))
        for reference in _SHOWN:
            _show(opened, reference)
        groups = kin_groups()
    typer.echo(
        f"\n{len(groups)} groups of kin equations run through the atlas, "
        f"{sum(len(g.equations) for g in groups)} equations in all. One of them:"
    )
    group = next(g for g in groups if g.id == "bayes")
    typer.echo(f"  {group.name}: {group.idea}")
    for member in group.equations:
        typer.echo(f"    {member}")


def _show(library: Library, reference: str) -> None:
    from eqkin.latex.prose import around, plain_text
    from eqkin.mathml.tree import to_mathml

    key, label = reference.split("#")
    row = library.connection.execute(
        "SELECT e.*, s.title AS heading, s.latex AS prose FROM equations e "
        "JOIN papers p ON p.id = e.paper JOIN sections s ON s.id = e.section "
        "WHERE p.key = ? AND e.label = ?",
        (key, label),
    ).fetchone()
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f'\n{key}, section "{row["heading"]}"', style="bold")
    console.print(f"  ... {around(plain_text(row['prose']), row['mark'])[0][-200:]}")
    console.print(f"  LaTeX   {' '.join(row['latex'].split())}")
    console.print(f"  MathML  {to_mathml(library.tree(row['tree']))}", style="dim")
