"""`ContextWords`: for each equation of a corpus the words that stand around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.training.corpus_file import pack_strings, unpack_strings
from eqkin.trees.forest import Array

Words = npt.NDArray[np.uint16]

WORD_ARRAYS = ("vocabulary", "word", "words")  # of the arrays in a corpus file


@dataclass(frozen=True, eq=False)
class ContextWords:
    """Words by their place in a vocabulary; an equation's stand in ascending order, each once."""

    vocabulary: list[str]
    offsets: npt.NDArray[np.int64]  # (trees + 1,) where each tree's words begin
    word: Words  # of all trees, one after the other

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many words stand around each equation."""
        return np.diff(self.offsets)

    def select(self, trees: npt.NDArray[np.bool_]) -> ContextWords:
        """The words of some trees, given as a mask; the vocabulary stays."""
        counts = self.counts
        return ContextWords(self.vocabulary, _compute_offsets(counts[trees]), self.word[np.repeat(trees, counts)])

    def validate(self, trees: int) -> None:
        """Check that this fits a corpus of so many trees; raises `CorruptData`."""
        ends = self.offsets[1:-1]
        rising = np.diff(self.word.astype(np.int64)) > 0
        rising[ends[(ends > 0) & (ends < len(self.word))] - 1] = True  # from one tree to the next
        if len(self) != trees or self.offsets[-1] != len(self.word) or not rising.all():
            raise CorruptData("words do not fit the trees, or are not in order")
        if self.word.max(initial=0) >= max(len(self.vocabulary), 1) or (len(self.word) and not self.vocabulary):
            raise CorruptData("words are not in their vocabulary")

    def to_arrays(self) -> dict[str, Array]:
        """As a corpus file holds them."""
        counts = self.counts
        return {
            "vocabulary": pack_strings(self.vocabulary),
            "word": self.word,
            "words": counts.astype(np.min_scalar_type(counts.max(initial=0))),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> ContextWords | None:
        """What `arrays` gave; None if there is nothing of it. Raises `KeyError` or `ValueError`."""
        if not arrays.keys() & set(WORD_ARRAYS):
            return None
        vocabulary, word, counts = (arrays[name] for name in WORD_ARRAYS)
        if word.dtype != np.uint16 or counts.max(initial=0) > len(word):
            raise ValueError("words do not fit the trees")
        return cls(unpack_strings(vocabulary), _compute_offsets(counts), word.astype(np.uint16, copy=False))


def _compute_offsets(counts: Array) -> npt.NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
