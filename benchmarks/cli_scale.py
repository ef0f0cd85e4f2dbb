"""`python -m benchmarks scale` and `python -m benchmarks grow`: what a library costs at several sizes, and corpora of any size."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console

from eqkin.cli.options import AsJson
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from benchmarks.growth import GrownCorpus

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...", help="What corpora are grown from: anything `eqkin add` takes."),
]
Seed = Annotated[int, typer.Option(min=0, help="Another corpus for another number.")]
_ATLAS = ["atlas:"]


def scale(
    folder: Annotated[
        Path, typer.Option("--folder", "-f", metavar="DIR", help="For corpora, libraries and results; much room.")
    ],
    sources: Sources = _ATLAS,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, metavar="N", help="Equations; repeatable.", show_default="10000, 100000"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to read and embed with.")] = os.cpu_count()
    or 1,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="Who reads and embeds: processes or ray.", show_default="processes")
    ] = "",
    milvus: Annotated[
        str, typer.Option(metavar="URI", help="Also push to this Milvus server, and search it.", show_default="no")
    ] = "",
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Searches at each size, one at a time.")] = 500,
    steps: Annotated[
        list[str] | None, typer.Option("--step", metavar="NAME", help="Only these; repeatable.", show_default="all")
    ] = None,
    target: Annotated[int, typer.Option(min=1, metavar="N", help="Equations to project to.")] = 30_000_000,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw scale.svg and scale.png there.", show_default="no")
    ] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Put the tables into this Markdown file, between its marks.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Grow corpora, build a library of each and search it: time, disk and memory by size, and what 30 million take.

    The steps (grow, add, index, serve, verify, push, milvus, again, day) are the commands a user would run, one after
    the other; `DIR/results.jsonl` has a line for each. Stop it whenever you like: what has its line is not done again.
    Delete a line (and those after it of the same size) to measure it anew.

    **Examples**

        python -m benchmarks scale --folder ~/scale

        python -m benchmarks scale papers.jsonl.zst --folder ~/scale --size 10000 --size 100000 --size 1000000 --figures docs

        python -m benchmarks scale papers.jsonl.zst --folder ~/scale --milvus http://localhost:19530
    """
    from benchmarks import scale_figure, scale_table
    from benchmarks.scale import ScaleSettings, run_study
    from eqkin.storage import write_file

    if into is not None:  # before hours of work
        scale_table.insert_tables(_text(into), "")
    settings = ScaleSettings(
        tuple(sources), folder, jobs=jobs, engine=engine, milvus=milvus, searches=searches, seed=seed
    )
    with Console(stderr=True).status("measuring ...") as status:
        records = run_study(settings, sizes or [10_000, 100_000], status.update, steps or ())
    written = scale_table.format_tables(records, target)
    typer.echo(orjson.dumps(records).decode() if as_json else written)
    if figures is not None:
        scale_figure.draw(records, figures, target)
    if into is not None:
        write_file(into, scale_table.insert_tables(_text(into), written).encode())


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error


def grow(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Gets the tars and the metadata snapshot.")],
    equations: Annotated[int, typer.Option("--equations", "-n", min=1, metavar="N", help="How many, at least.")],
    sources: Sources = _ATLAS,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make a large corpus of a small one: bulk archives as arXiv ships them, of papers that nobody wrote.

    Each paper puts pieces of several papers of one field together and renames the letters of its formulas, so that
    equations are new, and like the old ones in size and shape. For measuring only. Stop it whenever you like: run the
    same command again and it goes on where it was; ask for more and it adds to what is there.

    **Example**

        python -m benchmarks grow papers.jsonl.zst -n 1000000 -o ~/million && eqkin add ~/million --library million
    """
    from benchmarks.growth import grow_corpus as grown

    start = time.monotonic()
    with Console(stderr=True).status("cutting papers up ...") as status:

        def show(growth: GrownCorpus) -> None:
            status.update(f"{growth.papers:,} papers, {growth.equations:,} of {equations:,} equations")

        growth = grown(sources, out, equations, seed=seed, progress=show)
    figures = {"papers": growth.papers, "equations": growth.equations, "tars": len(growth.tars)}
    if as_json:
        typer.echo(orjson.dumps(figures | {"seconds": time.monotonic() - start}).decode())
    else:
        typer.echo(
            f"{growth.papers:,} papers with {growth.equations:,} equations in {len(growth.tars):,} tars in {out}"
        )
