"""`Encoder`: formulas or trees to vectors, without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.encoder.numpy_network import Floats, NumpyNetwork
from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.forest import iter_blocks

# Bundled models, by name.
MODELS_FOLDER = Path(__file__).parent / "models"
MODEL_NAMES = ("eqkin", "paper")
DEFAULT_MODEL = next(
    (name for name in MODEL_NAMES if (MODELS_FOLDER / name / DESCRIPTION_FILE).is_file()), MODEL_NAMES[-1]
)


class Network(Protocol):
    """The weights of a model, ready to embed trees."""

    block_nodes: int  # nodes whose vectors fit into memory

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""


class Encoder:
    """Maps formulas to vectors whose inner products measure how related they are. Thread-safe.

    Args:
        model: The model.
        network: Embeds trees; by default the model's network in numpy.
    """

    def __init__(self, model: Model, network: Network | None = None) -> None:
        self.model = model
        self._network: Network = network or NumpyNetwork(model)

    @classmethod
    def load(cls, model: str | os.PathLike[str] | None = None) -> Encoder:
        """Load a bundled model or one from a folder.

        Args:
            model: Name of a bundled model, "eqkin" or "paper", or a folder (write `./paper` for a folder of that
                name). The default is "eqkin", or "paper" if only that one is installed.

        Raises:
            BadInput: The folder contains no model.
            CorruptData: The model is damaged or of an unknown version, or eqkin was installed without it.
        """
        name = DEFAULT_MODEL if model is None else model
        if name not in MODEL_NAMES:
            return cls(Model.load(Path(name).expanduser()))
        folder = MODELS_FOLDER / name
        if not (folder / DESCRIPTION_FILE).is_file():
            raise CorruptData(f"eqkin was installed without its weights ({folder}); install it again with pip")
        return cls(Model.load(folder))

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self.model.architecture.dimensions

    @property
    def digest(self) -> str:
        """Identifier of the model; vectors of different models cannot be compared."""
        return self.model.digest

    def encode(self, formulas: str | Sequence[str], batch_size: int = 1_024, show_progress_bar: bool = False) -> Floats:
        r"""Return the vectors of LaTeX formulas, one per row; for a single formula its vector.

        Args:
            formulas: One or several, each of which may be enclosed in `$...$`, `\[...\]` or an environment.
            batch_size: Formulas whose trees are in memory together.
            show_progress_bar: Show how far it is.

        Raises:
            BadInput: A formula cannot be read; the message names it.
        """
        if isinstance(formulas, str):
            vector: Floats = self.embed(self.parse_formulas([formulas]))[0]
            return vector
        starts: Iterable[int] = range(0, len(formulas), batch_size)
        if show_progress_bar:
            from rich.progress import track

            starts = track(list(starts), "encoding")
        parts = [self.embed(self.parse_formulas(formulas[start : start + batch_size], start)) for start in starts]
        return np.concatenate(parts) if parts else np.empty((0, self.dimensions), np.float32)

    def similarity(self, left: Floats, right: Floats) -> Floats:
        """Return the cosines of two sets of vectors, or single vectors: one row for each of the first."""
        unit = [
            vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            for vectors in (np.atleast_2d(left), np.atleast_2d(right))
        ]
        return np.asarray(unit[0] @ unit[1].T, np.float32)

    def parse_formulas(self, formulas: Sequence[str], first: int = 0) -> Forest:
        """Return the trees of LaTeX formulas, which do not influence each other; `first` is the number of the first.

        Raises `BadInput`.
        """
        from eqkin.formulas.conversion import convert_typed_formula
        from eqkin.formulas.engine import borrow_engine
        from eqkin.latex.typed import clean_typed_formula, decode_entities

        forests: list[Forest] = []
        with borrow_engine() as engine:
            for number, formula in enumerate(formulas, first):
                text = clean_typed_formula(decode_entities(formula.encode("utf-8", "replace").decode()).text)
                conversion = convert_typed_formula(engine, text, operators=False)
                failure = conversion.outcomes[0].failure
                if failure is not None:
                    position = f" at character {failure.position + 1}" if failure.position >= 0 else ""
                    excerpt = formula if len(formula) <= 200 else formula[:200] + "..."
                    raise BadInput(f"formula {number}, {excerpt!r}, cannot be read: {failure.message}{position}")
                forests.append(conversion.forest)
        return Forest.concatenate(forests)

    def embed(self, forest: Forest, progress: Callable[[int], None] | None = None) -> Floats:
        """Return the vectors of trees, one per row.

        Args:
            forest: The trees.
            progress: Called from time to time with the number of trees done.

        Raises:
            CorruptData: The arrays of the forest do not describe trees.
        """
        vectors = np.empty((len(forest), self.dimensions), np.float32)
        for trees, _ in iter_blocks(forest.offsets, self._network.block_nodes):
            is_whole = trees == slice(0, len(forest))
            part = forest if is_whole else forest.select(np.arange(trees.start, trees.stop))
            part.validate()
            vectors[trees] = self._network.embed(part)
            if progress:
                progress(trees.stop)
        return vectors
