"""Results on disk: every experiment writes its tables as JSON and Markdown with figures; the report joins them.

results/NAME.json    tables, notes and facts
results/NAME.md      the same as a section of Markdown
results/figures/     its figures as PNG and SVG
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import orjson

from eqkin.errors import BadInput
from eqkin.evaluation.cache import make_folder
from eqkin.evaluation.context import FULL_SCALE, ExperimentContext
from eqkin.evaluation.tables import ExperimentResult
from eqkin.storage import write_file
from reproduce.plots import Plot, save_plots

EXPERIMENTS = ("ablation", "sets", "study", "equalities", "speed", "examples")  # in the report's order
_INTRODUCTION = """\
# Results

Written by `python -m reproduce report`; do not edit. "Paper" is Pfahler and Morik, *Semantic Search in Millions of
Equations*, KDD 2020. Brackets hold 95 % intervals, the best measured value of a column is bold. Rows in italics, marked
"paper" or "published", are figures of others, on their own data and without an interval.
"""


def save_result(
    context: ExperimentContext, result: ExperimentResult, plots: Sequence[Plot] = (), markdown: str = ""
) -> Path:
    """Write a result with its figures and further Markdown; return the path of the JSON file."""
    if context.scale != FULL_SCALE:
        result = result.mark_small_run()
    folder = make_folder(context.cache.folder / "results")
    text = "\n".join(part for part in (result.to_markdown(), markdown, save_plots(plots, folder)) if part)
    write_file(folder / f"{result.experiment}.md", text.encode())
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    path = folder / f"{result.experiment}.json"
    write_file(path, orjson.dumps(dataclasses.asdict(result), option=option) + b"\n")
    return path


def write_report(folder: Path, out: Path) -> list[str]:
    """Join the Markdown of all results in a folder, and copy their figures next to it; return their names."""

    def place(path: Path) -> tuple[int, str]:
        kind = next((name for name in EXPERIMENTS if path.stem == name or path.stem.startswith(f"{name}-")), "")
        return EXPERIMENTS.index(kind) if kind else len(EXPERIMENTS), path.stem

    paths = sorted((folder / "results").glob("*.md"), key=place)
    if not paths:
        raise BadInput(f"{folder}: no results; run experiments first, such as `python -m reproduce study`")
    make_folder(out.parent)
    write_file(out, "\n".join([_INTRODUCTION, *(path.read_text("utf-8") for path in paths)]).encode())
    if (folder / "results" / "figures").is_dir():
        shutil.copytree(folder / "results" / "figures", out.parent / "figures", dirs_exist_ok=True)
    return [path.stem for path in paths]
