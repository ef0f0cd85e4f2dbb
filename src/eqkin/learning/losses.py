r"""Losses, each an `nn.Module`, and the tables of the teachers on the device.

Of several processes that train together, each computes the expensive losses of its own rows of the batch alone (see
`distributed`); their documentation says how the results add up. The others are computed by every process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.formulas import Forest
from eqkin.formulas.terms import extract_terms
from eqkin.formulas.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS
from eqkin.learning.augmentation import NodeMask
from eqkin.learning.distributed import select_rows
from eqkin.learning.randomness import RandomStream
from eqkin.learning.text import ContextWords

HISTOGRAM_NODES = 64
CONTEXT_TEMPERATURE = 0.07
INFO_NCE_TEMPERATURE = 0.01
MASKING_CLASSES = {"tag": TAG_SLOTS, "attribute": ATTRIBUTE_SLOTS + 1, "character": CHARACTER_SLOTS + 1}
TERM_COLUMN_BITS = 14
TERM_COLUMNS = 1 << TERM_COLUMN_BITS
MAX_TERMS = 256  # per tree, those with the largest weights
MAX_WORDS = 48  # per equation, the rarest
WORD_DROPOUT = 0.5  # fraction of an equation's words that are left out at random
_MASKED_LOGIT = -1e4  # instead of a logit that must not count
_IDF_FLOOR = 0.1  # added to the idf weight, so that a term of all trees still counts
_PART_TREES = 20_000  # processed at a time
_COLUMN_ALIGNMENT = 8  # matrix units prefer multiples of it
_INITIAL_WORD_DEVIATION = 0.1
_INITIAL_SCALE, _MAX_SCALE = 1 / 0.07, 100.0  # of cosines of words and equations; learned

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class TripletLoss(nn.Module):
    """Mean of max(0, margin - <anchor, partner> + <anchor, negative>) over the rows (paper, section 4.2)."""

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, anchor: Tensor, partner: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of embeddings of anchors, related and unrelated equations, each (batch, dimensions)."""
        difference = self.margin - (anchor * partner).sum(1) + (anchor * negative).sum(1)
        return difference.clamp(min=0.0).mean()


