"""`eqkin demo`: the bundled atlas as a library, and a look at it."""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from eqkin.cli.inspect import print_statistics
from eqkin.cli.options import data_folder
from eqkin.library import Library

_SHOWN = "atlas:probability#bayes"
_QUERIES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "the Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
}
_KIN = 5  # shown for each query


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
    """Build a library from the bundled atlas (articles of many fields), embed it, and look for the kin of two formulas.

    **Example**

        eqkin demo
    """
    from eqkin.library.statistics import statistics

    folder = library or str(data_folder() / "atlas")
    with Library.open(folder) as opened:
        report = opened.add("atlas:")
        typer.echo(f"The atlas is in {folder}: {report.papers} articles read, {report.unchanged} unchanged.\n")
        print_statistics(statistics(opened))
        _show(opened, _SHOWN)
        embedded = _Embedded(opened)
    for name, formula in _QUERIES.items():
        embedded.show_kin(name, formula)
    embedded.show_groups()


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
    console.print(f'\nOne of them, from {key}, section "{row["heading"]}"', style="bold")
    console.print(f"  ... {around(plain_text(row['prose']), row['mark'])[0][-200:]}")
    console.print(f"  LaTeX   {' '.join(row['latex'].split())}")
    console.print(f"  MathML  {to_mathml(library.tree(row['tree']))}", style="dim")


class _Embedded:
    """The equations of a library with their vectors, all in memory."""

    def __init__(self, library: Library) -> None:
        from eqkin.network.encoder import Encoder

        self.encoder = Encoder.load()
        rows = library.connection.execute(
            "SELECT e.tree, e.latex, e.label, p.key, s.title FROM equations e "
            "JOIN papers p ON p.id = e.paper JOIN sections s ON s.id = e.section WHERE e.tree IS NOT NULL"
        ).fetchall()
        by_tree = {row["tree"]: row for row in rows}
        start = time.perf_counter()
        parts = [(numbers, self.encoder.embed(forest)) for numbers, forest in library.forests()]
        seconds = time.perf_counter() - start
        self.rows = [by_tree[number] for numbers, _ in parts for number in numbers.tolist()]
        vectors = np.concatenate([vectors for _, vectors in parts])
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        typer.echo(
            f"\n{len(vectors):,} equations embedded in {self.encoder.dimensions} dimensions, "
            f"{len(vectors) / seconds:,.0f} a second."
        )

    def show_kin(self, name: str, formula: str) -> None:
        """The equations nearest to a formula."""
        console = Console(highlight=False, markup=False)
        console.print(f"\nKin of {name}: {formula}", style="bold")
        (query,) = self.encoder.encode([formula])
        similarity = self.vectors @ (query / np.linalg.norm(query))
        for place in np.argsort(-similarity)[:_KIN]:
            row = self.rows[place]
            console.print(f"  {similarity[place]:.3f}  {row['key']}, {row['title']}", style="dim")
            console.print(f"         {' '.join(row['latex'].split())}")

    def show_groups(self) -> None:
        """How often the nearest of all members of kin groups is of the same group."""
        from eqkin.atlas import kin_groups

        groups = kin_groups()
        place = {f"{row['key'].removeprefix('atlas:')}:{row['label']}": i for i, row in enumerate(self.rows)}
        members = [(group.id, place[member]) for group in groups for member in group.equations if member in place]
        label = np.array([name for name, _ in members])
        vectors = self.vectors[[i for _, i in members]]
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -np.inf)
        right = float((label[similarity.argmax(axis=1)] == label).mean())
        chance = float(np.mean([((label == name).sum() - 1) / (len(label) - 1) for name in label]))
        typer.echo(
            f"\n{len(groups)} groups of kin equations run through the atlas, {len(members)} equations in all. "
            f"Of these, {right:.0%} have one of their own group as the nearest (by chance: {chance:.1%})."
        )
