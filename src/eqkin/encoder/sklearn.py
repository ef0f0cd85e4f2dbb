"""The encoder as a transformer of scikit-learn: formulas in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from eqkin.encoder.encoder import Encoder


class EquationVectorizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Maps LaTeX formulas to vectors within a pipeline; there is nothing to fit.

    Args:
        model: What `Encoder.load` takes.
    """

    def __init__(self, model: str | None = None) -> None:
        self.model = model

    def fit(self, formulas: Sequence[str], labels: Any = None) -> EquationVectorizer:
        """Load the network."""
        self.encoder_ = Encoder.load(self.model)
        return self

    def transform(self, formulas: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the vectors of formulas, one per row; raises `BadInput` if one cannot be read."""
        return self.encoder_.encode(list(formulas))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return names of the columns."""
        return np.array([f"eqkin{number}" for number in range(self.encoder_.dimensions)], object)
