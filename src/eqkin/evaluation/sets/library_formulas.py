"""A library's equations as systems take them: trees and LaTeX, in the order of its corpus, and where each stands."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import FormulaSet
from eqkin.library import LibraryFiles
from eqkin.library.queries import list_contents, list_equation_sources
from eqkin.training.data import Corpus

_Found = TypeVar("_Found")


def read_library_formulas(library: LibraryFiles) -> tuple[Corpus, FormulaSet]:
    """The corpus of a library, and its formulas with their LaTeX: tree i of the corpus has `latex[i]`.

    Raises:
        BadInput: the library has no equations, or somebody changed it meanwhile.
    """
    corpus = Corpus.from_library(library)
    if not len(corpus):
        raise BadInput(f"{library.folder}: no equations to work with; fill it with `eqkin add`")
    latex = {(key, number): text for key, number, _, text in list_equation_sources(library)}
    return corpus, FormulaSet(corpus.forest, _sort_by_corpus(library, corpus, latex))


def read_section_ids(library: LibraryFiles, corpus: Corpus) -> npt.NDArray[np.int64]:
    """For each section of the corpus (`corpus.section`) its id in the library's database.

    Raises:
        BadInput: somebody changed the library meanwhile.
    """
    found = {(key, number): section for key, number, section, _ in list_equation_sources(library)}
    of_trees = np.array(_sort_by_corpus(library, corpus, found), np.int64)
    return of_trees[np.unique(corpus.section, return_index=True)[1]]


def compute_content_digest(library: LibraryFiles) -> str:
    """Hex SHA-256 of all that a library holds: trees, LaTeX, prose. Quick, since every paper's own digest is kept."""
    total = hashlib.sha256()
    for key, content in sorted(list_contents(library).items()):
        total.update(f"{key}\0{content}\0".encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def _sort_by_corpus(library: LibraryFiles, corpus: Corpus, found: dict[tuple[str, int], _Found]) -> list[_Found]:
    """What was found of each equation, in the order of the corpus."""
    keys = [corpus.papers[paper] for paper in corpus.paper.tolist()]
    try:
        return [found[place] for place in zip(keys, corpus.numbers.tolist(), strict=True)]
    except KeyError as error:
        raise BadInput(f"{library.folder}: was changed while it was read; run this again") from error
