"""Sparse baselines: bags of words, n-grams, pairs of nodes, and terms of operator trees.

`BagOfWords` is the paper's (section 6.3): the sum of the nodes' 256 features. The others count terms in hashed columns
and weight them by log tf-idf,

    weight(term, formula) = (1 + ln tf) (1 + ln((1 + n) / (1 + df)))      then each row is divided by its length

with tf the frequency of the term in the formula, n the number of formulas in the collection, and df the number of them
that contain the term. The collection is what is ranked, as in a search engine. A term is a 64-bit hash whose first bits
are its column: no dictionary is needed, and counting is vectorised over many formulas, which is why
scikit-learn's own vectorisers (a Python call per token) are not used.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.architecture import FEATURES
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, FormulaSet, compute_products, import_optional
from eqkin.evaluation.systems.base import EmbeddingSystem, System
from eqkin.formulas import Forest
from eqkin.formulas.forest import Numbers, iter_blocks, order_depth_first
from eqkin.formulas.hashing import Codes, combine_hashes, hash_strings
from eqkin.formulas.normal import label_nodes
from eqkin.formulas.operator_terms import extract_operator_terms
from eqkin.formulas.parser import parse_operators
from eqkin.formulas.vocabulary import Vocabulary, find_labels

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from eqkin.learning.data import Corpus

Rows = npt.NDArray[np.int64]

_VOCABULARY_FILE = "vocabulary.json"
_MAX_NGRAM = 3
_NODES_PER_BLOCK, _FORMULAS_PER_BLOCK = 100_000, 20_000  # counted at a time, to limit memory
_LATEX_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+|[^\s{}]")  # commands, numbers, other characters; no braces of groups


@dataclass(frozen=True)
class TokenSequences:
    """A sequence of tokens for each formula; tokens are indices into `names`."""

    names: list[str]  # distinct, not empty, without blanks
    token: Numbers  # (tokens,)
    offsets: npt.NDArray[np.int64]  # (formulas + 1,) first token of each sequence

    def __len__(self) -> int:
        return len(self.offsets) - 1


def serialize(forest: Forest) -> TokenSequences:
    """List the labels of each tree's nodes in depth-first order: the order in which a formula is written."""
    names, label = label_nodes(forest)
    return TokenSequences(names, label[order_depth_first(forest)], forest.offsets)


def tokenize_latex(formulas: Sequence[str]) -> TokenSequences:
    """Split formulas into commands, numbers and single characters, without blanks and braces of groups."""
    names: dict[str, int] = {}
    found = [[names.setdefault(token, len(names)) for token in _LATEX_TOKEN.findall(formula)] for formula in formulas]
    lengths = np.array([len(tokens) for tokens in found], np.int64)
    token = np.fromiter((token for tokens in found for token in tokens), np.int32, int(lengths.sum()))
    return TokenSequences(list(names), token, np.concatenate(([0], np.cumsum(lengths))))


class BagOfWords(EmbeddingSystem):
    """The paper's bag of words: counts of 32 tags, 32 attributes and 192 characters; cosine."""

    name = "bag-of-words"
    title = "Bag of words"

    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Number of features."""
        return {"features": FEATURES}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn which tags, attributes and characters are frequent, or load that vocabulary."""
        if not (folder / _VOCABULARY_FILE).is_file():
            Vocabulary.learn([corpus.forest]).save(folder / _VOCABULARY_FILE)
        self._vocabulary = Vocabulary.load(folder / _VOCABULARY_FILE)

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Count features, (formulas, 256); raises `BadInput` before `fit`."""
        if self._vocabulary is None:
            raise BadInput("the bag of words has no vocabulary yet: call fit first")
        forest = formulas.forest
        labels, label = find_labels(forest)
        table = self._vocabulary.extract_features(labels).astype(np.float32)
        vectors = np.zeros((len(forest), FEATURES), np.float32)
        for trees, nodes in iter_blocks(forest.offsets, _NODES_PER_BLOCK):
            starts = forest.offsets[trees.start : trees.stop] - nodes.start
            vectors[trees] = np.add.reduceat(table[label[nodes]], starts)
        return vectors


class LogTfIdf(System):
    """A system that compares log tf-idf weights of terms by cosine; nothing is learned.

    Attributes:
        bits: There are 2^bits columns.
    """

    bits: int = 20

    @abstractmethod
    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List the terms of all formulas, as often as they occur: the number of the formula, and the term."""

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each term in each formula, (formulas, 2^bits); the first bits of a term are its column."""
        sparse = import_optional("scipy.sparse")
        parts = [sparse.csr_matrix((0, 1 << self.bits), dtype=np.float32)]
        for start in range(0, len(formulas), _FORMULAS_PER_BLOCK):
            block = formulas.select(np.arange(start, min(start + _FORMULAS_PER_BLOCK, len(formulas))))
            row, code = self.list_terms(block)
            places = row.astype(np.int32), (code >> np.uint64(64 - self.bits)).astype(np.int32)
            matrix = sparse.csr_matrix((np.ones(len(row), np.float32), places), (len(block), 1 << self.bits))
            matrix.sum_duplicates()
            parts.append(matrix)
        return sparse.vstack(parts, "csr")

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute cosines, weighted by the frequencies in the formulas."""
        if not len(queries) or not len(formulas):
            return np.zeros((len(queries), len(formulas)), np.float32)
        text = import_optional("sklearn.feature_extraction.text")
        asked, counts = self.count_terms(queries), self.count_terms(formulas)
        weights = text.TfidfTransformer(sublinear_tf=True).fit(counts)
        return compute_products(weights.transform(asked), weights.transform(counts))


