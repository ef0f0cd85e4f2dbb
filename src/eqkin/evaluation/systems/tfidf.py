"""Log tf-idf over runs of one to three tokens: of the LaTeX, or of the tree in depth-first order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import Formulas
from eqkin.evaluation.systems.serialised import Sequences, serialised
from eqkin.evaluation.systems.terms import Bag, LogTfIdf, counted
from eqkin.structure.hashing import combined, hashes

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_LONGEST = 3  # tokens of a run
_TOKEN = re.compile(
    r"\\[a-zA-Z]+|\\.|\d+|[^\s{}]"
)  # commands, numbers, any other character; groups' braces are left out


class TfIdfTree(LogTfIdf):
    """Runs of labels in depth-first order."""

    name = "tfidf-tree"
    title = "TF-IDF, 1-3-grams of serialised trees"
    bits = 22

    def counts(self, formulas: Formulas) -> csr_matrix:
        """How often each run is in each formula."""
        return run_counts(serialised(formulas.forest), self.bits)


class TfIdfLatex(LogTfIdf):
    """Runs of LaTeX tokens."""

    name = "tfidf-latex"
    title = "TF-IDF, 1-3-grams of LaTeX"
    needs_latex = True
    tuned_on = ("arqmath-dev",)  # ten ways to cut LaTeX into tokens were tried there
    bits = 22

    def counts(self, formulas: Formulas) -> csr_matrix:
        """How often each run is in each formula; raises `BadInput` if there is no LaTeX."""
        if formulas.latex is None:
            raise BadInput(f"{self.name} ranks LaTeX, and these formulas are known as trees alone")
        return run_counts(latex_tokens(formulas.latex), self.bits)


def latex_tokens(formulas: Sequence[str]) -> Sequences:
    """Formulas cut into commands, numbers and single characters; blanks and groups' braces are left out."""
    names: dict[str, int] = {}
    found = [[names.setdefault(token, len(names)) for token in _TOKEN.findall(formula)] for formula in formulas]
    lengths = np.array([len(tokens) for tokens in found], np.int64)
    token = np.fromiter((token for tokens in found for token in tokens), np.int32, int(lengths.sum()))
    return Sequences(list(names), token, np.concatenate(([0], np.cumsum(lengths))))


def run_counts(sequences: Sequences, bits: int) -> csr_matrix:
    """How often each run of up to three tokens is in each sequence."""
    code = hashes(sequences.names)
    lengths = np.diff(sequences.offsets)

    def runs(formulas: slice, tokens: slice) -> list[Bag]:
        row = np.repeat(np.arange(formulas.stop - formulas.start), lengths[formulas])
        single = code[sequences.token[tokens]]
        bags, run = [(row, single)], single
        for length in range(2, _LONGEST + 1):
            run = combined(run[:-1], single[length - 1 :])
            first, last = row[: len(run)], row[length - 1 :]
            bags.append((first[first == last], run[first == last]))
        return bags

    return counted(sequences.offsets, runs, bits)
