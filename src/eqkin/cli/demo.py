"""`eqkin demo`: the bundled atlas as a library, a look at it, and the page over it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from eqkin.api import Library
from eqkin.cli.inspect import print_statistics
from eqkin.cli.options import get_data_folder
from eqkin.cli.serve import Host, OpenPage, Port, run_server

if TYPE_CHECKING:
    from eqkin.index import VectorIndex

_SHOWN_EQUATION = "atlas:probability#bayes"
_QUERIES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "the Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
}
_SHOWN_HITS = 5  # shown for each query


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
    host: Host = "127.0.0.1",
    port: Port = 8017,
    open_page: OpenPage = False,
) -> None:
    """Build a library from the bundled atlas (articles of many fields), look for the kin of two formulas, and serve it.

    With `NO_SERVE=1` in the environment it stops before serving.

    **Example**

        eqkin demo --open
    """
    from eqkin.library.statistics import compute_statistics

    folder = library or str(get_data_folder() / "atlas")
    with Library.open(folder) as opened:
        report = opened.add("atlas:")
        typer.echo(f"The atlas is in {folder}: {report.papers} articles read, {report.unchanged} unchanged.\n")
        print_statistics(compute_statistics(opened))
        _show_equation(opened, _SHOWN_EQUATION)
        vectors = _embed_equations(opened)
        for name, formula in _QUERIES.items():
            _show_hits(opened, name, formula)
        _show_groups(opened, vectors)
    if os.environ.get("NO_SERVE", "0") in ("", "0"):
        typer.echo()
        run_server(Path(folder), host, port, open_page)


def _show_equation(library: Library, reference: str) -> None:
    from eqkin.library.records import get_equation

    equation = get_equation(library, reference)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f'\nOne of them, from {equation.paper.key}, section "{equation.section}"', style="bold")
    console.print(f"  ... {equation.before[-200:]}")
    console.print(f"  LaTeX   {' '.join(equation.latex.split())}")
    console.print(f"  MathML  {equation.mathml}", style="dim")


def _embed_equations(library: Library) -> VectorIndex:
    from eqkin.encoder.encoder import Encoder
    from eqkin.index import VectorIndex, update_index

    encoder = Encoder.load()
    report = update_index(library, encoder)
    rate = f", {report.embedded / report.seconds:,.0f} a second" if report.embedded else ", none of them new"
    vectors = VectorIndex.open(library, encoder.digest)
    typer.echo(f"\n{len(vectors.trees):,} equations embedded in {encoder.dimensions} dimensions{rate}.")
    return vectors


def _show_hits(library: Library, name: str, formula: str) -> None:
    """The equations nearest to a formula."""
    from eqkin.cli.search_output import print_results

    typer.secho(f"\nKin of {name}: {formula}", bold=True)
    print_results(library.search(formula, k=_SHOWN_HITS), latex=False, titled=False)


def _show_groups(library: Library, index: VectorIndex) -> None:
    """How often the nearest of all members of kin groups is of the same group."""
    from eqkin.atlas import load_equation_groups
    from eqkin.library.queries import list_labels

    groups = load_equation_groups()
    tree = {f"{key.removeprefix('atlas:')}:{label}": number for key, label, number in list_labels(library)}
    members = [(group.id, tree[member]) for group in groups for member in group.equations if member in tree]
    label = np.array([name for name, _ in members])
    vectors = index.get_vectors(np.array([number for _, number in members], np.int64))
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    right = float((label[similarity.argmax(axis=1)] == label).mean())
    chance = float(np.mean([((label == name).sum() - 1) / (len(label) - 1) for name in label]))
    typer.echo(
        f"\n{len(groups)} groups of kin equations run through the atlas, {len(members)} equations in all. "
        f"Of these, {right:.0%} have one of their own group as the nearest (by chance: {chance:.1%})."
    )
