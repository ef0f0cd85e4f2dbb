"""Log tf-idf over runs of one to three tokens: of the LaTeX, or of the tree in depth-first order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import FormulaSet
from eqkin.evaluation.systems.serialised import TokenSequences, serialize
from eqkin.evaluation.systems.terms import LogTfIdf, TermBag, count_matrix
from eqkin.trees.hashing import combine_hashes, hash_strings

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_MAX_NGRAM = 3  # tokens of a run
_TOKEN = re.compile(
    r"\\[a-zA-Z]+|\\.|\d+|[^\s{}]"
)  # commands, numbers, any other character; groups' braces are left out


class TfIdfTree(LogTfIdf):
    """Runs of labels in depth-first order."""

    name = "tfidf-tree"
    title = "TF-IDF, 1-3-grams of serialised trees"
    bits = 22

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """How often each run is in each formula."""
        return count_ngrams(serialize(formulas.forest), self.bits)


class TfIdfLatex(LogTfIdf):
    """Runs of LaTeX tokens."""

    name = "tfidf-latex"
    title = "TF-IDF, 1-3-grams of LaTeX"
    needs_latex = True
    tuned_on = ("arqmath-dev",)  # ten ways to cut LaTeX into tokens were tried there
    bits = 22

    def count_terms(self, formulas: FormulaSet) -> csr_matrix:
        """How often each run is in each formula; raises `BadInput` if there is no LaTeX."""
        if formulas.latex is None:
            raise BadInput(f"{self.name} ranks LaTeX, and these formulas are known as trees alone")
        return count_ngrams(tokenize_latex(formulas.latex), self.bits)


def tokenize_latex(formulas: Sequence[str]) -> TokenSequences:
    """Formulas cut into commands, numbers and single characters; blanks and groups' braces are left out."""
    names: dict[str, int] = {}
    found = [[names.setdefault(token, len(names)) for token in _TOKEN.findall(formula)] for formula in formulas]
    lengths = np.array([len(tokens) for tokens in found], np.int64)
    token = np.fromiter((token for tokens in found for token in tokens), np.int32, int(lengths.sum()))
    return TokenSequences(list(names), token, np.concatenate(([0], np.cumsum(lengths))))


def count_ngrams(sequences: TokenSequences, bits: int) -> csr_matrix:
    """How often each run of up to three tokens is in each sequence."""
    code = hash_strings(sequences.names)
    lengths = np.diff(sequences.offsets)

    def runs(formulas: slice, tokens: slice) -> list[TermBag]:
        row = np.repeat(np.arange(formulas.stop - formulas.start), lengths[formulas])
        single = code[sequences.token[tokens]]
        bags, run = [(row, single)], single
        for length in range(2, _MAX_NGRAM + 1):
            run = combine_hashes(run[:-1], single[length - 1 :])
            first, last = row[: len(run)], row[length - 1 :]
            bags.append((first[first == last], run[first == last]))
        return bags

    return count_matrix(sequences.offsets, runs, bits)
