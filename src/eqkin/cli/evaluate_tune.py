"""`eqkin evaluate tune`: learn the ranking's weights anew from judged and labelled sets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from eqkin.cli.console import guard_output
from eqkin.cli.evaluate_output import open_progress
from eqkin.cli.evaluate_setup import JudgedSets, LabelledSets, check_distinct
from eqkin.cli.options import AsJson
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.evaluation.ranking_weights import CrossValidatedScore
    from eqkin.evaluation.results import Score


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the weights go, a safetensors file.")],
    judged_sets: JudgedSets = None,
    labelled_sets: LabelledSets = None,
    atlas: Annotated[bool, typer.Option("--atlas/--no-atlas", help="Learn from the atlas' kin groups too.")] = True,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The engine's network.", show_default="the bundled one")
    ] = None,
    trees: Annotated[int, typer.Option(min=1, max=2_000, help="How many the weights are made of.")] = 120,
    as_json: AsJson = False,
) -> None:
    """Learn how the ranking weighs counted structure, runs and vectors, from what people found related.

    Prints cross-validated scores beside those of the plain similarity: topics by weights learned from other topics,
    labelled sets by those learned from other sets. What is written is learned from all. Weights are for the network
    they were learned with; scores of sets they were learned from do not count. A judged folder holds `topics.tsv`,
    `formulas.tsv` (id<TAB>latex) and `qrels.txt`, as for `eqkin evaluate judged`. In Python, `Engine(library,
    ranker=Ranker.load(Path(FILE)))` ranks by them (`eqkin.search.engine`, `eqkin.search.rerank`).

    **Examples**

        eqkin evaluate tune ranking.safetensors --judged arqmath

        eqkin evaluate tune mine.safetensors --judged arqmath --labelled equations.json --model runs/mine/model
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.evaluation.ranking_weights import cross_validate, fit_examples, make_examples
    from eqkin.evaluation.sets.judged import JudgedSet
    from eqkin.evaluation.sets.labelled import load_atlas_set, read_labelled
    from eqkin.evaluation.systems.terms import import_optional

    import_optional("sklearn.ensemble")
    with open_progress(as_json) as tell:
        judged = [JudgedSet.read(folder) for folder in judged_sets or []]
        labelled = [read_labelled(path) for path in labelled_sets or []] + ([load_atlas_set()] if atlas else [])
        if not judged and not labelled:
            raise BadInput("there is nothing to learn from: give --judged or --labelled sets")
        check_distinct("sets", [one.name for one in judged] + [one.name for one in labelled])
        tell("comparing formulas")
        examples = make_examples(judged, labelled, Encoder.load(model))
        found = cross_validate(examples, trees=trees, tell=tell)
        tell("learning from all sets")
        fit_examples(examples, trees).save(file)
    with guard_output():
        if as_json:
            typer.echo(orjson.dumps({"file": str(file), "scores": [dataclasses.asdict(one) for one in found]}).decode())
            return
        for one in found:
            typer.echo(_format_line(one))
        typer.echo(f"weights written to {file}", err=True)


def _format_line(one: CrossValidatedScore) -> str:
    return (
        f"{one.given:16} {one.measure:9} plain {one.plain.value:.3f}   learned {_format_interval(one.learned)}   "
        f"difference {_format_interval(one.difference, '+')}"
    )


def _format_interval(score: Score, sign: str = "") -> str:
    interval = "" if score.low is None else f" [{score.low:{sign}.3f}, {score.high:{sign}.3f}]"
    return f"{score.value:{sign}.3f}{interval}"
