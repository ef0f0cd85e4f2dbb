"""Figures of the experiments: lines with bands, bars with error bars, the same bytes every time."""

from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'eqkin[eval]'")

from eqkin.plots import apply_style  # noqa: E402
from eqkin.statistics import Score  # noqa: E402
from reproduce.plots import Plot, draw_plot, save_plots  # noqa: E402

LINES = Plot(
    "lines", "Recall", "R@10", {"one": {16: Score(0.5, 0.4, 0.6), 32: Score(0.6)}, "$a_b$": {16: Score(0.3)}},
    "pairs per batch", log_x=True,
)  # fmt: skip
BARS = Plot("bars", "Change", "points", {"here": {"No masking": Score(-1.0, -2.0, 0.5)}, "paper": {"Other": Score(2)}})


def test_lines_have_a_tick_at_each_point_and_titles_as_they_are():
    with apply_style():
        figure = draw_plot(LINES)
        figure.canvas.draw()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16", "32"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "$a_b$"]
    assert len(axes.collections) == 2  # a band for each line


def test_bars_have_error_bars_only_with_intervals():
    with apply_style():
        (axes,) = draw_plot(BARS).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["No masking", "Other"]
    assert [bar.get_width() for bar in axes.patches] == [-1, 2]
    assert [container.errorbar is not None for container in axes.containers if hasattr(container, "errorbar")] == [
        True,
        False,
    ]


def test_saved_figures_are_whole_and_reproducible(tmp_path):
    text = save_plots([LINES, BARS], tmp_path / "one")
    assert save_plots([LINES, BARS], tmp_path / "two") == text
    assert "[![Recall](figures/lines.png)](figures/lines.svg)" in text
    for path in (tmp_path / "one" / "figures").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "figures" / path.name).read_bytes()
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
