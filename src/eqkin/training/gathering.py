"""From a library to the arrays of a corpus: its trees put into another order without a loop over nodes or trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.library import LibraryFiles
from eqkin.library.queries import read_corpus
from eqkin.training.context_words import gather_words
from eqkin.training.corpus_words import ContextWords
from eqkin.trees import Forest

_PART_NODES = 4_000_000  # trees are checked in parts of about this size, which bounds the memory it takes

Integers = npt.NDArray[np.int64]


@dataclass
class LibraryContents:
    """What a library held at one moment."""

    papers: list[tuple[int, str, str]]  # id, key, work; by work, then by key
    equations: Integers  # (trees, 5) paper, section, number, tree, mark by ids of the library; in the order of papers
    words: ContextWords  # around these equations
    citations: Integers  # (n, 2) citing and cited paper
    segments: list[tuple[int, Forest]]  # number of the first tree, and trees


def read_library(library: LibraryFiles) -> LibraryContents:
    """Look at a library in one transaction, so that a writer who goes on meanwhile does no harm."""
    with read_corpus(library) as tables:
        papers = [(number, key, _normalise_work(key, work)) for number, key, work in tables.papers]
        papers.sort(key=lambda paper: (paper[2], paper[1]))
        paper = find_positions(np.array([row[0] for row in papers], np.int64), tables.equations[:, 0])
        equations = tables.equations[np.lexsort((tables.equations[:, 2], tables.equations[:, 1], paper))]
        words = gather_words(library, equations[:, [0, 1, 4]])
    return LibraryContents(papers, equations, words, tables.citations, tables.segments)


def find_positions(ids: Integers, wanted: Integers) -> Integers:
    """Where each wanted id stands in `ids`, which are distinct."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], wanted)]


def _normalise_work(key: str, work: str) -> str:
    return (work or key).replace("\0", "\ufffd")  # a zero character would end a string on disk


def gather_trees(segments: list[tuple[int, Forest]], trees: Integers) -> Forest:
    """A canonical forest of the trees with these numbers, in this order; raises `CorruptData`."""
    sizes = np.zeros(len(trees), np.int64)
    parts: list[tuple[Forest, Integers, Integers]] = []  # a segment, which of its trees, and where they go
    for first, segment in segments:
        check_trees(segment)
        here = np.flatnonzero((trees >= first) & (trees < first + len(segment)))
        parts.append((segment, trees[here] - first, here))
        sizes[here] = segment.sizes[trees[here] - first]
    if not sizes.all():
        raise CorruptData("an equation's tree is in no forest file")
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    known = [
        _number_strings(getattr(segment, name) for _, segment in segments) for name in ("tags", "attributes", "texts")
    ]
    tag, attribute, text = (np.empty(offsets[-1], np.min_scalar_type(len(index))) for index in known)
    n_children = np.empty(offsets[-1], np.result_type(np.uint8, *(segment.n_children for _, segment in segments)))
    for segment, chosen, here in parts:
        source = _expand_ranges(segment.offsets[:-1][chosen], sizes[here])
        target = _expand_ranges(offsets[:-1][here], sizes[here])
        n_children[target] = segment.n_children[source]
        tag[target] = _renumber_strings(segment.tags, known[0])[segment.tag[source]]
        attribute[target] = _renumber_strings(segment.attributes, known[1])[segment.attribute[source]]
        text[target] = _renumber_strings(segment.texts, known[2])[segment.text[source]]
    tags, attributes, texts = (list(index) for index in known)
    return Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets).canonicalise()


def _number_strings(lists: Iterator[list[str]]) -> dict[str, int]:
    return {string: i for i, string in enumerate(sorted(set(chain.from_iterable(lists))))}


def _renumber_strings(strings: list[str], known: dict[str, int]) -> npt.NDArray[np.unsignedinteger[Any]]:
    return np.array([known[string] for string in strings], np.min_scalar_type(len(known)))


def _expand_ranges(starts: Integers, sizes: Integers) -> Integers:
    """The numbers `starts[i] .. starts[i] + sizes[i] - 1` for all i, one after the other."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def check_trees(forest: Forest) -> None:
    """`Forest.validate` in parts, for forests whose node numbers would not fit in memory; raises `CorruptData`."""
    offsets, nodes = forest.offsets, len(forest.tag)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != nodes or (forest.sizes < 1).any():
        raise CorruptData("forest: offsets do not fit the nodes")
    if {len(forest.attribute), len(forest.text), len(forest.n_children)} != {nodes}:
        raise CorruptData("forest: arrays differ in length")
    cuts = np.unique(np.append(np.searchsorted(offsets, np.arange(0, nodes, _PART_NODES)), len(forest)))
    for start, end in zip(cuts[:-1], cuts[1:], strict=True):
        part = slice(int(offsets[start]), int(offsets[end]))
        Forest(
            forest.tags, forest.attributes, forest.texts,
            forest.tag[part], forest.attribute[part], forest.text[part], forest.n_children[part],
            offsets[start : end + 1] - offsets[start],
        ).validate()  # fmt: skip
