"""fastText on serialised trees (Mansouri et al. 2019; paper, section 6.4): a formula is the mean of its tokens.

As in fastText's vectors of sentences, vectors of tokens are divided by their lengths before averaging. Only fitting
needs fastText: words and vectors are saved as arrays, because reading fastText's own format means trusting native code
with a file.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from eqkin.errors import TrainingFailed
from eqkin.evaluation import EmbeddingSystem
from eqkin.evaluation.systems import Float32s, FormulaSet, import_optional, normalize_rows
from eqkin.formulas import Forest
from eqkin.learning.data import Corpus
from research.experiment import FittedSystem
from research.labels import label_nodes, order_depth_first

DIMENSIONS = 100
_FILE = "vectors.npz"
# Rarer tokens have no vector.
_MIN_COUNT = 5
# fastText's own defaults, except that tokens have no subwords. One thread: with more, no two runs are equal.
_SETTINGS = {
    "model": "skipgram", "dim": DIMENSIONS, "ws": 5, "neg": 5, "lr": 0.05, "minCount": _MIN_COUNT, "t": 1e-4,
    "minn": 0, "maxn": 0, "thread": 1, "verbose": 0,
}  # fmt: skip


class FastText(FittedSystem, EmbeddingSystem):
    """Mean of skip-gram vectors of the nodes' labels; cosine."""

    name = "fasttext"
    title = "fastText"

    def __init__(self, epochs: int = 5) -> None:
        self._epochs = epochs
        self._numbers: dict[str, int] = {}
        self._vectors: Float32s = np.zeros((0, DIMENSIONS), np.float32)

    @property
    def settings(self) -> dict[str, int]:
        """Epochs of the training."""
        return {"epochs": self._epochs}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Train vectors of the labels, or load them; it takes a minute or two.

        Raises:
            BadInput: fastText is not installed.
            TrainingFailed: fastText gave up, for instance because no label is frequent enough.
        """
        path = folder / _FILE
        if not path.is_file():
            words, vectors = _train(corpus.forest, self._epochs, folder)
            np.savez(path, words=words, vectors=vectors)
        with np.load(path) as saved:
            self._numbers = {word: number for number, word in enumerate(saved["words"].tolist())}
            self._vectors = np.asarray(normalize_rows(saved["vectors"]), np.float32)

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Average the vectors of each formula's labels, (formulas, dimensions); zeros if no label has a vector."""
        names, label = label_nodes(formulas.forest)
        number = np.array([self._numbers.get(name, -1) for name in names], np.int64)[label]
        found = np.zeros((len(formulas), DIMENSIONS), np.float32)
        for tree, (start, end) in enumerate(pairwise(formulas.forest.offsets.tolist())):
            known = number[start:end][number[start:end] >= 0]
            if len(known):
                found[tree] = self._vectors[known].mean(axis=0)
        return found


def _train(forest: Forest, epochs: int, folder: Path) -> tuple[list[str], Float32s]:
    """Train words and their vectors; `folder` holds the text during training.

    Tokens are written as numbers, so that nothing in a formula can be mistaken for a blank or the end of a line.
    """
    fasttext = import_optional("fasttext")
    names, label = label_nodes(forest)
    frequent = np.flatnonzero(np.bincount(label, minlength=len(names)) >= _MIN_COUNT).tolist()
    tokens = label[order_depth_first(forest)].astype(str).tolist()
    lines = [" ".join(tokens[start:end]) for start, end in pairwise(forest.offsets.tolist())]
    # fastText draws only a tenth of the initial vectors per thread (its issue 1061): all of them are given.
    size = 1 / DIMENSIONS
    drawn = np.random.default_rng(0).uniform(-size, size, (len(frequent) + 1, DIMENSIONS))
    firsts = [f"{len(drawn)} {DIMENSIONS}"]
    for word, vector in zip(("</s>", *frequent), drawn.tolist(), strict=True):
        firsts.append(f"{word} {' '.join(f'{value:.8f}' for value in vector)}")
    text = folder / "serialised.txt"
    first = folder / "first.vec"
    try:
        text.write_text("\n".join(lines) + "\n", "ascii")
        first.write_text("\n".join(firsts) + "\n", "ascii")
        model = fasttext.train_unsupervised(str(text), epoch=epochs, pretrainedVectors=str(first), **_SETTINGS)
    except (ValueError, RuntimeError) as error:
        raise TrainingFailed(f"fastText failed ({error}); give it more formulas") from error
    finally:
        text.unlink(missing_ok=True)
        first.unlink(missing_ok=True)
    vectors = np.array([model.get_word_vector(str(word)) for word in frequent], np.float32)
    return [names[word] for word in frequent], vectors
