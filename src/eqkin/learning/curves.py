"""The curves of a training run, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.storage.files import make_folder, write_file

# Title of the panel of each field of a metrics record.
_PANELS = {
    "ranking": "Held-out ranking score",
    "loss": "Loss",
    "similarity": "Loss: similarity",
    "masking": "Loss: masking",
    "structure": "Loss: structure",
    "context": "Loss: context",
    "words": "Loss: words",
    "learning_rate": "Learning rate",
    "triplets_per_second": "Triplets per second",
}
_COLUMNS = 3
# Of a longer run, each point of a curve is the mean of some records.
_MAX_POINTS = 200
_COLOUR = "#0072b2"
# A fixed salt and no date: the same run gives the same bytes.
_STYLE: dict[Any, Any] = {"axes.grid": True, "grid.color": "#dddad2", "svg.hashsalt": "eqkin"}


def draw_training_curves(records: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw the records of `metrics.jsonl` as `curves.png` and `curves.svg`; returns their paths.

    The panels show the held-out ranking score with its interval, the losses, the learning rate and the speed against
    the number of triplets.

    Raises:
        BadInput: There is nothing to draw, or matplotlib is not installed.
        StorageFailed: The files cannot be written.
    """
    names = [name for name in _PANELS if any(name in record for record in records)]
    if not names:
        raise BadInput("the metrics contain no records of a training run")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("figures need matplotlib: pip install 'eqkin[train]'") from error
    paths = []
    with matplotlib.rc_context(_STYLE):
        rows = -(-len(names) // _COLUMNS)
        figure = Figure(figsize=(3.6 * _COLUMNS, 2.5 * rows), layout="constrained")
        panels = figure.subplots(rows, _COLUMNS, squeeze=False).flat
        for name, axes in zip(names, panels, strict=False):
            chosen = [record for record in records if name in record]
            triplets = _average_neighbours(chosen, "triplets")
            axes.plot(triplets, _average_neighbours(chosen, name), color=_COLOUR)
            axes.set_title(_PANELS[name], fontsize=10, loc="left")
            axes.set_xlabel("triplets seen", fontsize=8)
            if name == "ranking":
                low = _average_neighbours(chosen, "low")
                high = _average_neighbours(chosen, "high")
                axes.fill_between(triplets, low, high, color=_COLOUR, alpha=0.2)
        for axes in panels:
            axes.remove()
        for form, metadata in {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}.items():
            picture = BytesIO()
            figure.savefig(picture, format=form, dpi=150, metadata=metadata)
            paths.append(make_folder(folder) / f"curves.{form}")
            write_file(paths[-1], picture.getvalue())
    return paths


def _average_neighbours(records: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """Return one field of the records, NaN where it is not a finite number; of many records, means of neighbours."""
    values = [record.get(name) for record in records]
    numbers = np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    group = -(-len(numbers) // _MAX_POINTS)
    padded = np.pad(numbers, (0, -len(numbers) % group), constant_values=np.nan).reshape(-1, group)
    known = np.isfinite(padded)
    sums = np.where(known, padded, 0).sum(axis=1)
    return np.where(known.any(axis=1), sums / np.maximum(known.sum(axis=1), 1), np.nan)
