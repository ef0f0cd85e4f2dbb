"""Formulas or trees -> vectors, with numpy alone: what searching needs of the network, without torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eqkin.encoder.architecture import MIX
from eqkin.encoder.inference import NumpySumNetwork
from eqkin.encoder.layout import Floats, iter_blocks
from eqkin.encoder.mix_inference import NumpyMixNetwork
from eqkin.encoder.model_files import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput, CorruptData
from eqkin.trees import Forest, ForestBuilder

if TYPE_CHECKING:
    from eqkin.mathml.converter import Converter

MODELS = Path(__file__).parent / "models"  # those that come with eqkin, by their names
MODEL_NAMES = ("eqkin", "paper")
DEFAULT_MODEL = next((name for name in MODEL_NAMES if (MODELS / name / DESCRIPTION_FILE).is_file()), MODEL_NAMES[-1])
BUNDLED_MODEL = MODELS / DEFAULT_MODEL


class Encoder:
    """Turns formulas into vectors whose inner products say how related they are. May be shared between threads."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._network = NumpyMixNetwork(model) if model.architecture.kind == MIX else NumpySumNetwork(model)
        self._converter: Converter | None = None
        self._converting = threading.Lock()

    @classmethod
    def load(cls, model: str | os.PathLike[str] | None = None) -> Encoder:
        """The encoder of a model that comes with eqkin, or of one's own.

        Args:
            model: The name of one that comes with eqkin, "eqkin" or "paper", or a folder (`./paper`, if that is its
                name). By default "eqkin", or "paper" where that is all there is.

        Raises:
            BadInput: there is no model in the folder.
            CorruptData: it is damaged or of an unknown version, or eqkin was installed without it.
        """
        name = DEFAULT_MODEL if model is None else model
        if name not in MODEL_NAMES:
            return cls(Model.load(Path(name).expanduser()))
        folder = MODELS / name
        if not (folder / DESCRIPTION_FILE).is_file():
            raise CorruptData(f"eqkin was installed without its weights ({folder}); install it again with pip")
        return cls(Model.load(folder))

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        return self.model.architecture.dimensions

    @property
    def digest(self) -> str:
        """Identifies the model; vectors of different models cannot be compared."""
        return self.model.digest

    def encode(self, formulas: Sequence[str]) -> Floats:
        r"""Vectors of LaTeX formulas, one a row; each may stand in `$...$`, `\[...\]` or an environment.

        Raises:
            BadInput: a formula cannot be read; the message names it.
        """
        return self.embed(self.parse_formulas(formulas))

    def parse_formulas(self, formulas: Sequence[str]) -> Forest:
        """The trees of LaTeX formulas as `encode` reads them: each by itself, whatever stands beside it."""
        from eqkin.latex.typed import clean_typed_formula, decode_entities
        from eqkin.mathml.converter import Converter
        from eqkin.mathml.formulas import convert_typed_formula

        if isinstance(formulas, str):
            raise BadInput("a list of formulas is needed, not a single string")
        builder = ForestBuilder()
        with self._converting:
            self._converter = self._converter or Converter()
            for number, formula in enumerate(formulas):
                text = clean_typed_formula(decode_entities(formula.encode("utf-8", "replace").decode()).text)
                conversion = convert_typed_formula(self._converter, text)
                failure = conversion.outcomes[0].failure
                if failure is not None:
                    where = f" at character {failure.position + 1}" if failure.position >= 0 else ""
                    shown = formula if len(formula) <= 200 else formula[:200] + "..."
                    raise BadInput(f"formula {number}, {shown!r}, cannot be read: {failure.message}{where}")
                builder.add_forest(conversion.forest)
        return builder.build()

    def embed(self, forest: Forest, progress: Callable[[int], None] | None = None) -> Floats:
        """Vectors of trees, one a row; `progress` is called now and then with the number of trees done.

        Raises:
            CorruptData: the arrays describe no trees.
        """
        vectors = np.empty((len(forest), self.dimensions), np.float32)
        for trees, part in iter_blocks(forest):
            vectors[trees] = self._network.embed(part)
            if progress:
                progress(trees.stop)
        return vectors
