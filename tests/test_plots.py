"""Figures: training curves are drawn from any records, library figures from any statistics."""

import math
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eqkin.errors import BadInput, StorageFailed
from eqkin.plots import draw_library_figures, draw_training_curves

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


def _training(step: int, **changes: object) -> dict[str, Any]:
    loss = 0.2 + 1 / (step + 1)
    losses = {"loss": 3 * loss, "similarity": loss, "masking": 2 * loss}
    speed = {"learning_rate": 1e-4, "triplets_per_second": 1_300.0, "seconds": step / 10}
    return {"step": step, "triplets": 128 * step, **losses, **speed, **changes}


def _ranking(step: int, **changes: object) -> dict[str, Any]:
    triplets = 128 * step
    return {"step": step, "triplets": triplets, "ranking": 0.7, "low": 0.64, "high": 0.76, "triples": 1_000, **changes}


def _find_panels(svg: Path) -> set[str]:
    """Return the titles of the panels: matplotlib writes each text as a comment above its outlines."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    comments = {(node.text or "").strip() for node in ElementTree.parse(svg, parser).iter(ElementTree.Comment)}
    titles = {"Held-out ranking score", "Loss", "Loss: similarity", "Loss: masking", "Learning rate"}
    return comments & (titles | {"Triplets per second", "triplets seen", "none"})


def _draw(folder: Path, records: list[dict[str, Any]]) -> set[str]:
    png, svg = draw_training_curves(records, folder / "figures" / "run")
    assert (png, svg) == (folder / "figures" / "run" / "curves.png", folder / "figures" / "run" / "curves.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    return _find_panels(svg)


LOSS_PANELS = {"Loss", "Loss: similarity", "Loss: masking", "Learning rate", "Triplets per second", "triplets seen"}


def test_training_curves_show_losses_and_ranking(tmp_path: Path) -> None:
    records = [record for step in range(1, 100) for record in (_training(step), _ranking(step))]
    assert _draw(tmp_path, records) == LOSS_PANELS | {"Held-out ranking score"}


def test_training_curves_of_equal_records_have_equal_bytes(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in draw_training_curves([_training(1)], tmp_path)]
    assert [path.read_bytes() for path in draw_training_curves([_training(1)], tmp_path)] == first


def test_training_curves_need_only_one_record(tmp_path: Path) -> None:
    assert _draw(tmp_path, [_training(0)]) == LOSS_PANELS


def test_training_curves_of_rankings_alone_are_drawn(tmp_path: Path) -> None:
    records = [_ranking(7), {"step": 9, "triplets": 1_152, "ranking": 0.8}]
    assert _draw(tmp_path, records) == {"Held-out ranking score", "triplets seen"}


def test_training_curves_leave_a_gap_for_nan(tmp_path: Path) -> None:
    records = [_training(step, similarity=math.nan if step % 3 else 0.5, masking=math.inf) for step in range(50)]
    records += [_ranking(step, ranking=math.nan, low=0.0, high=1.0) for step in (0, 20)] + [_ranking(60, low=None)]
    records += [_training(51, masking=None, triplets=math.nan, learning_rate="?")]
    assert _draw(tmp_path, records) == LOSS_PANELS | {"Held-out ranking score", "none"}


def test_training_curves_say_none_for_a_panel_without_numbers(tmp_path: Path) -> None:
    assert "none" in _draw(tmp_path, [_ranking(1, ranking=math.nan, low=0.0, high=1.0, triples=0)])


def test_training_curves_of_a_long_run_are_small_files(tmp_path: Path) -> None:
    chance = random.Random(1)
    steps = range(1, 30_001)
    _draw(tmp_path, [{"step": step, "triplets": 128 * step, "loss": 1 + chance.gauss(0, 0.1)} for step in steps])
    assert (tmp_path / "figures" / "run" / "curves.svg").stat().st_size < 500_000


@pytest.mark.parametrize("records", [[], [{"step": 1, "note": "hello"}]])
def test_training_curves_without_records_are_an_error(records: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no records"):
        draw_training_curves(records, tmp_path / "figures")


def test_figures_name_the_extra_if_matplotlib_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match=r"eqkin\[train\]"):
        draw_training_curves([_training(1)], tmp_path)


def test_figures_that_cannot_be_written_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFailed, match="cannot be created"):
        draw_training_curves([_training(1)], tmp_path / "file" / "figures")


def test_library_figures_of_an_empty_library_say_none(tmp_path: Path) -> None:
    drawn = draw_library_figures({"fields": {}, "equations": {"failed": {}}}, [("$", 3), ("x", 2)], tmp_path)
    assert len(drawn) == 6
    assert "none" in _find_panels(tmp_path / "failures.svg")
    assert "none" not in _find_panels(tmp_path / "characters.svg")
