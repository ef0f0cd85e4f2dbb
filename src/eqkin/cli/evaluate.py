"""`eqkin evaluate`: compare systems on labelled and judged formulas, with intervals and tests."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from eqkin.cli.console import emit
from eqkin.cli.options import AsJson
from eqkin.cli.progress import open_progress
from eqkin.errors import BadInput

SystemNames = Annotated[
    str,
    typer.Option(
        "--systems",
        "-s",
        metavar="NAMES",
        help="Systems, separated by commas: eqkin, eqkin-vector, paper, tfidf-latex, or folders of networks.",
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare eqkin with a baseline, with networks and with runs of other systems, with intervals and tests.",
)


@app.command()
def labelled(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE.json]...", help='[{"latex": ..., "label": ...}]; by default the atlas.'),
    ] = None,
    names: SystemNames = "",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the network that the search engine uses.", show_default="the bundled one"
        ),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip-unreadable", help="Leave out formulas that cannot be read.")] = False,
    as_json: AsJson = False,
) -> None:
    """Labelled equations: does the nearest one have the same label (accuracy), are pairs of a label nearest (ranking).

    Without `--systems` the search engine is measured, and its vector alone. With several systems, the others are
    tested against the first. With `--json` and no `--systems`: {"accuracy": percent, "ranking": percent, "embedding":
    {both, of the vector alone}, "intervals": ...}.

    **Examples**

        eqkin evaluate labelled equations.json --json

        eqkin evaluate labelled equations.json --systems eqkin,tfidf-latex,runs/mine
    """
    from eqkin.evaluation.labelled import compare_labelled, load_atlas_set, read_labelled, summarize_labelled
    from eqkin.evaluation.systems import make_systems

    if names and model:
        raise BadInput(f"--model is for the engine: name {model} among the --systems instead")
    with open_progress(as_json):
        sets = [read_labelled(path, skip_unreadable=skip) for path in files or []] or [load_atlas_set()]
        check_distinct("labelled sets", [one.name for one in sets])
        for one in sets:
            if one.skipped and not as_json:
                typer.echo(f"{one.name}: {len(one.skipped):,} formulas cannot be read and are left out", err=True)
        systems = make_systems(split_names(names))
        results: dict[str, Any] = {}
        for one in sets:
            results[one.name] = compare_labelled(systems, one) if systems else summarize_labelled(one, model)

    def render() -> None:
        for name, result in results.items():
            rows = result if systems else [{"system": "eqkin", **result}]
            typer.echo(f"{name}:")
            for row in rows:
                typer.echo(f"  {row['system']:18} {_describe_scores(row)}")
                if "embedding" in row:
                    alone = {**row["embedding"], "intervals": row["intervals"]["embedding"]}
                    typer.echo(f"  {'vector alone':18} {_describe_scores(alone)}")
                for warning in row.get("warnings", ()):
                    typer.echo(f"  {warning}")

    emit(results if len(results) > 1 else next(iter(results.values())), as_json, render)


@app.command()
def judged(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="topics.tsv, formulas.tsv and qrels.txt; or ARQMath or NTCIR-12."),
    ],
    names: SystemNames = "eqkin,eqkin-vector,paper,tfidf-latex",
    runs: Annotated[
        list[Path] | None, typer.Option("--run", metavar="FILE", help="TREC run of another system; repeatable.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="System to test the others against.", show_default="the first")] = "",
    save_runs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the list of each system as a TREC run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judged formulas: nDCG', MAP', P'@10 and bpref of systems and runs, with paired tests.

    The folder has `topics.tsv` and `formulas.tsv` (lines of id, tab, LaTeX) and `qrels.txt` (lines of topic 0 formula
    grade; relevant from grade 2 on). A run has lines of topic Q0 formula rank score tag, and the name of its file.

    **Examples**

        eqkin evaluate judged arqmath --systems eqkin,tfidf-latex --json

        eqkin evaluate judged arqmath --run their-run.txt --baseline tfidf-latex
    """
    from eqkin.evaluation import compare

    check_distinct("runs", [path.stem for path in runs or []])
    with open_progress(as_json) as log:
        chosen = [*split_names(names), *(runs or [])]
        found = compare(chosen, folder, baseline=baseline, runs_folder=save_runs, log=log)
    emit(dataclasses.asdict(found.sets[0]), as_json, lambda: typer.echo(str(found)))


def check_distinct(what: str, names: list[str]) -> None:
    """Raise `BadInput` if two things have the same name in the tables."""
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput(f"{count} {what} have the name {name}, from their files: rename one")


def split_names(names: str) -> list[str]:
    """Split names at commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _describe_scores(row: dict[str, Any]) -> str:
    parts = []
    for key in ("accuracy", "ranking"):
        low, high = row["intervals"][key]
        p = f", p {row['p'][key]:.3f}" if "p" in row else ""
        parts.append(f"{key} {row[key]:.1f} % [{low:.1f}, {high:.1f}]{p}")
    return "   ".join(parts)
