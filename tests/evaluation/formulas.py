"""Formulas for tests of systems, read by the real converter."""

from functools import cache
from itertools import pairwise

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems.sparse import TokenSequences


@cache
def _encoder():
    return Encoder.load()


def formulas(*latex):
    """These formulas, as trees and as LaTeX."""
    return FormulaSet(_encoder().parse_formulas(latex), list(latex))


def list_lines(sequences: TokenSequences) -> list[str]:
    """The tokens of each sequence, with blanks between them."""
    words = [sequences.names[token] for token in sequences.token]
    return [" ".join(words[start:end]) for start, end in pairwise(sequences.offsets.tolist())]
