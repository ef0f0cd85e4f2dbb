"""Bags of words: which node features a tree has, wherever they stand in it.

`BagOfWords` is the paper's (section 6.3): the sum of the nodes' 256 features. `LogBagOfWords` is a stronger one: all
labels, none too rare, weighted by log tf-idf.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet
from eqkin.evaluation.systems.terms import LogTfIdf, TermBag, count_matrix
from eqkin.trees.forest import iter_blocks
from eqkin.trees.hashing import hash_strings
from eqkin.trees.normal import label_nodes
from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Vocabulary

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from eqkin.training.data import Corpus

_FEATURE_COUNT = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
_VOCABULARY_FILE = "vocabulary.json"


class BagOfWords(EmbeddingSystem):
    """The paper's: how often each of 32 tags, 32 attributes and 192 characters is in a tree; cosine."""

    name = "bag-of-words"
    title = "Bag of words"

    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The number of features."""
        return {"features": _FEATURE_COUNT}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn which tags, attributes and characters are frequent, or load that."""
        if not (folder / _VOCABULARY_FILE).is_file():
            Vocabulary.learn([corpus.forest]).save(folder / _VOCABULARY_FILE)
        self._vocabulary = Vocabulary.load(folder / _VOCABULARY_FILE)

    def encode(self, formulas: FormulaSet) -> Floats:
        """Counts, (formulas, 256); raises `BadInput` before `fit`."""
        if self._vocabulary is None:
            raise BadInput("the bag of words knows no words yet: fit it first")
        forest = formulas.forest
        features = self._vocabulary.extract_features(forest)
        vectors = np.zeros((len(forest), _FEATURE_COUNT), np.float32)
        for trees, nodes in iter_blocks(forest.offsets):
            rows = trees.stop - trees.start
            first = np.repeat(
                np.arange(rows) * _FEATURE_COUNT, forest.sizes[trees]
            )  # place of each node's first feature
            places = [first + features.tag[nodes]]
            for slots, offsets, before in (
                (features.attribute, features.attribute_offsets, TAG_SLOTS),
                (features.character, features.character_offsets, TAG_SLOTS + ATTRIBUTE_SLOTS),
            ):
                ends = offsets[nodes.start : nodes.stop + 1]
                places.append(np.repeat(first, np.diff(ends)) + before + slots[ends[0] : ends[-1]])
            vectors[trees] = np.bincount(np.concatenate(places), minlength=rows * _FEATURE_COUNT).reshape(
                rows, _FEATURE_COUNT
            )
        return vectors


class LogBagOfWords(LogTfIdf):
    """Log tf-idf of the nodes' labels: tag, text and how letters are written; nothing is learned."""

    name = "log-bag-of-words"
    title = "Bag of words, log tf-idf"
    bits = 18

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """How often each label is in each formula."""
        forest = formulas.forest
        names, label = label_nodes(forest)
        code = hash_strings(names)

        def words(trees: slice, nodes: slice) -> list[TermBag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            return [(row, code[label[nodes]])]

        return count_matrix(forest.offsets, words, self.bits)
