"""Speed and size: what `eqkin bench` measured, beside the few figures the paper has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.speed_parts import (
    SpeedPart,
    make_encoding_part,
    make_index_part,
    make_search_part,
    make_training_part,
)
from eqkin.evaluation.results import ExperimentResult
from eqkin.evaluation.sets.json_file import read_json

_PARTS: dict[str, Callable[[Any], SpeedPart]] = {
    "train": make_training_part,
    "index": make_index_part,
    "encode": make_encoding_part,
    "search": make_search_part,
}
_TOLD_BY = {"train": "batches", "index": "systems", "encode": "numpy_trees_per_second", "search": "searches_per_second"}


def run_speed(context: ExperimentContext, figures: dict[str, Any]) -> ExperimentResult:
    """Put what benchmarks measured beside the paper's figures.

    Args:
        context: The surroundings.
        figures: What `eqkin bench NAME --json` printed, by NAME: train, encode, index, search; those that are not
            there are left out. "machines" may say, by NAME, where each ran.

    Raises:
        BadInput: there is nothing to show, or something is no output of that benchmark.
    """
    known = {name: figures[name] for name in _PARTS if name in figures}
    if not known:
        raise BadInput(f"no benchmarks to report: give what {_list_commands(_PARTS)} print")
    context.log(f"speed: {', '.join(known)}")
    parts = [_read_part(name, content) for name, content in known.items()]
    left_out = [name for name in _PARTS if name not in known]
    machines = figures.get("machines", {})
    facts = {f"machine of {name}": str(machines.get(name, "not told")) for name in known}
    return ExperimentResult(
        "speed",
        "Speed and size",
        "Learning takes in about 1,300 triplets a second on a GTX 1080, reading from disk not counted; the index of all"
        " 28,973,591 equations (annoy) takes 13 GB on disk.",
        [*(text for part in parts for text in part.findings), *_silent(left_out)],
        [table for part in parts for table in part.tables],
        [plot for part in parts for plot in part.plots],
        differences=[
            "Speeds are of our machines, the paper's of its own: ratios between the two say what can be expected today,"
            " not which program is better. Those against torch-geometric, annoy and the bare products are of one run on"
            " one machine.",
            "Speeds have no intervals: a benchmark prints the mean or median of one run. Where it times single queries,"
            " the median and the 99th percentile over all of them are shown instead.",
            *(text for part in parts for text in part.differences),
        ],
        facts=facts | {"commands": _list_commands(known)},
    )


def read_figures(paths: Iterable[Path]) -> dict[str, Any]:
    """What benchmarks printed into files, by the benchmark's name, which the content tells.

    Raises:
        BadInput: a file cannot be read, or is no output of one of them.
    """
    figures: dict[str, Any] = {}
    for path in paths:
        content = read_json(path, f"run `eqkin bench NAME --json > {path}`")
        first = content[0] if isinstance(content, list) and content else content
        name = next((name for name, key in _TOLD_BY.items() if isinstance(first, dict) and key in first), None)
        if name is None:
            raise BadInput(f"{path}: not what {_list_commands(_PARTS)} print")
        figures[name] = content
        if "machine" in first:
            figures.setdefault("machines", {})[name] = first["machine"]
    return figures


def _read_part(name: str, content: Any) -> SpeedPart:
    try:
        return _PARTS[name](content)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"{name}: not what `eqkin bench {name} --json` prints ({error!r}); run it again") from error


def _silent(names: Iterable[str]) -> list[str]:
    listed = _list_commands(names)
    return [f"Not measured: {listed}."] if listed else []


def _list_commands(names: Iterable[str]) -> str:
    return ", ".join(f"`eqkin bench {name} --json`" for name in names)
