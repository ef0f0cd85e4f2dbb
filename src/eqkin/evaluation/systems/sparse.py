"""Sparse baselines: bags of words, n-grams, pairs of nodes, and terms of operator trees.

`BagOfWords` is the paper's (section 6.3): the sum of the nodes' 256 features. The others count terms in hashed columns
and weight them by log tf-idf,

    weight(term, formula) = (1 + ln tf) (1 + ln((1 + n) / (1 + df)))      then each row is divided by its length

with tf the frequency of the term in the formula, n the number of formulas in the collection, and df the number of them
that contain the term. The collection is what is ranked, as in a search engine. A term is a 64-bit hash whose first bits
are its column: no dictionary is needed, and counting is vectorised over all formulas of a block, which is why
scikit-learn's own vectorisers (a Python call per token) are not used.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, FormulaSet, compute_products, import_optional
from eqkin.evaluation.systems.base import EmbeddingSystem
from eqkin.mathml.operators import OperatorParser
from eqkin.trees import Forest
from eqkin.trees.forest import Numbers, iter_blocks, order_depth_first
from eqkin.trees.hashing import Codes, combine_hashes, hash_strings
from eqkin.trees.normal import label_nodes
from eqkin.trees.operator_terms import extract_operator_terms
from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Vocabulary

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from eqkin.training.data import Corpus

TermBag = tuple[npt.NDArray[np.int64], Codes]  # row of each term within its block, and the term

_FEATURE_COUNT = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
_VOCABULARY_FILE = "vocabulary.json"
_MAX_NGRAM = 3
_LATEX_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+|[^\s{}]")  # commands, numbers, other characters; no braces of groups


@dataclass(frozen=True)
class TokenSequences:
    """A sequence of tokens for each formula; tokens are indices into `names`."""

    names: list[str]  # distinct, not empty, without blanks
    token: Numbers  # (tokens,)
    offsets: npt.NDArray[np.int64]  # (formulas + 1,) first token of each sequence

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def iter_lines(self) -> Iterator[str]:
        """Iterate over the sequences as text, with blanks between tokens."""
        for start in range(0, len(self), 10_000):
            part = self.offsets[start : start + 10_001]
            words = [self.names[token] for token in self.token[part[0] : part[-1]].tolist()]
            ends = (part - part[0]).tolist()
            for first, last in zip(ends[:-1], ends[1:], strict=True):
                yield " ".join(words[first:last])


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
        return {"features": _FEATURE_COUNT}

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
        features = self._vocabulary.extract_features(forest)
        vectors = np.zeros((len(forest), _FEATURE_COUNT), np.float32)
        for trees, nodes in iter_blocks(forest.offsets):
            rows = trees.stop - trees.start
            first = np.repeat(
                np.arange(rows) * _FEATURE_COUNT, forest.sizes[trees]
            )  # cell of each node's first feature
            cells = [first + features.tag[nodes]]
            for slots, offsets, before in (
                (features.attribute, features.attribute_offsets, TAG_SLOTS),
                (features.character, features.character_offsets, TAG_SLOTS + ATTRIBUTE_SLOTS),
            ):
                ends = offsets[nodes.start : nodes.stop + 1]
                cells.append(np.repeat(first, np.diff(ends)) + before + slots[ends[0] : ends[-1]])
            counts = np.bincount(np.concatenate(cells), minlength=rows * _FEATURE_COUNT)
            vectors[trees] = counts.reshape(rows, _FEATURE_COUNT)
        return vectors


class LogTfIdf(EmbeddingSystem):
    """A system whose vectors are log tf-idf weights of terms; nothing is learned.

    Attributes:
        bits: There are 2^bits columns.
    """

    bits: int = 20

    @abstractmethod
    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each term in each formula, (formulas, 2^bits)."""

    def encode(self, formulas: FormulaSet, collection: FormulaSet | None = None) -> csr_matrix:
        """Compute rows of length 1, weighted by a collection, by default by the formulas themselves."""
        counts = self.count_terms(formulas)
        return _fit_weights(counts if collection is None else self.count_terms(collection))(counts)

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute cosines, weighted by the frequencies in the formulas."""
        counts = self.count_terms(formulas)
        weight = _fit_weights(counts)
        return compute_products(weight(self.count_terms(queries)), weight(counts))


class TfIdfTree(LogTfIdf):
    """N-grams of labels in depth-first order."""

    name = "tfidf-tree"
    title = "TF-IDF, 1-3-grams of serialised trees"
    bits = 22

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each n-gram in each formula."""
        return count_ngrams(serialize(formulas.forest), self.bits)


