"""`Corpus`: the data of a training run, and its file.

A corpus has trees with their section, paper, work and context words, and the citations between papers.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.forest import Array, accumulate
from eqkin.learning.checkpoint import Arrays, read_arrays, write_arrays
from eqkin.learning.text import ContextWords, collect_contexts
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import read_corpus

Numbers = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

FORMAT = "eqkin-corpus"
_STRING_LISTS = ("tags", "attributes", "texts")
_NODE_ARRAYS = ("tag", "attribute", "text", "n_children")
_NUMBER_ARRAYS = ("section", "paper", "citations", "numbers")
# The held-out part may have this many times the requested papers.
_MAX_OVERSHOOT = 1.1
# A work with more than this share of the held-out papers preferably stays in training.
_GIANT_FRACTION = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """Trees sorted by paper, section and order of appearance; papers sorted by work and key."""

    forest: Forest
    # (trees,) section of each tree, numbered over the whole corpus.
    section: Numbers
    # (trees,) paper of each tree; every paper has one.
    paper: Numbers
    # Key of each paper.
    papers: list[str]
    # Work (repository, book) of each paper.
    works: list[str]
    # (n, 2) citing paper, cited paper; sorted, unique, no paper cites itself.
    citations: Numbers
    # (trees,) number of each equation within its paper.
    numbers: Numbers
    # Words around each equation.
    words: ContextWords | None = None
    # Names of laws and the like, close to each equation.
    names: ContextWords | None = None

    def __len__(self) -> int:
        return len(self.forest)

    def get_equation_id(self, tree: int) -> str:
        """Return the id of a tree's equation, as in `eqkin export`: `arxiv:1706.03762#3`."""
        return f"{self.papers[self.paper[tree]]}#{self.numbers[tree]}"

    def compute_statistics(self) -> dict[str, int | float]:
        """Count trees, papers, works, sections, citations and nodes, and compute the mean size of a tree."""
        nodes = len(self.forest.tag)
        return {
            "trees": len(self),
            "papers": len(self.papers),
            "works": len(set(self.works)),
            "sections": int(self.section[-1]) + 1 if len(self) else 0,
            "citations": len(self.citations),
            "nodes": nodes,
            "mean_nodes": nodes / max(len(self), 1),
        }

    @cached_property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the content; a run can only be resumed with the same corpus."""
        arrays, facts = self._to_file()
        digest = hashlib.sha256(json.dumps(facts).encode())
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_library(cls, library: LibraryFiles) -> Corpus:
        """Read all equations of a library that have a tree; equal libraries give equal corpora.

        Citations are those between papers of the library. A paper without a work is a work of its own. Everything is
        read in one transaction, so that a concurrent writer does no harm.
        """
        with read_corpus(library) as tables:
            papers = [(number, key, work or key) for number, key, work in tables.papers]
            papers.sort(key=lambda paper: (paper[2], paper[1]))
            ids = np.array([number for number, _, _ in papers], np.int64)
            position = _find_positions(ids, tables.equations[:, 0])
            equations = tables.equations[np.lexsort((tables.equations[:, 2], tables.equations[:, 1], position))]
            words, names = collect_contexts(library, equations[:, [0, 1, 4]])
            citations = tables.citations
            owner, section, number, tree, _ = equations.T
            forest = library.get_trees(tree).canonicalise()
        present = np.isin(ids, owner)
        papers = [row for row, is_present in zip(papers, present.tolist(), strict=True) if is_present]
        ids = ids[present]
        cited = citations[np.isin(citations, ids).all(axis=1)]
        return cls(
            forest=forest,
            section=_number_runs(section),
            paper=_find_positions(ids, owner).astype(np.int32),
            papers=[key for _, key, _ in papers],
            works=[work for _, _, work in papers],
            citations=_sort_edges(_find_positions(ids, cited)),
            numbers=number.astype(np.int32),
            words=words,
            names=names,
        )

    @classmethod
    def from_papers(cls, forest: Forest, paper: Integers, papers: list[str], work: str) -> Corpus:
        """Make a corpus of papers of one work, each with a single section, without citations and words."""
        number = paper.astype(np.int32)
        starts = np.searchsorted(number, np.arange(len(papers)))
        return cls(
            forest=forest.canonicalise(),
            section=number,
            paper=number,
            papers=papers,
            works=[work] * len(papers),
            citations=np.zeros((0, 2), np.int32),
            numbers=(np.arange(len(number)) - starts[number]).astype(np.int32),
        )

    def save(self, path: Path) -> None:
        """Write to one file; raises `StorageFailed`."""
        write_arrays(path, FORMAT, *self._to_file())

    def _to_file(self) -> tuple[Arrays, dict[str, Any]]:
        """Return arrays and strings of the corpus."""
        facts: dict[str, Any] = {name: getattr(self.forest, name) for name in _STRING_LISTS}
        facts |= {"papers": self.papers, "works": self.works}
        arrays = {name: getattr(self.forest, name) for name in _NODE_ARRAYS}
        arrays |= {name: getattr(self, name) for name in _NUMBER_ARRAYS} | {"sizes": self.forest.sizes}
        for name in ("words", "names"):
            words: ContextWords | None = getattr(self, name)
            if words is not None:
                facts[name] = words.vocabulary
                arrays |= {name: words.word, f"{name}_counts": words.counts}
        return arrays, facts

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Read what `save` wrote.

        Raises:
            BadInput: The file does not exist.
            CorruptData: It is damaged, or of another format or version; the message says why.
            StorageFailed: It cannot be read.
        """
        found = read_arrays(path, FORMAT)
        if found is None:
            raise BadInput(f"{path}: no such file; write one with `eqkin export --forest {path}`")
        arrays, facts = found
        parts: dict[str, Any] = {name: facts[name] for name in _STRING_LISTS}
        parts |= {name: arrays[name] for name in _NODE_ARRAYS}
        forest = Forest(**parts, offsets=accumulate(arrays["sizes"]))
        # Compiled loops that do not check their indices will read the trees.
        forest.validate()
        fields: dict[str, Any] = {name: arrays[name] for name in _NUMBER_ARRAYS}
        for name in {"words", "names"} & facts.keys():
            fields[name] = ContextWords(facts[name], accumulate(arrays[f"{name}_counts"]), arrays[name])
        return cls(forest=forest, papers=facts["papers"], works=facts["works"], **fields)

    def select(self, papers: Sequence[int] | Array) -> Corpus:
        """Return a corpus of some papers, in their order here, with the citations between them."""
        kept = np.zeros(len(self.papers), bool)
        kept[np.asarray(papers, np.int64)] = True
        trees = kept[self.paper]
        position = np.cumsum(kept) - 1
        section = self.section[trees]
        return Corpus(
            forest=self.forest.select(np.flatnonzero(trees)).canonicalise(),
            section=_number_runs(section),
            paper=position[self.paper[trees]].astype(np.int32),
            papers=[self.papers[i] for i in np.flatnonzero(kept)],
            works=[self.works[i] for i in np.flatnonzero(kept)],
            citations=position[self.citations[kept[self.citations].all(axis=1)]].astype(np.int32),
            numbers=self.numbers[trees],
            words=None if self.words is None else self.words.select(trees),
            names=None if self.names is None else self.names.select(trees),
        )

    def concatenate(self, other: Corpus) -> Corpus:
        """Return a corpus of these papers and those of another corpus, whose words and names are left out."""
        return Corpus(
            forest=Forest.concatenate([self.forest, other.forest]).canonicalise(),
            section=np.append(self.section, other.section + self.section[-1:] + 1),
            paper=np.append(self.paper, other.paper + np.int32(len(self.papers))),
            papers=self.papers + other.papers,
            works=self.works + other.works,
            citations=np.concatenate([self.citations, other.citations + np.int32(len(self.papers))]),
            numbers=np.append(self.numbers, other.numbers),
            words=None if self.words is None else self.words.pad(len(other)),
            names=None if self.names is None else self.names.pad(len(other)),
        )

    def split(self, held_out: float, seed: int) -> tuple[Corpus, Corpus]:
        """Split by work into a training and a held-out corpus; citations between the two are dropped.

        Works are held out in an order that depends only on the seed and their names, until about the fraction
        `held_out` of the papers is reached. A work with more than a quarter of these papers is held out only if the
        smaller ones do not suffice, and one that far exceeds the target only if nothing else can be held out.

        Raises:
            BadInput: There are fewer than two works, or `held_out` is not between 0 and 1.
        """
        if not 0 < held_out < 1:
            raise BadInput(f"the held-out fraction is {held_out}; choose one between 0 and 1, such as 0.1")
        sizes = Counter(self.works)
        if not sizes:
            raise BadInput("the corpus has no papers, so nothing can be held out; add some with `eqkin add`")
        if len(sizes) == 1:
            raise BadInput(
                f"all papers belong to one work ({self.works[0]}), and works are never split; add papers of another one"
            )
        chosen = choose_works(sizes, held_out * len(self.papers), seed)
        mask = np.array([work in chosen for work in self.works])
        return self.select(np.flatnonzero(~mask)), self.select(np.flatnonzero(mask))


def choose_works(sizes: Counter[str], target: float, seed: int) -> set[str]:
    """Choose works with about `target` papers (or whatever `sizes` counts) together: at least one work, never all."""
    order = sorted(sizes, key=lambda work: hashlib.sha256(f"{seed}:{work}".encode("utf-8", "surrogatepass")).digest())
    limit = min(target * _MAX_OVERSHOOT, sizes.total() - 1)
    chosen: set[str] = set()
    papers = 0
    for largest in (target * _GIANT_FRACTION, limit):
        for work in order:
            fits = sizes[work] <= largest and papers + sizes[work] <= limit
            if papers < target and fits and work not in chosen:
                chosen.add(work)
                papers += sizes[work]
    return chosen or {min(order, key=sizes.__getitem__)}


def _find_positions(ids: Integers, wanted: Integers) -> Integers:
    """Return the position of each wanted id in `ids`, which are distinct."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], wanted)]


def _number_runs(values: Array) -> Numbers:
    """Return numbers from 0 that increase by one wherever the value changes."""
    return np.cumsum(np.diff(values, prepend=values[:1]) != 0, dtype=np.int32)


def _sort_edges(pairs: Integers) -> Numbers:
    """Return the pairs sorted and without repeats and self-citations."""
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int32)
