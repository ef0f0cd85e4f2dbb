"""How many formulas have a term, in the corpus eqkin comes with: what makes a shared term worth something.

    idf = ln((1 + n) / (1 + df)) + 0.1

with df of the n formulas that have the term, counted by `Frequencies.of` over the trees of that corpus. Terms that are
too rare to be kept count as if `RARE` formulas had them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.forest import Forest
from eqkin.library.durable import write_file
from eqkin.structure.terms import terms_of

BUNDLED = Path(__file__).parent / "frequencies.safetensors"
RARE = 4  # formulas a term that is not kept stands for
_KEPT = 24  # formulas a term that is kept has at least, of a large corpus
_LEAST_IDF = 0.1
_BITS = 20  # of a code by which it is looked up
_SHIFT = np.uint32(32 - _BITS)

Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Frequencies:
    """Document frequencies of terms."""

    formulas: int  # there are
    codes: Codes  # of terms, ascending
    counts: npt.NDArray[np.uint32]  # formulas that have each

    @classmethod
    def of(cls, forest: Forest, kept: int = _KEPT) -> Frequencies:
        """Those of a forest; terms of fewer than `kept` trees are left out."""
        codes, counts = np.unique(terms_of(forest).code, return_counts=True)
        often = counts >= kept
        return cls(len(forest), codes[often], counts[often].astype(np.uint32))

    def save(self, path: Path = BUNDLED) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "formulas": np.array([self.formulas], np.int64),
            "codes": self.codes,
            "counts": self.counts,
        }
        write_file(path, safetensors.save(arrays))

    @classmethod
    def load(cls, path: Path = BUNDLED) -> Frequencies:
        """What `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            loaded = cls(int(arrays["formulas"][0]), arrays["codes"], arrays["counts"])
        except (OSError, SafetensorError, KeyError, ValueError, IndexError) as error:
            raise CorruptData(
                f"{path}: the frequencies of terms cannot be read ({error}); install eqkin again"
            ) from error
        if not loaded._sound():
            raise CorruptData(f"{path}: no frequencies of terms; install eqkin again")
        return loaded

    def idf(self, codes: Codes) -> npt.NDArray[np.float32]:
        """What each term is worth."""
        worth = np.full(len(codes), self._worth(np.array([RARE]))[0], np.float32)
        if len(self.codes):
            place = self._first.take(codes >> _SHIFT)
            for step in range(self._most):  # four times as fast as to search all of them
                at = np.minimum(place + step, len(self.codes) - 1)
                found = np.flatnonzero(self.codes.take(at) == codes)
                worth[found] = self._idf.take(at[found])
        return worth

    def _sound(self) -> bool:
        """Whether codes can be looked up, and no term is in more formulas than there are."""
        return (
            self.codes.dtype == self.counts.dtype == np.uint32
            and self.codes.ndim == 1
            and self.codes.shape == self.counts.shape
            and bool((self.codes[1:] > self.codes[:-1]).all())
            and self.formulas >= RARE
            and int(self.counts.max(initial=0)) <= self.formulas
        )

    def _worth(self, counts: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return (np.log((1 + self.formulas) / (1 + counts.astype(np.float64))) + _LEAST_IDF).astype(np.float32)

    @cached_property
    def _most(self) -> int:
        """Codes with the same first bits."""
        return int(np.diff(self._first).max())

    @cached_property
    def _idf(self) -> npt.NDArray[np.float32]:
        return self._worth(self.counts)

    @cached_property
    def _first(self) -> npt.NDArray[np.int32]:
        """The first kept code of each run of codes with the same first bits, and the end."""
        return np.searchsorted(self.codes >> _SHIFT, np.arange((1 << _BITS) + 1)).astype(np.int32)


@cache
def bundled() -> Frequencies:
    """The frequencies eqkin comes with, read once."""
    return Frequencies.load()
