r"""What training minimises: the objectives of the recipes "paper" and "eqkin", and the losses that they add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.model import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Vocabulary
from eqkin.errors import BadInput
from eqkin.learning.batches import Augmentation, DeviceBatch, DeviceForest, Masking, NodeMask, Renaming
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.sampling import RandomStream, TripletSampler, find_structural_neighbours
from eqkin.learning.text import Teachers, TermTables, WordTables
from eqkin.learning.torch_network import build_network

HISTOGRAM_NODES = 64
CONTEXT_TEMPERATURE = 0.07
INFO_NCE_TEMPERATURE = 0.01
MASKING_CLASSES = {"tag": TAG_SLOTS, "attribute": ATTRIBUTE_SLOTS + 1, "character": CHARACTER_SLOTS + 1}
WORD_DROPOUT = 0.5
# Stands for a logit that must not count; infinity would make gradients NaN.
_MASKED_LOGIT = -1e4
# GPUs multiply matrices faster if their sizes are multiples of it.
_COLUMN_ALIGNMENT = 8
_INITIAL_WORD_DEVIATION = 0.1
_INITIAL_SCALE, _MAX_SCALE = 1 / 0.07, 100.0


@dataclass(frozen=True)
class TrainingData:
    """The data that a recipe needs on the device."""

    forest: DeviceForest
    sampler: TripletSampler
    # Only for the loss "kin".
    teachers: Teachers | None = None


def build_training_data(corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device) -> TrainingData:
    """Put a corpus on the device; raises `BadInput` if it is too small for the recipe."""
    teachers = neighbours = None
    if recipe.loss == "kin":
        if len(corpus.papers) < 2:
            raise BadInput("this recipe contrasts equations of different papers, but there is only one paper: add more")
        paper = torch.from_numpy(corpus.paper.astype(np.int32)).to(device)
        terms, words = TermTables(corpus.forest, device), None
        if recipe.words_weight and corpus.words is not None and len(corpus.words.word):
            words = WordTables(corpus.words, device)
        teachers = Teachers(paper, terms, words)
        # Random batches hardly contain two trees with much in common: a neighbour of each anchor joins them.
        neighbours = find_structural_neighbours(terms, paper)
    sampler = TripletSampler(
        corpus,
        seed=recipe.seed,
        device=device,
        balance=recipe.balance,
        shares={NOTATIONS: recipe.notations_share, NAMES: recipe.names_share},
        neighbours=neighbours,
    )
    return TrainingData(DeviceForest(corpus.forest, vocabulary, device), sampler, teachers)


class Objective(nn.Module):
    """A network and the losses of a recipe; `dtype` is the precision of the network's products."""

    # Names of the losses.
    parts: tuple[str, ...]

    def __init__(self, recipe: Recipe, data: TrainingData, dtype: torch.dtype) -> None:
        super().__init__()
        self.recipe, self.data, self.dtype = recipe, data, dtype
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = build_network(recipe.architecture)
            self._build_losses()
        device = data.forest.device
        self.to(device)
        self._masking = Masking(recipe.masking, seed=recipe.seed) if recipe.masking else None
        self._augmentation = None
        if recipe.transpositions and recipe.renamed:
            self._augmentation = Augmentation(
                recipe.transpositions, seed=recipe.seed, device=device, share=recipe.renamed
            )

    def _build_losses(self) -> None:
        """Build what the losses learn; their parameters are drawn after those of the network."""
        raise NotImplementedError

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the losses in the order of `parts`.

        Args:
            trees: Anchors, partners and negatives, (3 x batch,).
            nodes: 0, 1, ..., at least as many as the trees have nodes.
            step: Number of the step, which determines the augmentation.
        """
        raise NotImplementedError

    def _encode_nodes(
        self, trees: Tensor, nodes: Tensor, step: Tensor
    ) -> tuple[Tensor, DeviceBatch, NodeMask | None, Renaming | None]:
        """Return the vectors of all nodes after augmentation, with the batch and its augmentation."""
        forest = self.data.forest
        batch = forest.collate(trees, nodes)
        renaming = self._augmentation.draw(step, len(trees)) if self._augmentation else None
        mask = self._masking.draw(step, nodes, batch.trees.node_count) if self._masking else None
        features = forest.build_features(batch, self.dtype, renaming=renaming, mask=mask)
        return self.network.encode_nodes(features, batch.trees), batch, mask, renaming


class PaperObjective(Objective):
    """The paper's objective: a loss of similarities plus the masking task."""

    parts = ("similarity", "masking")

    def _build_losses(self) -> None:
        self.heads = MaskingHeads(self.recipe.architecture.width)

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return both losses; see `Objective.forward`."""
        vectors, batch, mask, renaming = self._encode_nodes(trees, nodes, step)
        anchor, partner, negative = self.network.pool(vectors, batch.trees).chunk(3)
        compute_loss = compute_triplet_loss if self.recipe.loss == "triplet" else compute_histogram_loss
        similarity = compute_loss(anchor, partner, negative)
        if mask is None:
            return torch.stack([similarity, torch.zeros_like(similarity)])
        targets = self.data.forest.build_masking_targets(batch, mask.nodes, renaming)
        return torch.stack([similarity, self.heads(vectors, mask, targets)])


class EqkinObjective(Objective):
    """The objective of the recipe "eqkin": three teachers, structure, context and words.

    A batch has anchors, partners by context, and structural neighbours of the anchors. Equations of the same paper are
    never negatives of each other: they are near-duplicates, and contrasting them teaches authorship, not content.
    Masking, renaming and word dropout keep the network from memorising its equations, which takes about ten epochs.
    """

    parts = ("structure", "context", "words")

    def _build_losses(self) -> None:
        assert self.data.teachers is not None
        recipe, tables = self.recipe, self.data.teachers.words
        self.words = WordLoss(tables, recipe.architecture.dimensions, seed=recipe.seed) if tables else None

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the three losses times their weights; see `Objective.forward`."""
        recipe, teachers = self.recipe, self.data.teachers
        assert teachers is not None
        vectors, batch, _, _ = self._encode_nodes(trees, nodes, step)
        # Embeddings of "sum" have other lengths.
        embeddings = functional.normalize(self.network.pool(vectors, batch.trees), dim=1)
        paper = teachers.paper[trees]
        same_paper = paper[:, None] == paper
        structure, context, words = embeddings.new_zeros(3).unbind()
        if recipe.structure_weight:
            teacher = teachers.terms.to_dense(trees, self.dtype)
            structure = compute_structure_loss(embeddings, teacher, same_paper, recipe.temperature)
        if recipe.context_weight:
            anchor, partner, _ = embeddings.chunk(3)
            anchor_paper, partner_paper, _ = paper.chunk(3)
            context = compute_context_loss(anchor, partner, anchor_paper, partner_paper)
        if self.words is not None:
            words = self.words(embeddings, trees, same_paper, step)
        return torch.stack(
            [recipe.structure_weight * structure, recipe.context_weight * context, recipe.words_weight * words]
        )


