"""`Corpus`: the data of a training run, and its file.

A corpus has trees with their section, paper, work and context words, and the citations between papers. Its file is a
safetensors file of named arrays with a hash, compressed if its name ends in `.zst`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from eqkin.errors import BadInput, CorruptData, LimitReached, StorageFailed
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import Array
from eqkin.learning.text import NAME_ARRAYS, ContextWords, collect_contexts, pack_strings, unpack_strings
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import read_corpus
from eqkin.sources.files import ByteStream, open_zstd
from eqkin.storage.arrays import hash_arrays, iter_array_file, parse_checked_file
from eqkin.storage.files import write_stream

Numbers = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

FORMAT = "eqkin-corpus"
VERSIONS = VERSION_PLAIN, VERSION_WITH_WORDS, VERSION_WITH_NAMES = "1", "2", "3"
MAX_UNPACKED_BYTES = 60_000_000_000  # of a compressed file; 30 million equations take about 12 GB
_STRING_ARRAYS = ("tags", "attributes", "texts")
_NODE_ARRAYS = ("tag", "attribute", "text", "n_children")
_NUMBER_ARRAYS = ("section", "paper", "citations", "numbers")
_COMPRESSION_LEVEL = 12  # level 19 takes 17 times as long for files that are 17 % smaller
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_OVERSHOOT = 1.1  # the held-out part may have this many times the requested papers
_GIANT_FRACTION = 0.25  # a work with more than this share of the held-out papers preferably stays in training


@dataclass(frozen=True, eq=False)
class Corpus:
    """Trees sorted by paper, section and order of appearance; papers sorted by work and key."""

    forest: Forest
    section: Numbers  # (trees,) section of each tree, numbered over the whole corpus
    paper: Numbers  # (trees,) paper of each tree; every paper has one
    papers: list[str]  # key of each paper
    works: list[str]  # work (repository, book) of each paper
    citations: Numbers  # (n, 2) citing paper, cited paper; sorted, unique, no paper cites itself
    numbers: Numbers  # (trees,) number of each equation within its paper
    words: ContextWords | None = None  # around each equation; None in files of version 1
    names: ContextWords | None = None  # of laws and the like, close to each equation; None before version 3

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
        return hash_arrays(self._to_arrays())

    @classmethod
    def from_library(cls, library: LibraryFiles) -> Corpus:
        """Read all equations of a library that have a tree; equal libraries give equal corpora.

        Citations are those between papers of the library. A paper without a work is a work of its own. Everything is
        read in one transaction, so that a concurrent writer does no harm.
        """
        with read_corpus(library) as tables:
            papers = [  # a zero character would terminate a string in the file
                (number, key, (work or key).replace("\0", "\ufffd")) for number, key, work in tables.papers
            ]
            papers.sort(key=lambda paper: (paper[2], paper[1]))
            ids = np.array([number for number, _, _ in papers], np.int64)
            position = _find_positions(ids, tables.equations[:, 0])
            equations = tables.equations[np.lexsort((tables.equations[:, 2], tables.equations[:, 1], position))]
            words, names = collect_contexts(library, equations[:, [0, 1, 4]])
            citations = tables.citations
            segments = library.open_segments()  # within the transaction, before anything can delete them
        owner, section, number, tree, _ = equations.T
        present = np.isin(ids, owner)
        papers = [row for row, is_present in zip(papers, present.tolist(), strict=True) if is_present]
        ids = ids[present]
        with library.translate_errors():
            try:
                forest = _gather_trees(segments, tree)
            except CorruptData as error:
                raise CorruptData(f"{library.folder}: damaged ({error}); run `eqkin verify`") from error
        cited = citations[np.isin(citations, ids).all(axis=1)]
        return cls(
            forest=forest,
            section=_number_groups(np.flatnonzero(section[1:] != section[:-1]) + 1, len(tree)),
            paper=_find_positions(ids, owner).astype(np.int32),
            papers=[key for _, key, _ in papers],
            works=[work for _, _, work in papers],
            citations=_sort_edges(_find_positions(ids, cited), len(ids)),
            numbers=number.astype(np.int32),
            words=words,
            names=names,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, compressed if its name ends in `.zst`; raises `StorageFailed`."""
        path = Path(path)
        version = VERSION_PLAIN if self.words is None else VERSION_WITH_WORDS
        version = version if self.names is None else VERSION_WITH_NAMES
        pieces = iter_array_file(self._to_arrays(), {"digest": self.digest, "format": FORMAT, "version": version})
        write_stream(path, _iter_compressed(pieces) if path.suffix == ".zst" else pieces)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Corpus:
        """Read what `save` wrote.

        Raises:
            BadInput: The file does not exist.
            CorruptData: It is damaged, of another format or of an unknown version; the message says why.
            StorageFailed: It cannot be read.
        """
        arrays = parse_checked_file(_read_content(Path(path)), os.fspath(path), FORMAT, VERSIONS, "export it again")
        try:
            corpus = cls._from_arrays(arrays)
            corpus.validate()
        except (CorruptData, ValueError, KeyError, IndexError) as error:
            raise CorruptData(f"{os.fspath(path)}: not a corpus, or damaged ({error}); export it again") from error
        return corpus

    def select(self, papers: Sequence[int] | Array) -> Corpus:
        """Return a corpus of some papers, in their order here, with the citations between them."""
        kept = np.zeros(len(self.papers), bool)
        kept[np.asarray(papers, np.int64)] = True
        trees = kept[self.paper]
        position = np.cumsum(kept) - 1
        section = self.section[trees]
        return Corpus(
            forest=self.forest.select(np.flatnonzero(trees)).canonicalise(),
            section=_number_groups(np.flatnonzero(np.diff(section)) + 1, len(section)),
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
        builder = ForestBuilder()
        builder.add_forest(self.forest)
        builder.add_forest(other.forest)
        return Corpus(
            forest=builder.build().canonicalise(),
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
        chosen = _choose_held_out(sizes, held_out * len(self.papers), seed)
        mask = np.array([work in chosen for work in self.works])
        return self.select(np.flatnonzero(~mask)), self.select(np.flatnonzero(mask))

    def validate(self) -> None:
        """Check that all arrays are consistent; raises `CorruptData`."""
        self.forest.validate()
        for name in ("section", "paper", "numbers"):
            if getattr(self, name).shape != (len(self),):
                raise CorruptData(f"{name} does not have one number per tree")
        paper, section = self.paper.astype(np.int64), self.section.astype(np.int64)
        if not _is_numbered(paper, len(self.papers)) or not len({*self.papers}) == len(self.papers) == len(self.works):
            raise CorruptData("trees, papers and works do not fit together")
        if not _is_numbered(section) or (np.diff(section) < np.diff(paper)).any():
            raise CorruptData("sections are not in order, or one belongs to two papers")
        if len(self) and (self.numbers.min() < 0 or len(np.unique(paper << 32 | self.numbers)) != len(self)):
            raise CorruptData("two equations of a paper have the same number")
        if self.citations.ndim != 2 or self.citations.shape[1] != 2:
            raise CorruptData("citations are not pairs of papers")
        inside = not self.citations.size or (self.citations.min() >= 0 and self.citations.max() < len(self.papers))
        sorted_edges = _sort_edges(self.citations.astype(np.int64), len(self.papers)) if inside else None
        if sorted_edges is None or not np.array_equal(self.citations, sorted_edges):
            raise CorruptData("citations refer to missing papers, or are not in order")
        for words in (self.words, self.names):
            if words is not None:
                words.validate(len(self))

    def _to_arrays(self) -> dict[str, Array]:
        sizes = self.forest.sizes
        arrays: dict[str, Array] = {name: getattr(self.forest, name) for name in _NODE_ARRAYS}
        arrays |= {name: getattr(self, name) for name in _NUMBER_ARRAYS}
        arrays |= {name: pack_strings(getattr(self.forest, name)) for name in _STRING_ARRAYS}
        arrays |= {name: pack_strings(getattr(self, name)) for name in ("papers", "works")}
        arrays |= self.words.to_arrays() if self.words is not None else {}
        arrays |= self.names.to_arrays(NAME_ARRAYS) if self.names is not None else {}
        return arrays | {"sizes": sizes.astype(np.min_scalar_type(sizes.max(initial=0)))}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Array]) -> Corpus:
        sizes, nodes = arrays["sizes"], len(arrays["tag"])
        for name, array in arrays.items():
            is_valid = array.dtype == np.int32 if name in _NUMBER_ARRAYS else array.dtype.kind == "u"
            if not is_valid or array.ndim != (2 if name == "citations" else 1):
                raise ValueError(f"{name} has type {array.dtype} and shape {array.shape}")
        if sizes.max(initial=0) > nodes:
            raise ValueError("a tree has more nodes than there are")
        tags, attributes, texts, papers, works = (
            unpack_strings(arrays[name]) for name in (*_STRING_ARRAYS, "papers", "works")
        )
        tag, attribute, text, n_children = (arrays[name] for name in _NODE_ARRAYS)
        section, paper, citations, numbers = (arrays[name].astype(np.int32, copy=False) for name in _NUMBER_ARRAYS)
        offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        forest = Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets)
        words, names = ContextWords.from_arrays(arrays), ContextWords.from_arrays(arrays, NAME_ARRAYS)
        return cls(forest, section, paper, papers, works, citations, numbers, words, names)


