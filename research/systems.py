"""Baselines and peers of the experiments: bags of words, n-grams, terms of operator trees, an untrained network.

`BagOfWords` is the paper's (section 6.3): the sum of the nodes' 256 features. The others weight counts of terms by
log tf-idf; see `TfIdf`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, FEATURES, Architecture, Model, Vocabulary
from eqkin.errors import BadInput
from eqkin.evaluation import EmbeddingSystem, System
from eqkin.evaluation.systems import SYSTEMS, Float32s, FormulaSet, TfIdf, list_ngrams
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.terms import extract_terms
from eqkin.learning.data import Corpus
from research.approach0 import Approach0
from research.experiment import FittedSystem
from research.fasttext import FastText
from research.labels import label_nodes, order_depth_first

_VOCABULARY_FILE = "vocabulary.json"
_UNTRAINED_SEED = 0
# Their features are in memory at once.
_TREES_PER_BLOCK = 2_000


def serialize(forest: Forest) -> list[list[str]]:
    """List the labels of each tree's nodes in depth-first order: the order in which a formula is written."""
    names, label = label_nodes(forest)
    words = [names[number] for number in label[order_depth_first(forest)].tolist()]
    return [words[start:end] for start, end in pairwise(forest.offsets.tolist())]


class BagOfWords(FittedSystem, EmbeddingSystem):
    """The paper's bag of words: counts of 32 tags, 32 attributes and 192 characters; cosine."""

    name = "bag-of-words"
    title = "Bag of words"

    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn which tags, attributes and characters are frequent, or load that vocabulary."""
        if not (folder / _VOCABULARY_FILE).is_file():
            Vocabulary.learn([corpus.forest]).save(folder / _VOCABULARY_FILE)
        self._vocabulary = Vocabulary.load(folder / _VOCABULARY_FILE)

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Count features, (formulas, 256); raises `BadInput` before `fit`."""
        if self._vocabulary is None:
            raise BadInput("the bag of words has no vocabulary yet: call fit first")
        vectors = np.zeros((len(formulas), FEATURES), np.float32)
        for start in range(0, len(formulas), _TREES_PER_BLOCK):
            some = np.arange(start, min(start + _TREES_PER_BLOCK, len(formulas)))
            forest = formulas.forest.select(some)
            vectors[some] = np.add.reduceat(self._vocabulary.extract_features(forest), forest.offsets[:-1], axis=0)
        return vectors


class LogBagOfWords(TfIdf):
    """Labels of nodes: tag, text and style of letters."""

    name = "log-bag-of-words"
    title = "Bag of words, log tf-idf"

    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List labels."""
        return serialize(formulas.forest)


class TfIdfTree(TfIdf):
    """N-grams of labels in depth-first order."""

    name = "tfidf-tree"
    title = "TF-IDF, 1-3-grams of serialised trees"

    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List n-grams."""
        return [list_ngrams(labels) for labels in serialize(formulas.forest)]


class TreePairs(TfIdf):
    """Pairs of parent and child, and of neighbouring siblings.

    A root forms a pair with nothing, so that a formula of one symbol has a vector too.
    """

    name = "tree-pairs"
    title = "Tree pairs, log tf-idf"

    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List pairs."""
        forest = formulas.forest
        names, label = label_nodes(forest)
        words = [names[number] for number in label.tolist()]
        parents = forest.compute_parent().tolist()
        terms: list[list[str]] = []
        for start, end in pairwise(forest.offsets.tolist()):
            pairs = [f"nothing above {words[start]}"]
            for node in range(start + 1, end):
                pairs.append(f"{words[parents[node]]} above {words[node]}")
                # Trees are stored breadth first: siblings are neighbours.
                if parents[node - 1] == parents[node] and node - 1 > start:
                    pairs.append(f"{words[node - 1]} beside {words[node]}")
            terms.append(pairs)
        return terms


class OperatorTfIdf(TfIdf):
    """Paths and trees of the outlines of operator trees."""

    name = "operator-terms"
    title = "Operator trees, log tf-idf"

    def list_terms(self, formulas: FormulaSet) -> list[list[str]]:
        """List the terms of operator trees."""
        found = extract_terms(parse_operators(formulas.forest))
        terms: list[list[str]] = [[] for _ in range(len(formulas))]
        for tree, code, count in zip(found.tree.tolist(), found.code.tolist(), found.count.tolist(), strict=True):
            terms[tree] += [str(code)] * count
        return terms


class UntrainedNetwork(FittedSystem, EmbeddingSystem):
    """A network with random weights: the value of the architecture alone. Only its vocabulary is learned."""

    name = "untrained"
    title = "Untrained network"

    def __init__(self) -> None:
        self._encoder: Encoder | None = None

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn the vocabulary and draw the weights, or load both."""
        if not (folder / DESCRIPTION_FILE).is_file():
            import torch

            from eqkin.learning.torch_network import build_network

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_UNTRAINED_SEED)
                network = build_network(Architecture())
            weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
            Model(Architecture(), Vocabulary.learn([corpus.forest]), weights).save(folder)
        self._encoder = Encoder.load(folder)

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Compute vectors, (formulas, dimensions); raises `BadInput` before `fit`."""
        if self._encoder is None:
            raise BadInput("the untrained network has no vocabulary yet: call fit first")
        return self._encoder.embed(formulas.forest)


ALL_SYSTEMS: Mapping[str, Callable[[], System]] = {
    **SYSTEMS,
    **{
        system.name: system
        for system in (
            UntrainedNetwork, BagOfWords, LogBagOfWords, TfIdfTree, TreePairs, OperatorTfIdf, FastText, Approach0,
        )
    },
}  # fmt: skip
