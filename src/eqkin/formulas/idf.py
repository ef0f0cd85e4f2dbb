"""Inverse document frequencies of terms, counted on the corpus from which eqkin's bundled table was made.

    idf = ln((1 + n) / (1 + df)) + 0.1

where df of the n formulas contain the term. Terms too rare for the table count as if `RARE_TERM_COUNT` formulas had
them.

A term weighs its saturated count times the square root of its idf. The norms of a formula are the sums of the squared
weights of its terms, family by family. They are stored with 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.files import write_file
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import COMPARED_FAMILIES, Terms, extract_terms

BUNDLED_FREQUENCIES = Path(__file__).parent / "frequencies.safetensors"
# The document frequency that is assumed of a term that is not in the table.
RARE_TERM_COUNT = 4
# Terms of fewer formulas are not in the table.
_MIN_FORMULAS = 24
_MIN_IDF = 0.1
# More occurrences of a term in a formula weigh hardly more.
MAX_COUNTED = 16
SATURATED_COUNTS = np.array([2 * count / (count + 1) for count in range(MAX_COUNTED + 1)], np.float32)
# 8 bits are enough for norms up to 41,000; 122,880 formulas have at most 10,858.
_NORM_STEPS = 24
_DECODED_NORMS = np.expm1(np.arange(256) / _NORM_STEPS).astype(np.float32)

TermCodes = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of terms."""

    formulas: int  # number of formulas
    codes: TermCodes  # hashes of terms, ascending
    counts: npt.NDArray[np.uint32]  # number of formulas with each term

    @classmethod
    def count(cls, operators: OperatorForest, kept: int = _MIN_FORMULAS) -> DocumentFrequencies:
        """Count the terms of operator trees; terms of fewer than `kept` trees are left out."""
        codes, counts = np.unique(extract_terms(operators).code, return_counts=True)
        often = counts >= kept
        return cls(len(operators), codes[often], counts[often].astype(np.uint32))

    def save(self, path: Path = BUNDLED_FREQUENCIES) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "formulas": np.array([self.formulas], np.int64),
            "codes": self.codes,
            "counts": self.counts,
        }
        write_file(path, safetensors.save(arrays))

    @classmethod
    def load(cls, path: Path = BUNDLED_FREQUENCIES) -> DocumentFrequencies:
        """Read what `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            loaded = cls(int(arrays["formulas"][0]), arrays["codes"], arrays["counts"])
        except (OSError, SafetensorError, KeyError, ValueError, IndexError) as error:
            raise CorruptData(f"{path}: cannot be read ({error}); install eqkin again") from error
        if not loaded._is_valid():
            raise CorruptData(f"{path}: not a table of term frequencies; install eqkin again")
        return loaded

    def compute_idf(self, codes: TermCodes) -> npt.NDArray[np.float32]:
        """Return the idf weight of each term."""
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        counts = np.full(len(codes), RARE_TERM_COUNT, np.int64)
        if len(self.codes):
            is_known = self.codes[places] == codes
            counts[is_known] = self.counts[places[is_known]]
        return (np.log((1 + self.formulas) / (1 + counts)) + _MIN_IDF).astype(np.float32)

    def _is_valid(self) -> bool:
        """Return whether the hashes can be looked up, and no term is in more formulas than there are."""
        return (
            self.codes.dtype == self.counts.dtype == np.uint32
            and self.codes.ndim == 1
            and self.codes.shape == self.counts.shape
            and bool((self.codes[1:] > self.codes[:-1]).all())
            and self.formulas >= RARE_TERM_COUNT
            and int(self.counts.max(initial=0)) <= self.formulas
        )


def weigh_terms(terms: Terms, idf: DocumentFrequencies) -> Floats:
    """Return the weight of each term."""
    return np.asarray(saturate_counts(terms.count) * np.sqrt(idf.compute_idf(terms.code)), np.float32)


def saturate_counts(counts: npt.NDArray[Any]) -> Floats:
    """Return the factor by which a number of occurrences counts: 0 for none, 1 for one, less than 2 for many."""
    return np.asarray(SATURATED_COUNTS[np.minimum(counts, MAX_COUNTED)], np.float32)


def compute_norms(terms: Terms, weights: Floats) -> Floats:
    """Return the norms of formulas, given their terms and the weight of each: (COMPARED_FAMILIES, formulas)."""
    compared = terms.family < COMPARED_FAMILIES
    cells = terms.family[compared].astype(np.int64) * len(terms) + terms.tree[compared]
    norms = np.bincount(cells, weights[compared] ** 2, COMPARED_FAMILIES * len(terms))
    return norms.reshape(COMPARED_FAMILIES, len(terms)).astype(np.float32)


def encode_norms(norms: Floats) -> npt.NDArray[np.uint8]:
    """Return 8 bits for each norm. Similarities, which divide by a small power of it, are off by .8 % above 10."""
    return np.minimum(np.round(_NORM_STEPS * np.log1p(norms)), 255).astype(np.uint8)


def decode_norms(codes: npt.NDArray[np.uint8]) -> Floats:
    """Return what `encode_norms` encoded."""
    return np.asarray(_DECODED_NORMS[codes], np.float32)


def round_norms(norms: Floats) -> Floats:
    """Round norms as an index stores them."""
    return decode_norms(encode_norms(norms))


@cache
def load_bundled_frequencies() -> DocumentFrequencies:
    """Return the bundled frequencies, read once."""
    return DocumentFrequencies.load()