def _choose_held_out(sizes: Counter[str], target: float, seed: int) -> set[str]:
    """Choose works with about `target` papers together: at least one work, never all."""
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


def _number_groups(changes: Array, length: int) -> Numbers:
    """Return numbers from 0 that increase by one at `changes`."""
    steps = np.zeros(length, np.int32)
    steps[changes] = 1
    return np.cumsum(steps, dtype=np.int32)


def _is_numbered(values: Integers, count: int | None = None) -> bool:
    """Return whether numbers start at 0 and increase by at most one, up to `count` - 1 if given."""
    if not len(values):
        return not count
    steps = np.diff(values)
    has_valid_ends = values[0] == 0 and (count is None or values[-1] == count - 1)
    return bool(has_valid_ends and ((steps == 0) | (steps == 1)).all())


def _sort_edges(pairs: Integers, papers: int) -> Numbers:
    """Return the pairs sorted and without repeats and self-citations."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    codes = np.unique(pairs[:, 0] * papers + pairs[:, 1])
    return np.stack((codes // max(papers, 1), codes % max(papers, 1)), axis=1).astype(np.int32)


def _gather_trees(segments: list[tuple[int, Forest]], trees: Integers) -> Forest:
    """Build a canonical forest of the trees with these numbers, in this order; raises `CorruptData`."""
    builder, count = ForestBuilder(), 0
    place = np.full(len(trees), -1)  # of each tree in the builder
    for first, segment in segments:
        segment.validate()
        here = np.flatnonzero((trees >= first) & (trees < first + len(segment)))
        builder.add_forest(segment.select(trees[here] - first))
        place[here] = count + np.arange(len(here))
        count += len(here)
    if (place < 0).any():
        raise CorruptData("an equation's tree is in no forest file")
    return builder.build().select(place).canonicalise()


def _iter_compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, threads=-1, write_checksum=True).compressobj()
    yield from (compressor.compress(piece) for piece in pieces)
    yield compressor.flush()


def _read_content(path: Path) -> bytes:
    """Read a corpus file, and decompress it if necessary."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        raise BadInput(f"{path}: no such file; write one with `eqkin export --forest {path}`") from error
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error
    if not data.startswith(_ZSTD_MAGIC):
        return data
    try:
        return open_zstd(ByteStream(io.BytesIO(data), str(path)), MAX_UNPACKED_BYTES).read_rest()
    except (BadInput, LimitReached) as error:
        raise CorruptData(f"{error}; export it again") from error
