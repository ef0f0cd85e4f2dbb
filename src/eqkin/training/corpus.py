"""`Corpus`: what learning draws from: trees with section, paper, work and words of each, and who cites whom."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.library import LibraryFiles
from eqkin.training import corpus_file
from eqkin.training.corpus_words import ContextWords
from eqkin.training.gathering import check_trees, find_positions, gather_trees, read_library
from eqkin.trees import Forest
from eqkin.trees.forest import Array

Numbers = npt.NDArray[np.int32]

_STRING_ARRAYS = ("tags", "attributes", "texts")
_NODE_ARRAYS = ("tag", "attribute", "text", "n_children")
_NUMBER_ARRAYS = ("section", "paper", "citations", "numbers")
_MAX_OVERSHOOT = 1.1  # a held-out side may have this many times the papers asked for
_GIANT_FRACTION = 0.25  # a work with more than this share of them stays in training if there are others


@dataclass(frozen=True, eq=False)
class Corpus:
    """Trees sorted by paper, then by section, then as they stand in the paper; papers sorted by work, then by key."""

    forest: Forest
    section: Numbers  # (trees,) section of each tree, numbered over the whole corpus
    paper: Numbers  # (trees,) paper of each tree; every paper has one
    papers: list[str]  # key of each paper
    works: list[str]  # work (a repository, a book) each paper belongs to
    citations: Numbers  # (n, 2) citing paper, cited paper; sorted, each once, none with itself
    numbers: Numbers  # (trees,) number of each equation within its paper
    words: ContextWords | None = None  # around each equation; None in files of version 1

    def __len__(self) -> int:
        return len(self.forest)

    def get_equation_id(self, tree: int) -> str:
        """Id of a tree's equation, as `eqkin export` writes it: `arxiv:1706.03762#3`."""
        return f"{self.papers[self.paper[tree]]}#{self.numbers[tree]}"

    def compute_statistics(self) -> dict[str, int | float]:
        """Counts of trees, papers, works, sections, citations and nodes, and the mean size of a tree."""
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
        """Hex SHA-256 of the content: learning that goes on must find the same data."""
        return corpus_file.compute_digest(self._to_arrays())

    @classmethod
    def from_library(cls, library: LibraryFiles) -> Corpus:
        """All equations of a library that have a tree; the same library content gives the same corpus.

        Citations are those among the library's papers. A paper without a work is a work of its own.
        """
        found = read_library(library)
        with library.translate_errors():
            owner, section, number, tree, _ = found.equations.T
            ids = np.array([row[0] for row in found.papers], np.int64)
            present = np.isin(ids, owner)
            ids = ids[present]
            names = [row for row, kept in zip(found.papers, present.tolist(), strict=True) if kept]
            changes = np.flatnonzero(section[1:] != section[:-1]) + 1
            cites = found.citations[np.isin(found.citations, ids).all(axis=1)]
            return cls(
                forest=_gather_forest(library, found.segments, tree),
                section=_number_groups(changes, len(tree)),
                paper=find_positions(ids, owner).astype(np.int32),
                papers=[key for _, key, _ in names],
                works=[work for _, _, work in names],
                citations=_sort_edges(find_positions(ids, cites), len(ids)),
                numbers=number.astype(np.int32),
                words=found.words,
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, compressed if its name ends in `.zst`; raises `StorageFailed`."""
        version = corpus_file.VERSION_PLAIN if self.words is None else corpus_file.VERSION_WITH_WORDS
        corpus_file.write_corpus(Path(path), self._to_arrays(), self.digest, version)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Corpus:
        """Read what `save` wrote.

        Raises:
            BadInput: there is no such file.
            CorruptData: it is damaged, foreign, or of an unknown version; the message says which and why.
            StorageFailed: it cannot be read.
        """
        arrays = corpus_file.read_corpus(Path(path))
        try:
            corpus = cls._from_arrays(arrays)
            corpus.validate()
        except (CorruptData, ValueError, KeyError, IndexError) as error:
            raise CorruptData(f"{os.fspath(path)}: not a corpus, or damaged ({error}); export it again") from error
        return corpus

    def select(self, papers: Sequence[int] | Array) -> Corpus:
        """A corpus of those papers, in the order they have here, with the citations among them."""
        kept = np.zeros(len(self.papers), bool)
        kept[np.asarray(papers, np.int64)] = True
        trees = kept[self.paper]
        nodes = np.repeat(trees, self.forest.sizes)
        tag, attribute, text, n_children = (getattr(self.forest, name)[nodes] for name in _NODE_ARRAYS)
        offsets = np.concatenate(([0], np.cumsum(self.forest.sizes[trees])))
        tags, attributes, texts = self.forest.tags, self.forest.attributes, self.forest.texts
        rank = np.cumsum(kept) - 1
        section = self.section[trees]
        return Corpus(
            forest=Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets).canonicalise(),
            section=_number_groups(np.flatnonzero(np.diff(section)) + 1, len(section)),
            paper=rank[self.paper[trees]].astype(np.int32),
            papers=[self.papers[i] for i in np.flatnonzero(kept)],
            works=[self.works[i] for i in np.flatnonzero(kept)],
            citations=rank[self.citations[kept[self.citations].all(axis=1)]].astype(np.int32),
            numbers=self.numbers[trees],
            words=None if self.words is None else self.words.select(trees),
        )

    def split(self, held_out: float, seed: int) -> tuple[Corpus, Corpus]:
        """Part into training and held-out corpora by work; citations from one side to the other are dropped.

        Works are taken in an order that depends on the seed and their names alone, until about the share `held_out`
        of the papers is there. A work with more than a quarter of that is held out only if the small ones do not
        suffice, and never one that goes far beyond it, unless there is no other way to hold anything out.

        Raises:
            BadInput: there are fewer than two works, or `held_out` is not between 0 and 1.
        """
        if not 0 < held_out < 1:
            raise BadInput(f"the held-out share is {held_out}; choose one between 0 and 1, such as 0.1")
        sizes = Counter(self.works)
        if not sizes:
            raise BadInput("the corpus has no papers, nothing can be held out; add some with `eqkin add`")
        if len(sizes) == 1:
            raise BadInput(
                f"all papers belong to one work ({self.works[0]}), and a work is never parted; "
                "add papers of another one"
            )
        taken = _choose_held_out(sizes, held_out * len(self.papers), seed)
        mask = np.array([work in taken for work in self.works])
        return self.select(np.flatnonzero(~mask)), self.select(np.flatnonzero(mask))

    def validate(self) -> None:
        """Check that everything fits together; raises `CorruptData`."""
        check_trees(self.forest)
        for name in ("section", "paper", "numbers"):
            if getattr(self, name).shape != (len(self),):
                raise CorruptData(f"{name} does not have one number a tree")
        paper, section = self.paper.astype(np.int64), self.section.astype(np.int64)
        if not _is_numbered(paper, len(self.papers)) or not len(set(self.papers)) == len(self.papers) == len(
            self.works
        ):
            raise CorruptData("trees, papers and works do not fit together")
        if not _is_numbered(section) or (np.diff(section) < np.diff(paper)).any():
            raise CorruptData("sections are not in order, or one belongs to two papers")
        if len(self) and (self.numbers.min() < 0 or len(np.unique(paper << 32 | self.numbers)) != len(self)):
            raise CorruptData("two equations of a paper have the same number")
        if self.citations.ndim != 2 or self.citations.shape[1] != 2:
            raise CorruptData("citations are not pairs of papers")
        inside = not self.citations.size or (self.citations.min() >= 0 and self.citations.max() < len(self.papers))
        if not inside or not np.array_equal(
            self.citations, _sort_edges(self.citations.astype(np.int64), len(self.papers))
        ):
            raise CorruptData("citations name papers that are not there, or are not in order")
        if self.words is not None:
            self.words.validate(len(self))

    def _to_arrays(self) -> dict[str, Array]:
        sizes = self.forest.sizes
        arrays: dict[str, Array] = {name: getattr(self.forest, name) for name in _NODE_ARRAYS}
        arrays |= {name: getattr(self, name) for name in _NUMBER_ARRAYS}
        arrays |= {name: corpus_file.pack_strings(getattr(self.forest, name)) for name in _STRING_ARRAYS}
        arrays |= {name: corpus_file.pack_strings(getattr(self, name)) for name in ("papers", "works")}
        arrays |= self.words.to_arrays() if self.words is not None else {}
        return arrays | {"sizes": sizes.astype(np.min_scalar_type(sizes.max(initial=0)))}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Array]) -> Corpus:
        sizes, nodes = arrays["sizes"], len(arrays["tag"])
        for name, array in arrays.items():
            fits = array.dtype == np.int32 if name in _NUMBER_ARRAYS else array.dtype.kind == "u"
            if not fits or array.ndim != (2 if name == "citations" else 1):
                raise ValueError(f"{name} has type {array.dtype} and shape {array.shape}")
        if sizes.max(initial=0) > nodes:
            raise ValueError("a tree has more nodes than there are")
        tags, attributes, texts, papers, works = (
            corpus_file.unpack_strings(arrays[name]) for name in (*_STRING_ARRAYS, "papers", "works")
        )
        tag, attribute, text, n_children = (arrays[name] for name in _NODE_ARRAYS)
        section, paper, citations, numbers = (arrays[name].astype(np.int32, copy=False) for name in _NUMBER_ARRAYS)
        offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        forest = Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets)
        return cls(forest, section, paper, papers, works, citations, numbers, ContextWords.from_arrays(arrays))


def _gather_forest(library: LibraryFiles, segments: list[tuple[int, Forest]], trees: npt.NDArray[np.int64]) -> Forest:
    try:
        return gather_trees(segments, trees)
    except CorruptData as error:
        raise CorruptData(f"{library.folder}: damaged ({error}); run `eqkin verify`") from error


def _choose_held_out(sizes: Counter[str], target: float, seed: int) -> set[str]:
    """Works to hold out: about `target` papers, at least one work, never all."""
    order = sorted(sizes, key=lambda work: sha256(f"{seed}:{work}".encode("utf-8", "surrogatepass")).digest())
    most = min(target * _MAX_OVERSHOOT, sizes.total() - 1)
    taken: set[str] = set()
    papers = 0
    for largest in (target * _GIANT_FRACTION, most):
        for work in order:
            fits = sizes[work] <= largest and papers + sizes[work] <= most
            if papers < target and fits and work not in taken:
                taken.add(work)
                papers += sizes[work]
    return taken or {min(order, key=sizes.__getitem__)}


def _number_groups(changes: Array, length: int) -> Numbers:
    """Numbers from 0 that go up by one at `changes`."""
    steps = np.zeros(length, np.int32)
    steps[changes] = 1
    return np.cumsum(steps, dtype=np.int32)


def _is_numbered(values: npt.NDArray[np.int64], count: int | None = None) -> bool:
    """Whether numbers go from 0 up by at most one, to `count` - 1 if that is given."""
    if not len(values):
        return not count
    steps = np.diff(values)
    ends = values[0] == 0 and (count is None or values[-1] == count - 1)
    return bool(ends and ((steps == 0) | (steps == 1)).all())


def _sort_edges(pairs: npt.NDArray[np.int64], papers: int) -> Numbers:
    """Pairs sorted, each once, none of a paper with itself."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    codes = np.unique(pairs[:, 0] * papers + pairs[:, 1])
    return np.stack((codes // max(papers, 1), codes % max(papers, 1)), axis=1).astype(np.int32)
