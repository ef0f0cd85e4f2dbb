"""`python -m benchmarks NAME`: measure eqkin against a peer or a limit."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.console import Console

from benchmarks.encode import measure_encode
from benchmarks.golden import app as golden
from benchmarks.grow import grow
from benchmarks.ingest import measure_ingest
from benchmarks.load import measure_load
from benchmarks.report import BenchmarkReport
from benchmarks.scale import measure_scale
from benchmarks.search import measure_search
from benchmarks.size import measure_size
from benchmarks.torture.fuzz import run_fuzz
from benchmarks.torture.storage import run_storage
from eqkin.cli.console import run_app
from eqkin.cli.options import LibraryFolder
from eqkin.cli.train import CorpusFile, load_corpus, require_torch

# Each campaign has its part of the time.
_CAMPAIGNS = ((run_storage, 0.6), (run_fuzz, 0.4))


def measure_train(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Triplets per step; repeatable.", show_default="1024, 128")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of each measurement.")] = 10.0,
    recipe: Annotated[
        list[str] | None, typer.Option(help="The recipe to train; repeatable.", show_default="paper, eqkin")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
) -> BenchmarkReport:
    """Time training against torch-geometric (if installed) and the bare matrix products, on the same batches.

    **Example**

        python -m benchmarks train corpus.zst --device cpu --batch 16 --seconds 3
    """
    require_torch()
    from benchmarks.train import measure_training
    from eqkin.learning.config import choose_device, get_recipe

    recipes = [get_recipe(name) for name in recipe or ("paper", "eqkin")]
    data = load_corpus(corpus, library)
    return measure_training(data, recipes, batch or [1_024, 128], choose_device(device), seconds)


def measure_torture(
    seconds: Annotated[float, typer.Option(min=1, help="Duration of all campaigns together.")] = 3_600,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
) -> BenchmarkReport:
    """Kill processes, cut the power, let calls fail, damage files, feed nonsense; count what eqkin does not survive.

    **Example**

        python -m benchmarks torture --seconds 3600
    """
    report = BenchmarkReport("torture", {"seconds": seconds, "seed": seed, "errors": 0})
    for run, part in _CAMPAIGNS:
        for name, cases, failures, note in run(seconds * part, seed):
            report.add("Torture", name, cases=cases, failures=failures, note=note)
            report.facts["errors"] += failures
    return report


def print_report(report: BenchmarkReport, as_json: bool) -> None:
    """Print a report; exit with code 1 if there were errors."""
    if as_json:
        typer.echo(orjson.dumps(report.to_dict(), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode())
    else:
        report.print(Console(highlight=False, emoji=False))
    if report.facts.get("errors"):
        raise typer.Exit(1)


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    result_callback=print_report,
    help="Measure eqkin against a peer or a limit, in one run.",
)
app.command("ingest")(measure_ingest)
app.command("encode")(measure_encode)
app.command("search")(measure_search)
app.command("size")(measure_size)
app.command("train")(measure_train)
app.command("load")(measure_load)
app.command("scale")(measure_scale)
app.command("grow")(grow)
app.command("torture")(measure_torture)
app.add_typer(golden, name="golden")


@app.callback()
def read_options(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure eqkin against a peer or a limit, in one run."""


def main() -> None:
    """Run the command line."""
    run_app(app, "python -m benchmarks")


if __name__ == "__main__":
    main()