class TfIdfTree(LogTfIdf):
    """N-grams of labels in depth-first order."""

    name = "tfidf-tree"
    title = "TF-IDF, 1-3-grams of serialised trees"
    bits = 22

    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List n-grams."""
        return list_ngrams(serialize(formulas.forest))


class TfIdfLatex(LogTfIdf):
    """N-grams of LaTeX tokens."""

    name = "tfidf-latex"
    title = "TF-IDF, 1-3-grams of LaTeX"
    needs_latex = True
    tuned_on: tuple[str, ...] = ("arqmath-dev",)  # ten ways to tokenise LaTeX were tried there
    bits = 22

    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List n-grams; raises `BadInput` if there is no LaTeX."""
        if formulas.latex is None:
            raise BadInput(f"{self.name} needs LaTeX, and these formulas are trees only")
        return list_ngrams(tokenize_latex(formulas.latex))


class TreePairs(LogTfIdf):
    """Pairs of parent and child, and of neighbouring siblings.

    A root forms a pair with nothing, so that a formula of one symbol has a vector too.
    """

    name = "tree-pairs"
    title = "Tree pairs, log tf-idf"

    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List pairs."""
        forest = formulas.forest
        row, code = _list_labels(forest)
        parent = forest.compute_parent()
        nothing, above, beside = hash_strings(["nothing", "above", "beside"])
        root = parent == np.arange(len(parent))
        children = combine_hashes(np.where(root, nothing, code[parent]) ^ above, code)
        left = np.flatnonzero((parent[:-1] == parent[1:]) & ~root[:-1])
        siblings = combine_hashes(code[left] ^ beside, code[left + 1])
        return np.append(row, row[left]), np.append(children, siblings)


class LogBagOfWords(LogTfIdf):
    """Labels of nodes: tag, text and style of letters."""

    name = "log-bag-of-words"
    title = "Bag of words, log tf-idf"
    bits = 18

    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List labels."""
        return _list_labels(formulas.forest)


class OperatorTfIdf(LogTfIdf):
    """Paths and subtrees of canonical operator trees, with and without the names of variables."""

    name = "operator-terms"
    title = "Operator trees, log tf-idf"
    bits = 22

    def list_terms(self, formulas: FormulaSet) -> tuple[Rows, Codes]:
        """List the terms of operator trees."""
        terms = extract_operator_terms(parse_operators(formulas.forest))
        return np.repeat(terms.tree, terms.count), np.repeat(terms.code.astype(np.uint64) << np.uint64(32), terms.count)


def _list_labels(forest: Forest) -> tuple[Rows, Codes]:
    names, label = label_nodes(forest)
    return np.repeat(np.arange(len(forest)), forest.sizes), hash_strings(names)[label]


def list_ngrams(sequences: TokenSequences) -> tuple[Rows, Codes]:
    """List the n-grams of up to three tokens of each sequence: the number of the sequence, and the hash."""
    row = np.repeat(np.arange(len(sequences)), np.diff(sequences.offsets))
    single = ngram = hash_strings(sequences.names)[sequences.token]
    rows, codes = [row], [single]
    for length in range(2, _MAX_NGRAM + 1):
        ngram = combine_hashes(ngram[:-1], single[length - 1 :])
        first, last = row[: len(ngram)], row[length - 1 :]
        rows.append(first[first == last])
        codes.append(ngram[first == last])
    return np.concatenate(rows), np.concatenate(codes)