class TfIdfLatex(LogTfIdf):
    """N-grams of LaTeX tokens."""

    name = "tfidf-latex"
    title = "TF-IDF, 1-3-grams of LaTeX"
    needs_latex = True
    tuned_on: tuple[str, ...] = ("arqmath-dev",)  # ten ways to tokenise LaTeX were tried there
    bits = 22

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each n-gram in each formula; raises `BadInput` if there is no LaTeX."""
        if formulas.latex is None:
            raise BadInput(f"{self.name} needs LaTeX, and these formulas are trees only")
        return count_ngrams(tokenize_latex(formulas.latex), self.bits)


class TreePairs(LogTfIdf):
    """Pairs of parent and child, and of neighbouring siblings.

    A root forms a pair with nothing, so that a formula of one symbol has a vector too.
    """

    name = "tree-pairs"
    title = "Tree pairs, log tf-idf"

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each pair in each formula."""
        forest = formulas.forest
        names, label = label_nodes(forest)
        code, parent = hash_strings(names)[label], forest.compute_parent()
        nothing, above, beside = hash_strings(["nothing", "above", "beside"])

        def make_pairs(trees: slice, nodes: slice) -> list[TermBag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            own, up = code[nodes], parent[nodes]
            root = up == np.arange(nodes.start, nodes.stop)
            children = combine_hashes(np.where(root, nothing, code[up]) ^ above, own)
            left = np.flatnonzero((up[:-1] == up[1:]) & ~root[:-1])
            siblings = combine_hashes(own[left] ^ beside, own[left + 1])
            return [(row, children), (row[left], siblings)]

        return count_matrix(forest.offsets, make_pairs, self.bits)


class LogBagOfWords(LogTfIdf):
    """Labels of nodes: tag, text and style of letters."""

    name = "log-bag-of-words"
    title = "Bag of words, log tf-idf"
    bits = 18

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each label in each formula."""
        forest = formulas.forest
        names, label = label_nodes(forest)
        code = hash_strings(names)

        def make_words(trees: slice, nodes: slice) -> list[TermBag]:
            row = np.repeat(np.arange(trees.stop - trees.start), forest.sizes[trees])
            return [(row, code[label[nodes]])]

        return count_matrix(forest.offsets, make_words, self.bits)


class OperatorTfIdf(LogTfIdf):
    """Paths and subtrees of canonical operator trees, with and without the names of variables."""

    name = "operator-terms"
    title = "Operator trees, log tf-idf"
    bits = 22

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """Count each term in each formula."""
        terms = extract_operator_terms(OperatorParser().parse(formulas.forest))
        row = np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
        row, code = (np.repeat(part, terms.count) for part in (row, terms.code.astype(np.uint64) << np.uint64(32)))
        return build_count_matrix(row, code, len(terms), self.bits)


def count_ngrams(sequences: TokenSequences, bits: int) -> csr_matrix:
    """Count each n-gram of up to three tokens in each sequence."""
    code = hash_strings(sequences.names)
    lengths = np.diff(sequences.offsets)

    def make_ngrams(formulas: slice, tokens: slice) -> list[TermBag]:
        row = np.repeat(np.arange(formulas.stop - formulas.start), lengths[formulas])
        single = code[sequences.token[tokens]]
        bags, ngram = [(row, single)], single
        for length in range(2, _MAX_NGRAM + 1):
            ngram = combine_hashes(ngram[:-1], single[length - 1 :])
            first, last = row[: len(ngram)], row[length - 1 :]
            bags.append((first[first == last], ngram[first == last]))
        return bags

    return count_matrix(sequences.offsets, make_ngrams, bits)


def count_matrix(
    offsets: npt.NDArray[np.int64], make_bags: Callable[[slice, slice], Iterable[TermBag]], bits: int
) -> csr_matrix:
    """Count terms, one row per formula.

    Args:
        offsets: First node or token of each formula, and the end.
        make_bags: Returns the terms of consecutive formulas, given the range of formulas and the range of nodes.
        bits: There are 2^bits columns.
    """
    parts = []
    for formulas, nodes in iter_blocks(offsets):
        rows, codes = zip(*make_bags(formulas, nodes), strict=True)
        count = formulas.stop - formulas.start
        parts.append(build_count_matrix(np.concatenate(rows), np.concatenate(codes), count, bits))
    sparse = import_optional("scipy.sparse")
    if not parts:
        return sparse.csr_matrix((len(offsets) - 1, 1 << bits), dtype=np.float32)
    return sparse.vstack(parts, "csr")


def build_count_matrix(row: npt.NDArray[np.int64], codes: Codes, rows: int, bits: int) -> csr_matrix:
    """Count how often each code occurs in each row; its first bits are its column."""
    column = codes >> np.uint64(64 - bits)
    ones = np.ones(len(row), np.float32)
    places = row.astype(np.int32), column.astype(np.int32)
    matrix = import_optional("scipy.sparse").csr_matrix((ones, places), (rows, 1 << bits))
    matrix.sum_duplicates()
    return matrix


def _fit_weights(collection: csr_matrix) -> Callable[[csr_matrix], Any]:
    """Return a function that weights counts by the frequencies in a collection."""
    if not collection.shape[0]:
        return lambda counts: counts
    text = import_optional("sklearn.feature_extraction.text")
    transformer = text.TfidfTransformer(sublinear_tf=True).fit(collection)
    return lambda counts: transformer.transform(counts) if counts.shape[0] else counts
