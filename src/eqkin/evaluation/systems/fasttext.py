"""fastText on serialised trees (Mansouri et al. 2019; paper, section 6.4): a formula is the mean of its tokens.

As in fastText's vectors of sentences, vectors of tokens are divided by their lengths before averaging. Only fitting
needs fastText. Words and vectors are saved as arrays: fastText's own format holds more than is needed, and reading it
means trusting native code with a file.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.errors import BadInput, StorageFailed, TrainingFailed
from eqkin.evaluation.formulas import Float32s, FormulaSet, import_optional, normalize_rows
from eqkin.evaluation.systems.base import EmbeddingSystem
from eqkin.evaluation.systems.sparse import TokenSequences, serialize
from eqkin.formulas.normal import label_nodes
from eqkin.learning.text import pack_strings, unpack_strings
from eqkin.storage.arrays import Arrays, iter_checked_file, parse_checked_file
from eqkin.storage.files import write_stream

if TYPE_CHECKING:
    from eqkin.learning.data import Corpus

_FILE = "fasttext.safetensors"
_FORMAT, _VERSION = "eqkin-fasttext", "2"
_TEXT, _FIRST = "serialised.txt", "first.vec"  # deleted after training
_END_OF_LINE = "</s>"  # fastText's word for the end of a line


@dataclass(frozen=True)
class FastTextSettings:
    """Settings of the skip-gram model: fastText's defaults, except that tokens have no subwords."""

    dimensions: int = 100
    window: int = 5  # tokens on each side
    epochs: int = 5
    negatives: int = 5  # per token
    learning_rate: float = 0.05
    least: int = 5  # rarer tokens have no vector
    frequent: float = 1e-4  # tokens with a larger share of the text are subsampled
    seed: int = 0  # of the initial vectors


class FastText(EmbeddingSystem):
    """Mean of skip-gram vectors of the nodes' labels; cosine."""

    name = "fasttext"
    title = "fastText"

    def __init__(self, settings: FastTextSettings | None = None) -> None:
        self._settings = settings or FastTextSettings()
        self._words: dict[str, int] = {}
        self._vectors: Float32s = np.zeros((0, self._settings.dimensions), np.float32)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the skip-gram model."""
        return asdict(self._settings)

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Train vectors of the labels, or load them.

        The same corpus gives the same vectors. It takes a minute or two; if interrupted, it starts again.

        Raises:
            BadInput: fastText is not installed, or no label is frequent enough for a vector.
            TrainingFailed: fastText gave up.
            CorruptData: The file in the folder is damaged.
        """
        path = folder / _FILE
        if not path.is_file():
            words, vectors = _train(serialize(corpus.forest), self._settings, folder)
            arrays: Arrays = {"words": pack_strings(words), "vectors": vectors}
            write_stream(path, iter_checked_file(arrays, _FORMAT, _VERSION))
        loaded = parse_checked_file(path.read_bytes(), str(path), _FORMAT, [_VERSION], "delete it to fit again")
        self._vectors = np.asarray(normalize_rows(loaded["vectors"]), np.float32)
        self._words = {word: at for at, word in enumerate(unpack_strings(loaded["words"]))}

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Average the vectors of each formula's labels, (formulas, dimensions); zeros if no label has a vector."""
        if not self._words:
            raise BadInput("fastText is not fitted yet: call fit first")
        sparse = import_optional("scipy.sparse")
        forest = formulas.forest
        names, label = label_nodes(forest)
        word = np.array([self._words.get(name, -1) for name in names], np.int32)[label]
        known = word >= 0
        ends = np.concatenate(([0], np.cumsum(known)))[forest.offsets]
        shape = (len(forest), len(self._vectors))
        occurs = sparse.csr_matrix((np.ones(ends[-1], np.float32), word[known], ends), shape)
        return np.asarray((occurs @ self._vectors) / np.maximum(np.diff(ends), 1)[:, None], np.float32)


def _train(sequences: TokenSequences, settings: FastTextSettings, folder: Path) -> tuple[list[str], Float32s]:
    """Train words and their vectors; `folder` holds the text during training.

    Tokens are written as numbers, so that nothing in a formula can be mistaken for a blank or the end of a line. The
    initial vectors are given, because fastText draws only a tenth of them per thread (its issue 1061). One thread:
    with more, no two runs are equal.
    """
    fasttext = import_optional("fasttext")
    counts = np.bincount(sequences.token, minlength=len(sequences.names))
    words = np.flatnonzero(counts >= settings.least).tolist()
    if not words:
        raise BadInput(f"no token occurs {settings.least} times, which fastText needs; give it more formulas")
    text, first = folder / _TEXT, folder / _FIRST
    try:
        with text.open("w", encoding="ascii") as file:
            for start, end in pairwise(sequences.offsets.tolist()):
                file.write(" ".join(map(str, sequences.token[start:end].tolist())) + "\n")
        _write_vectors(first, words, settings)
        model = fasttext.train_unsupervised(
            os.fspath(text), model="skipgram", dim=settings.dimensions, ws=settings.window, epoch=settings.epochs,
            neg=settings.negatives, lr=settings.learning_rate, minCount=settings.least, t=settings.frequent,
            pretrainedVectors=os.fspath(first), minn=0, maxn=0, thread=1, verbose=0,
        )  # fmt: skip
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot be written ({error.strerror or error})") from error
    except (ValueError, RuntimeError) as error:
        raise TrainingFailed(f"fastText failed ({error}); try a smaller learning rate") from error
    finally:
        text.unlink(missing_ok=True)
        first.unlink(missing_ok=True)
    vectors = np.array([model.get_word_vector(str(word)) for word in words], np.float32)
    return [sequences.names[word] for word in words], vectors


def _write_vectors(path: Path, words: list[int], settings: FastTextSettings) -> None:
    """Write random initial vectors in the scale and format of fastText."""
    names = [_END_OF_LINE, *map(str, words)]
    size = 1 / settings.dimensions
    vectors = np.random.default_rng(settings.seed).uniform(-size, size, (len(names), settings.dimensions))
    with path.open("w", encoding="ascii") as file:
        file.write(f"{len(names)} {settings.dimensions}\n")
        for name, vector in zip(names, vectors.tolist(), strict=True):
            file.write(f"{name} {' '.join(f'{value:.8f}' for value in vector)}\n")