class HistogramLoss(nn.Module):
    """Histogram loss (Ustinova and Lempitsky 2016; paper, section 4.2).

    Similarities are distributed over R nodes t_1 = -1, ..., t_R = 1 at a distance w = 2 / (R - 1) by a triangular
    kernel:

        h_r = mean over s of  max(0, 1 - |s - t_r| / w)

    Every s in [-1, 1] contributes a mass of 1 to the two nodes around it. The loss is the probability that a negative
    pair is at least as similar as a positive one, up to that blur:

        loss = sum over r of  h-_r (h+_1 + ... + h+_r)

    Args:
        mean: Averages a histogram over all processes that share the batch.
    """

    def __init__(self, nodes: int = HISTOGRAM_NODES, mean: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.nodes, self._mean = nodes, mean

    def forward(self, anchor: Tensor, partner: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of all pairs of rows against all pairs of an anchor and a negative of the whole batch."""
        positive = compute_histogram((anchor * partner).sum(1), self.nodes)
        against = compute_histogram((anchor @ negative.T).flatten(), self.nodes)
        if self._mean is not None:
            positive, against = self._mean(positive), self._mean(against)
        return (against * positive.cumsum(0)).sum()


def compute_histogram(similarities: Tensor, nodes: int = HISTOGRAM_NODES) -> Tensor:
    """Return the masses of the nodes, (nodes,), which sum to 1; similarities are clamped to [-1, 1]."""
    masses: Tensor = _HistogramFunction.apply(similarities, nodes)  # type: ignore[no-untyped-call]
    return masses


class _HistogramFunction(torch.autograd.Function):
    @staticmethod
    def forward(similarities: Tensor, nodes: int) -> Tensor:
        position = (similarities.clamp(-1.0, 1.0) + 1.0) * ((nodes - 1) / 2)
        node = torch.arange(nodes, dtype=position.dtype, device=position.device)
        # every node reads every similarity: without scattered additions, the sum is the same every time
        return (1.0 - (position[None, :] - node[:, None]).abs()).clamp(min=0.0).sum(1) / len(position)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        similarities, ctx.nodes = inputs
        ctx.save_for_backward(similarities)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (similarities,) = ctx.saved_tensors
        rate = (ctx.nodes - 1) / 2
        left = ((similarities + 1.0) * rate).floor().long().clamp(0, ctx.nodes - 2)  # also for NaN
        slope = gradient[left + 1] - gradient[left]
        inside = (similarities >= -1.0) & (similarities <= 1.0)
        return torch.where(inside, slope * (rate / len(similarities)), 0.0), None


class InfoNCELoss(nn.Module):
    r"""InfoNCE (van den Oord et al. 2018; paper, section 6.4): find the right side among all right sides of a batch.

    $$ \ell = -\frac{1}{m} \sum_i \log \frac{\exp(s_{ii} / \tau)}{\sum_j \exp(s_{ij} / \tau)} $$

    where s_ij is the cosine of left side i and right side j. The paper's formula lacks the minus sign, and its
    denominator the right answer (j != i), apparently by mistake. As in the paper, only left sides are queries.
    """

    def __init__(self, temperature: float = INFO_NCE_TEMPERATURE) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the loss of m pairs of vectors of any length, each (m, dimensions); the others are negatives."""
        cosines = functional.normalize(left.float()) @ functional.normalize(right.float()).T
        return functional.cross_entropy(cosines / self.temperature, torch.arange(len(left), device=left.device))


class ContextLoss(nn.Module):
    """InfoNCE over the batch: find the partner, from the same section, paper or citation, among all other equations.

    All partners and all other anchors are negatives, except those of the anchor's own paper.
    """

    def forward(self, anchor: Tensor, partner: Tensor, anchor_paper: Tensor, partner_paper: Tensor) -> Tensor:
        """Return the mean over the anchors; partners are related row by row."""
        target = torch.arange(len(anchor), device=anchor.device)
        same_partner = (anchor_paper[:, None] == partner_paper) & (target[:, None] != target)
        same_anchor = anchor_paper[:, None] == anchor_paper
        logits = torch.cat(
            [
                (anchor @ partner.T / CONTEXT_TEMPERATURE).masked_fill(same_partner, _MASKED_LOGIT),
                (anchor @ anchor.T / CONTEXT_TEMPERATURE).masked_fill(same_anchor, _MASKED_LOGIT),
            ],
            dim=1,
        )
        return functional.cross_entropy(logits, target)


class StructureLoss(nn.Module):
    r"""Distillation from tf-idf vectors of terms (`TermTables`).

    For each tree i of a batch, P_i is the softmax of the cosines of these vectors over the other trees of the batch,
    and Q_i that of the cosines of the embeddings, both with the same temperature:

    $$ \ell = \frac{1}{m} \sum_i KL(P_i \| Q_i). $$
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings: Tensor, teacher: Tensor, excluded: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the mean over the rows, or over some of them.

        Args:
            embeddings: Of length 1, (m, dimensions).
            teacher: Term vectors of the same trees, of length 1.
            excluded: (rows, m) pairs that do not count, such as each tree with itself.
            rows: The rows to average over; None for all.
        """
        wanted, given = select_rows(teacher, rows) @ teacher.T, select_rows(embeddings, rows) @ embeddings.T
        wanted, given = wanted.float() / self.temperature, given / self.temperature
        log_p = functional.log_softmax(wanted.masked_fill(excluded, _MASKED_LOGIT), dim=1)
        log_q = functional.log_softmax(given.masked_fill(excluded, _MASKED_LOGIT), dim=1)
        return (log_p.exp() * (log_p - log_q)).masked_fill(excluded, 0.0).sum(1).mean()


class TermTables:
    r"""The term vectors of all trees of a forest on a device.

    A tree is a vector of length 1 over 2^14 columns, to which its terms (`trees.terms`) are hashed. A term that occurs
    c times in the tree, in a column of d of the n trees, has the value

    $$ \frac{2c}{c + 1} \sqrt{\ln \frac{1 + n}{1 + d} + 0.1} $$

    The tables store the columns and values of the terms with the largest values of each tree.
    """

    def __init__(
        self, forest: Forest, device: torch.device, *, max_terms: int = MAX_TERMS, part_trees: int = _PART_TREES
    ) -> None:
        offsets, column, count = _hash_terms(forest, part_trees)
        idf = np.log((1 + len(forest)) / (1 + np.bincount(column, minlength=TERM_COLUMNS))) + _IDF_FLOOR
        value = (2 * count / (count + np.float32(1)) * np.sqrt(idf).astype(np.float32)[column]).astype(np.float32)
        columns = np.zeros((len(forest), max_terms), np.int16)
        values = np.zeros((len(forest), max_terms), np.float16)
        for start in range(0, len(forest), part_trees):
            part, rows = offsets[start : start + part_trees + 1], slice(start, start + part_trees)
            here = slice(int(part[0]), int(part[-1]))
            table, real = select_heaviest(part - part[0], value[here], max_terms)
            heaviest = np.append(value[here], np.float32(0))[table]
            heaviest[part[1:] == part[:-1]] = 0
            length = np.sqrt(np.where(real, heaviest**2, 0).sum(1, keepdims=True)).clip(1e-6)
            columns[rows], values[rows] = np.append(column[here], np.uint16(0))[table], heaviest / length
        self._column = torch.from_numpy(columns).to(device)
        self._value = torch.from_numpy(values).to(device)

    def __len__(self) -> int:
        return len(self._column)

    def to_dense(self, trees: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the vectors of some trees, (trees, 2^14).

        A row with fewer terms than the table has columns repeats its first one: the same value is written again.
        """
        rows = torch.zeros(len(trees), TERM_COLUMNS, dtype=dtype, device=trees.device)
        return rows.scatter(1, self._column[trees].long(), self._value[trees].to(dtype))


def _hash_terms(forest: Forest, part_trees: int) -> tuple[Integers, npt.NDArray[np.uint16], Floats]:
    """Return the offsets of each tree's columns, the columns in ascending order, and the counts of their terms."""
    terms = extract_terms(forest)
    sizes, columns, counts = [np.zeros(1, np.int64)], [np.zeros(0, np.uint16)], [np.zeros(0, np.float32)]
    for start in range(0, len(forest), part_trees):
        part = terms.offsets[start : start + part_trees + 1]
        here = slice(int(part[0]), int(part[-1]))
        tree = np.repeat(np.arange(len(part) - 1), np.diff(part))
        key = tree << TERM_COLUMN_BITS | (terms.code[here] >> (32 - TERM_COLUMN_BITS))  # ascending like the codes
        first = np.flatnonzero(np.diff(key, prepend=-1))
        sizes.append(np.bincount(key[first] >> TERM_COLUMN_BITS, minlength=len(part) - 1))
        columns.append((key[first] & (TERM_COLUMNS - 1)).astype(np.uint16))
        counts.append(np.add.reduceat(terms.count[here], first, dtype=np.float32) if len(first) else counts[0])
    return np.cumsum(np.concatenate(sizes)), np.concatenate(columns), np.concatenate(counts)


class WordLoss(nn.Module):
    """Contrastive loss between equations and the words around them, as in CLIP (Radford et al. 2021).

    The words around an equation form a vector: the sum of their learned vectors, weighted by idf and scaled to length
    1. Within a batch, each equation must find its words, and the words their equation.
    """

    def __init__(self, tables: WordTables, dimensions: int, *, seed: int = 0, dropout: float = WORD_DROPOUT) -> None:
        super().__init__()
        self._tables, self._stream, self._dropout = tables, RandomStream(seed, "words"), dropout
        self.vectors = nn.Parameter(torch.randn(tables.vocabulary, dimensions) * _INITIAL_WORD_DEVIATION)
        self.scale = nn.Parameter(torch.tensor(math.log(_INITIAL_SCALE)))

    def forward(self, embeddings: Tensor, trees: Tensor, same: Tensor, step: Tensor) -> Tensor:
        """Return the mean of both directions over the equations with words.

        Args:
            embeddings: Of length 1, (m, dimensions).
            trees: Numbers of the trees.
            same: (m, m) pairs that are not negatives of each other, including each equation with itself.
            step: Number of the step.
        """
        every = torch.arange(len(embeddings), device=trees.device)
        weight = self._tables.weight[trees].to(self.vectors.dtype)
        index = every[:, None] * weight.shape[1] + torch.arange(weight.shape[1], device=trees.device)
        weight = weight * (self._stream.draw_uniform(step, index) >= self._dropout)
        vectors = functional.embedding(self._tables.word[trees].long(), self.vectors)
        texts, has_words = functional.normalize((vectors * weight[:, :, None]).sum(1), dim=1), weight.amax(1) > 0
        excluded = (same & (every[:, None] != every)) | ~(has_words[:, None] & has_words)
        scale = self.scale.exp().clamp(max=_MAX_SCALE)
        logits = (embeddings @ texts.T * scale).masked_fill(excluded, _MASKED_LOGIT)
        both = functional.log_softmax(logits, dim=1).diagonal() + functional.log_softmax(logits, dim=0).diagonal()
        return -0.5 * torch.where(has_words, both, 0.0).sum() / has_words.sum().clamp(min=1)


class WordTables:
    """The words around all trees of a corpus on a device, the rarest `max_words` of each."""

    def __init__(self, words: ContextWords, device: torch.device, *, max_words: int = MAX_WORDS) -> None:
        self.vocabulary = len(words.vocabulary)
        frequency = np.bincount(words.word, minlength=self.vocabulary)
        idf = np.log(max(len(words), 1) / np.maximum(frequency, 1)).astype(np.float32)
        table, real = select_heaviest(words.offsets, idf[words.word], max_words)
        word = np.append(words.word, np.uint16(0))[table]
        weight = np.where(real, idf[word] if self.vocabulary else np.float32(0), np.float32(0))
        self.word = torch.from_numpy(word.astype(np.int32)).to(device)  # (trees, max_words)
        self.weight = torch.from_numpy(weight.astype(np.float16)).to(device)  # 0 for padding


def select_heaviest(offsets: Integers, weight: Floats, width: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Arrange rows of different lengths as a table; of rows that are too long, select the entries with most weight.

    Args:
        offsets: (rows + 1,) start of each row's entries.
        weight: Of all entries, row after row; of equal weights the first counts as larger.
        width: Entries per row of the table.

    Returns:
        (rows, width) numbers of entries in their order, and whether there is one. Where there is none, the number is
        that of the row's first selected entry, or 0 in an empty row.
    """
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    selected = np.ones(len(weight), bool)
    entries = np.flatnonzero((lengths > width)[row])
    order = entries[np.lexsort((-weight[entries], row[entries]))]
    rank = entries - offsets[row[entries]]  # sorting permutes entries only within their row
    selected[order[rank >= width]] = False

    counts, taken = np.minimum(lengths, width), np.flatnonzero(selected)
    starts = np.cumsum(counts) - counts
    row = np.repeat(np.arange(len(counts)), counts)
    table = np.zeros((len(counts), width), np.int64)
    table[counts > 0] = taken[starts[counts > 0], None]
    table[row, np.arange(len(taken)) - starts[row]] = taken
    return table, np.arange(width) < counts[:, None]


class MaskingHeads(nn.Module):
    """Masking task: predict the tag, attribute and character of hidden nodes (paper, section 4.2).

    Three linear maps of the last layer's vector of a hidden node predict its tag (32 classes), its attribute (32, or
    none) and its character (192, or none); of several attributes or characters the first counts. The loss is the mean
    of the three cross-entropies over the hidden nodes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        for name, classes in MASKING_CLASSES.items():
            setattr(self, name, nn.Linear(width, classes))

    def forward(self, nodes: Tensor, mask: NodeMask, targets: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the masking loss; the results of all processes sum to that of the whole batch.

        Args:
            nodes: Vectors of the last layer, (nodes, width).
            mask: The hidden nodes.
            targets: Tag, attribute and character (as classes) of the nodes in `mask.nodes`, (room, 3).
            count: Hidden nodes of the whole batch; by default, those of `mask`.
        """
        vectors: Tensor = _SelectRows.apply(nodes, mask.nodes, mask.room)  # type: ignore[no-untyped-call]
        heads: list[nn.Linear] = [getattr(self, name) for name in MASKING_CLASSES]
        weight = torch.cat([head.weight for head in heads])
        bias = torch.cat([head.bias for head in heads])
        padding = -len(bias) % _COLUMN_ALIGNMENT
        scores = functional.linear(
            vectors,
            functional.pad(weight, (0, 0, 0, padding)).to(vectors.dtype),
            functional.pad(bias, (0, padding)).to(vectors.dtype),
        ).to(torch.promote_types(vectors.dtype, torch.float32))
        losses = sum(
            functional.cross_entropy(part, targets[:, task], reduction="none")
            for task, part in enumerate(scores[:, : len(bias)].split(list(MASKING_CLASSES.values()), dim=1))
        )
        real = torch.arange(vectors.shape[0], device=nodes.device) < mask.count
        total = mask.count if count is None else count
        return torch.where(real, losses, 0.0).sum() / (len(MASKING_CLASSES) * total.clamp(min=1))


class _SelectRows(torch.autograd.Function):
    """Select rows of a matrix; as the new place of each row is known, the gradient is a gather, not a scatter."""

    @staticmethod
    def forward(matrix: Tensor, rows: Tensor, place: Tensor) -> Tensor:
        return matrix[rows]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (place,) = ctx.saved_tensors
        return torch.where((place >= 0)[:, None], gradient[place.clamp(min=0)], 0.0), None, None
