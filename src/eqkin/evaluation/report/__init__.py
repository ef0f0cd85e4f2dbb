"""`eqkin report`: what experiments found, as one HTML page, LaTeX tables, plots and Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.evaluation.report.formatting import make_slug, make_slugs
from eqkin.evaluation.results import ExperimentResult
from eqkin.storage import write_file

# In the order of the report, with the command that runs each.
EXPERIMENTS = {
    "ablation": "eqkin evaluate ablation",
    "labelled": "eqkin evaluate labelled --systems paper,bag-of-words",
    "study": "eqkin evaluate study",
    "equalities": "eqkin evaluate equalities",
    "judged": "eqkin evaluate judged DIR",
    "speed": "eqkin evaluate speed",
    "examples": "eqkin evaluate examples",
}


@dataclass(frozen=True)
class Written:
    """What a report was made of, and its files."""

    experiments: list[str]
    missing: list[str]  # experiments that were not run yet
    files: list[Path] = field(default_factory=list)


def write_report(
    results_folder: Path, out_html: Path, latex_folder: Path | None = None, markdown: Path | None = None
) -> Written:
    """Write the report of the results in a folder: a page, and where asked LaTeX tables and Markdown.

    Plots of the Markdown go into `figures/` beside it, as PNG and SVG.

    Args:
        results_folder: Where `EXPERIMENT.json` lie, or the store around it.
        out_html: The page; it needs no other file.
        latex_folder: For `EXPERIMENT-TABLE.tex`, a table each.
        markdown: The Markdown file.

    Raises:
        BadInput: there are no results, or plots but no matplotlib.
        CorruptData: a file is no result.
        StorageFailed: a file could not be written.
    """
    from eqkin.evaluation.report import html

    results = load_results(results_folder)
    found = [result.experiment for result in results]
    missing = {name: command for name, command in EXPERIMENTS.items() if not any(_is_of(name, one) for one in found)}
    written = [_write(out_html, html.page(results, missing).encode())]
    if latex_folder is not None:
        written += _write_latex(results, latex_folder)
    if markdown is not None:
        written += _write_markdown(results, missing, markdown)
    return Written(found, list(missing), written)


def load_results(folder: Path) -> list[ExperimentResult]:
    """All results of a folder, in the report's order."""
    is_store = (folder / "results").is_dir()
    folder = folder / "results" if is_store else folder
    try:
        results = [ExperimentResult.load(path) for path in sorted(folder.glob("*.json"))]
    except CorruptData as error:
        if is_store:
            raise
        raise CorruptData(f"{error}; or give the folder that `eqkin evaluate --out` was given") from error
    if not results:
        commands = "".join(f"\n  {command}" for command in EXPERIMENTS.values())
        raise BadInput(f"{folder}: there are no results to report; run some of the experiments first:{commands}")
    return sorted(results, key=lambda result: (_place(result.experiment), result.experiment))


def _place(experiment: str) -> int:
    return next((place for place, name in enumerate(EXPERIMENTS) if _is_of(name, experiment)), len(EXPERIMENTS))


def _is_of(name: str, experiment: str) -> bool:
    """Whether it is that experiment, or one of several of its kind: judged-arqmath."""
    return experiment == name or experiment.startswith(f"{name}-")


def _write_latex(results: list[ExperimentResult], folder: Path) -> list[Path]:
    from eqkin.evaluation.report.latex import write_latex

    tables = [(_full_name(result, table.name), table) for result in results for table in result.tables]
    names = make_slugs([name for name, _ in tables])
    return [
        _write(folder / f"{name}.tex", write_latex(table).encode())
        for name, (_, table) in zip(names, tables, strict=True)
    ]


def _write_markdown(results: list[ExperimentResult], missing: dict[str, str], path: Path) -> list[Path]:
    from eqkin.evaluation.report.markdown import write_markdown
    from eqkin.evaluation.report.plots import to_png, to_svg

    plots = {(i, j): plot for i, result in enumerate(results) for j, plot in enumerate(result.plots)}
    names = make_slugs([_full_name(results[i], plot.name) for (i, _), plot in plots.items()])
    written = []
    for name, plot in zip(names, plots.values(), strict=True):
        written.append(_write(path.parent / "figures" / f"{name}.svg", to_svg(plot)))
        written.append(_write(path.parent / "figures" / f"{name}.png", to_png(plot)))
    pictures = {place: f"figures/{name}" for place, name in zip(plots, names, strict=True)}
    return [_write(path, write_markdown(results, missing, pictures).encode()), *written]


def _full_name(result: ExperimentResult, name: str) -> str:
    """A table's or plot's name with its experiment's before it, once."""
    experiment, name = make_slug(result.experiment), make_slug(name)
    return name if name == experiment or name.startswith(f"{experiment}-") else f"{experiment}-{name}"


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{path.parent}: could not be made ({error.strerror or error})") from error
    write_file(path, content)
    return path