def build_objective(recipe: Recipe, data: TrainingData, dtype: torch.dtype) -> Objective:
    """Build the objective of a recipe."""
    kind = PaperObjective if data.teachers is None else EqkinObjective
    return kind(recipe, data, dtype)


def compute_triplet_loss(anchor: Tensor, partner: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean of max(0, margin - <anchor, partner> + <anchor, negative>) over the rows (paper, section 4.2)."""
    difference = margin - (anchor * partner).sum(1) + (anchor * negative).sum(1)
    return difference.clamp(min=0.0).mean()


def compute_histogram_loss(anchor: Tensor, partner: Tensor, negative: Tensor, nodes: int = HISTOGRAM_NODES) -> Tensor:
    """Return the histogram loss (Ustinova and Lempitsky 2016; paper, section 4.2).

    Similarities are distributed over R nodes t_1 = -1, ..., t_R = 1 at a distance w = 2 / (R - 1) by a triangular
    kernel:

        h_r = mean over s of  max(0, 1 - |s - t_r| / w)

    Every s in [-1, 1] contributes a mass of 1 to the two nodes around it. The loss is the probability that a negative
    pair is at least as similar as a positive one, up to that blur:

        loss = sum over r of  h-_r (h+_1 + ... + h+_r)

    Positive pairs are the rows of anchors and partners; negative ones are all pairs of an anchor and a negative.
    """
    positive = compute_histogram((anchor * partner).sum(1), nodes)
    against = compute_histogram((anchor @ negative.T).flatten(), nodes)
    return (against * positive.cumsum(0)).sum()


def compute_histogram(similarities: Tensor, nodes: int = HISTOGRAM_NODES) -> Tensor:
    """Return the masses of the nodes, (nodes,), which sum to 1; similarities are clamped to [-1, 1]."""
    masses: Tensor = _HistogramFunction.apply(similarities, nodes)  # type: ignore[no-untyped-call]
    return masses


class _HistogramFunction(torch.autograd.Function):
    """The histogram, with a gradient that does not keep nodes x similarities numbers in memory."""

    @staticmethod
    def forward(similarities: Tensor, nodes: int) -> Tensor:
        position = (similarities.clamp(-1.0, 1.0) + 1.0) * ((nodes - 1) / 2)
        node = torch.arange(nodes, dtype=position.dtype, device=position.device)
        # Every node reads every similarity: without scattered additions, the sum is the same every time.
        return (1.0 - (position[None, :] - node[:, None]).abs()).clamp(min=0.0).sum(1) / len(position)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        similarities, ctx.nodes = inputs
        ctx.save_for_backward(similarities)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (similarities,) = ctx.saved_tensors
        rate = (ctx.nodes - 1) / 2
        # The clamp also gives NaN a node, so that it is found in the loss instead of reading outside of the histogram.
        left = ((similarities + 1.0) * rate).floor().long().clamp(0, ctx.nodes - 2)
        slope = gradient[left + 1] - gradient[left]
        inside = (similarities >= -1.0) & (similarities <= 1.0)
        return torch.where(inside, slope * (rate / len(similarities)), 0.0), None


def compute_info_nce_loss(left: Tensor, right: Tensor, temperature: float = INFO_NCE_TEMPERATURE) -> Tensor:
    r"""Return the InfoNCE loss (van den Oord et al. 2018; paper, section 6.4) of m pairs of vectors of any length.

    $$ \ell = -\frac{1}{m} \sum_i \log \frac{\exp(s_{ii} / \tau)}{\sum_j \exp(s_{ij} / \tau)} $$

    where s_ij is the cosine of left side i and right side j. The paper's formula lacks the minus sign, and its
    denominator the right answer (j != i), apparently by mistake. As in the paper, only left sides are queries.
    """
    cosines = functional.normalize(left.float()) @ functional.normalize(right.float()).T
    return functional.cross_entropy(cosines / temperature, torch.arange(len(left), device=left.device))


def compute_context_loss(anchor: Tensor, partner: Tensor, anchor_paper: Tensor, partner_paper: Tensor) -> Tensor:
    """Return InfoNCE over the batch: find the partner, from the same section, paper or citation, among all others.

    All partners and all other anchors are negatives, except those of the anchor's own paper.
    """
    target = torch.arange(len(anchor), device=anchor.device)
    same_partner = (anchor_paper[:, None] == partner_paper) & (target[:, None] != target)
    same_anchor = anchor_paper[:, None] == anchor_paper
    to_partners = (anchor @ partner.T / CONTEXT_TEMPERATURE).masked_fill(same_partner, _MASKED_LOGIT)
    to_anchors = (anchor @ anchor.T / CONTEXT_TEMPERATURE).masked_fill(same_anchor, _MASKED_LOGIT)
    return functional.cross_entropy(torch.cat([to_partners, to_anchors], dim=1), target)


def compute_structure_loss(embeddings: Tensor, teacher: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    r"""Return the distillation loss from tf-idf vectors of terms (`teachers.TermTables`).

    For each tree i of a batch, P_i is the softmax of the cosines of these vectors over the other trees of the batch,
    and Q_i that of the cosines of the embeddings, both with the same temperature:

    $$ \ell = \frac{1}{m} \sum_i KL(P_i \| Q_i). $$

    Args:
        embeddings: Of length 1, (m, dimensions).
        teacher: Term vectors of the same trees, of length 1.
        excluded: (m, m) pairs that do not count, such as each tree with itself.
        temperature: Of both.
    """
    wanted = (teacher @ teacher.T).float() / temperature
    given = embeddings @ embeddings.T / temperature
    log_p = functional.log_softmax(wanted.masked_fill(excluded, _MASKED_LOGIT), dim=1)
    log_q = functional.log_softmax(given.masked_fill(excluded, _MASKED_LOGIT), dim=1)
    return (log_p.exp() * (log_p - log_q)).masked_fill(excluded, 0.0).sum(1).mean()


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
        # Half of an equation's words are left out at random, or the network learns its few rarest words by heart.
        index = every[:, None] * weight.shape[1] + torch.arange(weight.shape[1], device=trees.device)
        weight = weight * (self._stream.draw_uniform(step, index) >= self._dropout)
        vectors = functional.embedding(self._tables.word[trees].long(), self.vectors)
        texts = functional.normalize((vectors * weight[:, :, None]).sum(1), dim=1)
        has_words = weight.amax(1) > 0
        excluded = (same & (every[:, None] != every)) | ~(has_words[:, None] & has_words)
        scale = self.scale.exp().clamp(max=_MAX_SCALE)
        logits = (embeddings @ texts.T * scale).masked_fill(excluded, _MASKED_LOGIT)
        both = functional.log_softmax(logits, dim=1).diagonal() + functional.log_softmax(logits, dim=0).diagonal()
        return -0.5 * torch.where(has_words, both, 0.0).sum() / has_words.sum().clamp(min=1)


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

    def forward(self, nodes: Tensor, mask: NodeMask, targets: Tensor) -> Tensor:
        """Return the masking loss.

        Args:
            nodes: Vectors of the last layer, (nodes, width).
            mask: The hidden nodes.
            targets: Tag, attribute and character (as classes) of the nodes in `mask.nodes`, (room, 3).
        """
        vectors: Tensor = _SelectRows.apply(nodes, mask.nodes, mask.room)  # type: ignore[no-untyped-call]
        # One product for all three maps.
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
        return torch.where(real, losses, 0.0).sum() / (len(MASKING_CLASSES) * mask.count.clamp(min=1))


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
