"""fastText on serialised trees (Mansouri et al. 2019; paper, section 6.4): a formula is the mean of its tokens.

Only learning needs fastText. What it learned is kept as safetensors with the words as JSON: its own file format holds
more than is needed, and reading it means trusting native code with a file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import BadInput, CorruptData, LearningFailed, StorageFailed
from eqkin.evaluation.systems.base import Embedding, Floats, Formulas
from eqkin.evaluation.systems.serialised import Sequences, labels, serialised
from eqkin.evaluation.systems.terms import installed
from eqkin.library.durable import write_file

if TYPE_CHECKING:
    from eqkin.learning.corpus import Corpus

_TEXT, _WORDS, _VECTORS = "serialised.txt", "words.json", "vectors.safetensors"
_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """How skip-grams are learned: fastText's defaults, except that tokens have no parts and none is passed over.

    Of words, fastText passes over the frequent ones, which say little. Here a few hundred symbols make up most of a
    formula, and passing over them would leave hardly anything.
    """

    dimensions: int = 100
    window: int = 5  # tokens to each side
    epochs: int = 5
    negatives: int = 5  # for each token
    learning_rate: float = 0.05
    least: int = 5  # rarer tokens have no vector
    frequent: float = 1.0  # tokens with a larger share of the text are passed over now and then


class FastText(Embedding):
    """Mean of skip-gram vectors of the nodes' labels; cosine."""

    name = "fasttext"
    title = "fastText"

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._words: dict[str, int] = {}
        self._vectors: Floats = np.zeros((0, self._settings.dimensions), np.float32)

    @property
    def settings(self) -> dict[str, Any]:
        """How it learns."""
        return asdict(self._settings)

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn vectors of the labels, or load them.

        With one thread the same corpus gives the same vectors. It takes minutes; if it is stopped, it begins anew.

        Raises:
            BadInput: fastText is not installed, or no label is frequent enough.
            LearningFailed: fastText gave up.
            CorruptData: what lies in the folder is damaged.
        """
        if not (folder / _WORDS).is_file():
            words, vectors = _learned(serialised(corpus.forest), self._settings, folder / _TEXT)
            write_file(folder / _VECTORS, safetensors.save({"vectors": vectors}))
            write_file(folder / _WORDS, json.dumps({"version": _VERSION, "words": words}, ensure_ascii=False).encode())
        words, self._vectors = _load(folder, self._settings.dimensions)
        self._words = {word: at for at, word in enumerate(words)}

    def encode(self, formulas: Formulas) -> Floats:
        """Means over the labels that have a vector, (formulas, dimensions); zeros where none has."""
        if not self._words:
            raise BadInput("fastText has learned nothing yet: fit it first")
        sparse = installed("scipy.sparse")
        forest = formulas.forest
        names, label = labels(forest)
        word = np.array([self._words.get(name, -1) for name in names], np.int32)[label]
        known = word >= 0
        ends = np.concatenate(([0], np.cumsum(known)))[forest.offsets]
        shape = (len(forest), len(self._vectors))
        occurs = sparse.csr_matrix((np.ones(ends[-1], np.float32), word[known], ends), shape)
        return np.asarray((occurs @ self._vectors) / np.maximum(np.diff(ends), 1)[:, None], np.float32)


def _learned(sequences: Sequences, settings: Settings, path: Path) -> tuple[list[str], Floats]:
    """Words and their vectors; `path` holds the text meanwhile.

    Tokens are numbers there, so that nothing in a formula can be taken for a blank or for the end of a line.
    """
    fasttext = installed("fasttext")
    numbered = Sequences([str(number) for number in range(len(sequences.names))], sequences.token, sequences.offsets)
    try:
        with path.open("w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in numbered.lines())
    except OSError as error:
        raise StorageFailed(f"{path}: could not be written ({error.strerror or error})") from error
    try:
        model = fasttext.train_unsupervised(
            os.fspath(path), model="skipgram", dim=settings.dimensions, ws=settings.window, epoch=settings.epochs,
            neg=settings.negatives, lr=settings.learning_rate, minCount=settings.least, t=settings.frequent,
            minn=0, maxn=0, thread=1, verbose=0,
        )  # fmt: skip
    except ValueError as error:
        raise BadInput(f"fastText cannot learn from these formulas ({error}); give it more") from error
    except RuntimeError as error:
        raise LearningFailed(f"fastText gave up ({error}); try a smaller learning rate") from error
    finally:
        path.unlink(missing_ok=True)
    words = sorted(int(word) for word in model.get_words() if word.isdecimal())  # not the end of a line
    vectors = np.array([model.get_word_vector(str(word)) for word in words], np.float32)
    if not words:
        raise BadInput("fastText found no frequent token in these formulas; give it more")
    return [sequences.names[word] for word in words], vectors


def _load(folder: Path, dimensions: int) -> tuple[list[str], Floats]:
    try:
        described = json.loads((folder / _WORDS).read_bytes())
        words = described["words"]
        vectors = safetensors.load((folder / _VECTORS).read_bytes())["vectors"]
        fits = described["version"] == _VERSION and vectors.dtype == np.float32
        if not fits or vectors.shape != (len(words), dimensions) or not all(isinstance(word, str) for word in words):
            raise ValueError("of another version or size")
        if not np.isfinite(vectors).all():
            raise ValueError("a vector is not finite")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CorruptData(f"{folder}: no vectors of words, or damaged ({error}); delete it to learn again") from error
    return words, vectors
