"""The paper's two data figures, and why equations failed (`eqkin stats --figures DIR`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eqkin.errors import BadInput, StorageFailed

_BAR_COLOR = "#3b6ea5"


def draw_figures(statistics: dict[str, Any], characters: Sequence[tuple[str, int]], folder: Path) -> list[Path]:
    """Draw the figures into `folder`, as PNG and SVG; returns what was written."""
    try:
        import matplotlib

        matplotlib.use("Agg")
    except ImportError as error:
        raise BadInput("figures need matplotlib: pip install 'eqkin[eval]'") from error
    reasons = list(statistics["equations"]["failed"].items())
    plots = [
        ("papers-per-field", "Papers per subject area", "papers", list(statistics["fields"].items())[:30]),
        ("characters", "The 50 most frequent characters in equations", "occurrences", list(characters)[:50]),
        ("failures", "Equations that did not convert, by reason", "equations", reasons[:20]),
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for plot in plots for path in _draw_bars(folder, *plot)]
    except OSError as error:
        raise StorageFailed(f"{folder}: figures could not be written ({error.strerror})") from error


def _draw_bars(folder: Path, name: str, title: str, unit: str, bars: Sequence[tuple[str, int]]) -> list[Path]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(max(5.0, 0.24 * len(bars) + 2), 3.4), layout="constrained")
    if bars:
        axes.bar(range(len(bars)), [count for _, count in bars], color=_BAR_COLOR)
        long = max(len(label) for label, _ in bars) > 2
        labels = [label.replace("$", r"\$") for label, _ in bars]
        axes.set_xticks(
            range(len(bars)), labels, rotation=45 if long else 0, ha="right" if long else "center", fontsize=8
        )
    else:
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    written = []
    for suffix in ("png", "svg"):
        path = folder / f"{name}.{suffix}"
        figure.savefig(path, dpi=150)
        written.append(path)
    plt.close(figure)
    return written
