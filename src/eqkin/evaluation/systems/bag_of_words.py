"""Bags of words: which node features a tree has, wherever they stand in it.

`BagOfWords` is the paper's (section 6.3): the sum of the nodes' 256 features. `LogBagOfWords` is a stronger one: all
labels, none too rare, weighted by log tf-idf.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import Embedding, Floats, Formulas
from eqkin.evaluation.systems.terms import Bag, LogTfIdf, counted
from eqkin.forest.vocabulary import ATTRIBUTES, CHARACTERS, TAGS, Vocabulary
from eqkin.structure.hashing import hashes
from eqkin.structure.labels import labels
from eqkin.structure.order import blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from eqkin.learning.corpus import Corpus

_WIDTH = TAGS + ATTRIBUTES + CHARACTERS
_FILE = "vocabulary.json"


class BagOfWords(Embedding):
    """The paper's: how often each of 32 tags, 32 attributes and 192 characters is in a tree; cosine."""

    name = "bag-of-words"
    title = "Bag of words"

    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The number of features."""
        return {"features": _WIDTH}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn which tags, attributes and characters are frequent, or load that."""
        if not (folder / _FILE).is_file():
            Vocabulary.learn([corpus.forest]).save(folder / _FILE)
        self._vocabulary = Vocabulary.load(folder / _FILE)

    def encode(self, formulas: Formulas) -> Floats:
        """Counts, (formulas, 256); raises `BadInput` before `fit`."""
        if self._vocabulary is None:
            raise BadInput("the bag of words knows no words yet: fit it first")
        forest = formulas.forest
        features = self._vocabulary.features(forest)
        vectors = np.zeros((len(forest), _WIDTH), np.float32)
        for trees, nodes in blocks(forest.offsets):
            rows = trees.stop - trees.start
            first = np.repeat(np.arange(rows) * _WIDTH, forest.sizes[trees])  # place of each node's first feature
            places = [first + features.tag[nodes]]
            for slots, offsets, before in (
                (features.attribute, features.attribute_offsets, TAGS),
                (features.character, features.character_offsets, TAGS + ATTRIBUTES),
            ):
                ends = offsets[nodes.start : nodes.stop + 1]
                places.append(np.repeat(first, np.diff(ends)) + before + slots[ends[0] : ends[-1]])
            vectors[trees] = np.bincount(np.concatenate(places), minlength=rows * _WIDTH).reshape(rows, _WIDTH)
        return vectors


class LogBagOfWords(LogTfIdf):
    """Log tf-idf of the nodes' labels: tag, text and how letters are written; nothing is learned."""

    name = "log-bag-of-words"
    title = "Bag of words, log tf-idf"
    bits = 18

    def counts(self, formulas: Formulas) -> csr_matrix:
        """How often each label is in each formula."""
        forest = formulas.forest
        names, label = labels(forest)
        code = hashes(names)

        def words(trees: slice, nodes: slice) -> list[Bag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            return [(row, code[label[nodes]])]

        return counted(forest.offsets, words, self.bits)
