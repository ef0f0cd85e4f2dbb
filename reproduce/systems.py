"""All systems of the experiments: those of `eqkin.evaluation`, and the baselines that only the paper needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.formulas import import_optional
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.registry import SYSTEMS, SystemEntry, make_systems


def _make_transformer(context: ExperimentContext) -> System:
    import_optional("torch")
    from reproduce.transformer import Transformer, TransformerShape, TransformerTraining

    shape = replace(TransformerShape(), layers=context.scale.transformer_layers)
    training = replace(TransformerTraining(), triplets=context.scale.transformer_triplets)
    return Transformer(shape, training, device=context.device, log=context.log)


def _make_bitmap_cnn(context: ExperimentContext) -> System:
    import_optional("torch")
    from reproduce.bitmap_cnn import BitmapCNN, BitmapTraining

    training = replace(BitmapTraining(), bitmaps=context.scale.bitmaps, triplets=context.scale.bitmap_triplets)
    return BitmapCNN(training, device=context.device, images=context.cache.folder / "bitmaps", log=context.log)


ALL_SYSTEMS: Mapping[str, SystemEntry] = {
    **SYSTEMS,
    "transformer": SystemEntry(
        "a transformer over a tree's nodes, trained like the graph network; cosine", _make_transformer
    ),
    "bitmap-cnn": SystemEntry("a convolutional network over images of the formulas; cosine", _make_bitmap_cnn),
}
# Everything that can rank a library of half a million equations; approach0 and the bitmap CNN are too slow.
LARGE_SCALE_SYSTEMS = [name for name in ALL_SYSTEMS if name not in ("approach0", "bitmap-cnn")]


def find_missing_systems() -> list[str]:
    """Return the names of systems that cannot run on this machine, for want of a browser or of Linux."""
    from reproduce.bitmaps import find_chromium

    needs = {
        "bitmap-cnn": find_chromium() is not None and find_spec("playwright") is not None,
        "approach0": find_spec("pya0") is not None,
    }
    return [name for name, is_there in needs.items() if not is_there]


def make_all_systems(names: Sequence[str], context: ExperimentContext) -> list[System]:
    """Make systems by their names, or by the folder of a network; none is fitted yet."""
    return make_systems(names, context, ALL_SYSTEMS)
