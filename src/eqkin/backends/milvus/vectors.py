"""`LibraryVectors`: the vectors of a library, read to be pushed elsewhere; nothing of faiss is loaded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.index.state import INDEX_FOLDER, IndexManifest
from eqkin.index.vectors import Floats, Integers, VectorFiles
from eqkin.library import LibraryFiles


class LibraryVectors:
    """Vectors by the numbers of their trees."""

    def __init__(self, files: VectorFiles) -> None:
        self._files, self.dimensions = files, files.dimensions

    @classmethod
    def open(cls, library: LibraryFiles, model: str) -> LibraryVectors:
        """Those that a model made.

        Raises:
            BadInput: the library is not indexed, or with another model.
            CorruptData: a file is damaged.
        """
        folder = library.folder / INDEX_FOLDER
        while True:
            state = IndexManifest.load(folder)
            if state is None:
                raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
            if state.model != model:
                raise BadInput(
                    f"{library.folder}: its vectors are of the model {state.model}, not of {model}; run `eqkin index`"
                )
            try:
                return cls(VectorFiles(folder, state.files, state.dimensions))
            except CorruptData:
                if IndexManifest.load(folder) == state:  # otherwise an updater has just replaced files
                    raise

    def has(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Which trees have a vector."""
        return self._files.rows.find_known(trees)

    def take(self, trees: Integers) -> Floats:
        """The vectors of trees that have one, in their order."""
        return self._files.take(self._files.rows.find_rows(trees))
