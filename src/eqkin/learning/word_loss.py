"""Words as a teacher: an equation is to be near the words around it, as in CLIP (Radford et al. 2021).

The words around an equation make a vector: the sum of their learned vectors, each times how rare the word is, scaled to
length 1. Among the equations of a batch each is to find its words, and words their equation.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.learning.corpus_words import ContextWords
from eqkin.learning.randomness import Stream
from eqkin.learning.structure_teacher import MASKED
from eqkin.learning.tables import heaviest

WORDS = 48  # of an equation that are kept, the rarest
_LEFT_OUT = 0.5  # share of an equation's words that are left out, others every time
_SPREAD = 0.1  # of the first vectors
_FIRST_SCALE, _MOST_SCALE = 1 / 0.07, 100.0  # of cosines; learned


class WordTables:
    """The words around all trees of a corpus on a device, as tables of one width.

    Args:
        words: Of the corpus; how rare a word is goes by it.
        device: Where to keep the tables.
    """

    def __init__(self, words: ContextWords, device: torch.device) -> None:
        self.vocabulary = len(words.vocabulary)
        frequency = np.bincount(words.word, minlength=self.vocabulary)
        rarity = np.log(max(len(words), 1) / np.maximum(frequency, 1)).astype(np.float32)
        table, real = heaviest(words.offsets, rarity[words.word], WORDS)
        word = np.append(words.word, np.uint16(0))[table]
        weight = np.where(real, rarity[word] if self.vocabulary else np.float32(0), np.float32(0))
        self.word = torch.from_numpy(word.astype(np.int32)).to(device)  # (trees, 48)
        self.weight = torch.from_numpy(weight.astype(np.float16)).to(device)  # 0 where there is no further word

    @property
    def bytes(self) -> int:
        """Bytes of the tables."""
        return sum(table.numel() * table.element_size() for table in (self.word, self.weight))


class WordLoss(nn.Module):
    """Vectors of words, and the loss of equations that are to find theirs.

    Args:
        tables: The words around each tree.
        dimensions: Of the vectors.
        seed: Same seed, same step: the same words are left out.
    """

    def __init__(self, tables: WordTables, dimensions: int, *, seed: int = 0) -> None:
        super().__init__()
        self._tables, self._stream = tables, Stream(seed, "words")
        self.vectors = nn.Parameter(torch.randn(tables.vocabulary, dimensions) * _SPREAD)
        self.scale = nn.Parameter(torch.tensor(math.log(_FIRST_SCALE)))

    def forward(self, embeddings: Tensor, trees: Tensor, same: Tensor, step: Tensor) -> Tensor:
        """The mean of both ways over the equations that have words.

        Args:
            embeddings: Of length 1, (m, dimensions).
            trees: Which trees these are.
            same: (m, m) pairs that are no negatives for each other; each with itself among them.
            step: Number of the step, which decides what words are left out.
        """
        weight = self._tables.weight[trees].to(self.vectors.dtype)
        index = torch.arange(weight.numel(), device=trees.device).view(weight.shape)
        kept = self._stream.uniform(step, index) >= _LEFT_OUT
        weight = weight * kept
        vectors = functional.embedding(self._tables.word[trees].long(), self.vectors)
        texts = functional.normalize((vectors * weight[:, :, None]).sum(1), dim=1)
        has_words = weight.amax(1) > 0
        own = torch.eye(len(trees), dtype=torch.bool, device=trees.device)
        left_out = (same & ~own) | ~(has_words[:, None] & has_words)
        logits = (embeddings @ texts.T * self.scale.exp().clamp(max=_MOST_SCALE)).masked_fill(left_out, MASKED)
        both = functional.log_softmax(logits, dim=1).diagonal() + functional.log_softmax(logits, dim=0).diagonal()
        return -0.5 * torch.where(has_words, both, 0.0).sum() / has_words.sum().clamp(min=1)
