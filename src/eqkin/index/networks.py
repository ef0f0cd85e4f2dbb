"""The network a library is searched with: the one that comes with eqkin, or one of its own beside the vectors."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.index.state import INDEX_FOLDER, IndexManifest

if TYPE_CHECKING:
    from eqkin.encoder.encoder import Encoder

_MODEL_PREFIX = "model-"


def load_encoder(library: Path) -> Encoder:
    """The encoder whose vectors a library has; the bundled one where there are none yet.

    Raises:
        CorruptData: the library's own network is damaged or missing.
    """
    from eqkin.encoder.encoder import Encoder

    state = None
    with suppress(CorruptData):  # then all of it is made anew
        state = IndexManifest.load(library / INDEX_FOLDER)
    if state is None or not state.network:
        return Encoder.load()
    try:
        encoder = Encoder.load(library / INDEX_FOLDER / state.network)
    except BadInput as error:
        raise CorruptData(f"{error}; give it again with `eqkin index --model`") from error
    if encoder.digest != state.model:
        raise CorruptData(f"{library}: the network beside its vectors is another; give it with `eqkin index --model`")
    return encoder


def save_model(folder: Path, encoder: object) -> str:
    """Keep an encoder's network in an index's folder; the name it has there, "" for the one that comes with eqkin."""
    from eqkin.encoder.encoder import Encoder

    if not isinstance(encoder, Encoder) or encoder.digest == _load_bundled_digest():
        return ""
    name = f"{_MODEL_PREFIX}{encoder.digest[:16]}"
    if not _is_model_intact(folder / name, encoder.digest):
        encoder.model.save(folder / name)
    return name


def delete_old_models(folder: Path, name: str) -> None:
    """Delete networks that an index had before."""
    for path in folder.glob(f"{_MODEL_PREFIX}*"):
        if path.name != name:
            rmtree(path, ignore_errors=True)


def find_model_problems(folder: Path, state: IndexManifest) -> list[str]:
    """What is wrong with an index's own network."""
    if not state.network or _is_model_intact(folder / state.network, state.model):
        return []
    return [f"{folder / state.network}: the network is damaged or missing; give it again with `eqkin index --model`"]


def _is_model_intact(folder: Path, digest: str) -> bool:
    from eqkin.encoder.model import Model

    try:
        return Model.load(folder).digest == digest
    except EqkinError:
        return False


@lru_cache(maxsize=1)
def _load_bundled_digest() -> str:
    from eqkin.encoder.encoder import Encoder

    return Encoder.load().digest
