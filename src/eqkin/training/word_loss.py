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

from eqkin.training.corpus_words import ContextWords
from eqkin.training.randomness import RandomStream
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup, select_rows
from eqkin.training.share import BATCH_GROUPS
from eqkin.training.structure_teacher import MASKED_LOGIT
from eqkin.training.tables import select_heaviest

WORDS = 48  # of an equation that are kept, the rarest
_LEFT_OUT = 0.5  # share of an equation's words that are left out, others every time
_INITIAL_DEVIATION = 0.1  # of the first vectors
_INITIAL_SCALE, _MAX_SCALE = 1 / 0.07, 100.0  # of cosines; learned


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
        table, real = select_heaviest(words.offsets, rarity[words.word], WORDS)
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
        ranks: The processes among which batches are dealt out.
    """

    def __init__(
        self, tables: WordTables, dimensions: int, *, seed: int = 0, ranks: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        self._tables, self._stream, self._ranks = tables, RandomStream(seed, "words"), ranks
        self.vectors = nn.Parameter(torch.randn(tables.vocabulary, dimensions) * _INITIAL_DEVIATION)
        self.scale = nn.Parameter(torch.tensor(math.log(_INITIAL_SCALE)))

    def forward(
        self, embeddings: Tensor, trees: Tensor, same: Tensor, step: Tensor, rows: Tensor | None = None
    ) -> Tensor:
        """The mean of both ways over the equations that have words; of several processes' shares of it, this one's.

        Args:
            embeddings: Of length 1, (m, dimensions).
            trees: Which trees these are; those of `rows`.
            same: (rows, m) pairs that are no negatives for each other; each with itself among them.
            step: Number of the step, which decides what words are left out.
            rows: Numbers of this process's equations among the m; None for all.
        """
        every = torch.arange(len(embeddings), device=trees.device)
        own = every if rows is None else rows
        texts, has_words = self._embed_words(trees, step, own)
        all_texts, all_have = texts, has_words
        if rows is not None:
            told = self._ranks.all_gather(torch.cat([texts, has_words[:, None].to(texts.dtype)], dim=1), BATCH_GROUPS)
            all_texts, all_have = told[:, :-1], told[:, -1] > 0
        left_out = (same & (own[:, None] != every)) | ~(has_words[:, None] & all_have)
        scale = self.scale.exp().clamp(max=_MAX_SCALE)
        asked = (select_rows(embeddings, rows) @ all_texts.T * scale).masked_fill(left_out, MASKED_LOGIT)
        if rows is None:
            both = functional.log_softmax(asked, dim=1).diagonal() + functional.log_softmax(asked, dim=0).diagonal()
        else:
            answered = (texts @ embeddings.T * scale).masked_fill(left_out, MASKED_LOGIT)
            ways = torch.stack([functional.log_softmax(way, dim=1) for way in (asked, answered)])
            both = ways.gather(2, rows.expand(2, -1)[:, :, None]).sum((0, 2))
        return -0.5 * torch.where(has_words, both, 0.0).sum() / all_have.sum().clamp(min=1)

    def _embed_words(self, trees: Tensor, step: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of the words around some trees, and which have any; `places` decide what is left out."""
        weight = self._tables.weight[trees].to(self.vectors.dtype)
        index = places[:, None] * weight.shape[1] + torch.arange(weight.shape[1], device=trees.device)
        kept = self._stream.draw_uniform(step, index) >= _LEFT_OUT
        weight = weight * kept
        vectors = functional.embedding(self._tables.word[trees].long(), self.vectors)
        texts = functional.normalize((vectors * weight[:, :, None]).sum(1), dim=1)
        return texts, weight.amax(1) > 0
