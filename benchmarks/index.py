"""Nearest-neighbour search over many vectors, compared with exact search and annoy (the paper's index, 16 trees).

The vectors are embeddings of a library's equations. If more are needed than it has, each further one is an embedding
plus a part of the difference of two others, drawn at random: the cloud keeps its directions and its dense regions.
Queries are embeddings that were left out of the collection. A hit counts for recall if it is as near as the exact k-th
(formulas that occur many times are equally good answers). Single queries take turns between the systems.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import BenchmarkReport, log, summarise_times, time_call
from eqkin import Encoder, Library
from eqkin.cli.options import LibraryFolder
from eqkin.errors import BadInput
from eqkin.index.manifest import SETTINGS
from eqkin.index.reader import VectorIndex
from eqkin.index.signs import BinaryCodes
from eqkin.index.vectors import Floats, Integers, VectorFiles, VectorSegment, normalise, write_vectors

ANNOY_TREES = 16
_STRIDE = 0.3  # of the difference of two others that is added to an embedding
_TIE = 1e-6  # cosines closer than this are equal
_SEARCH_STEP = 1.15  # factor by which annoy looks at more vectors, until it reaches our recall
_FILE_VECTORS = 500_000

Search = Callable[[Floats, int], Integers]


@dataclass
class IndexedVectors:
    """A system that has indexed the collection."""

    name: str
    search: Search
    build_seconds: float
    bytes_per_vector: float  # on disk
    recall_10: float = 1.0
    recall_100: float = 1.0
    seconds: list[float] = field(default_factory=list)  # of single queries for 10 hits


@dataclass(frozen=True)
class _Collection:
    """The vectors, the queries, and the exact answer of each query."""

    vectors: Floats
    queries: Floats
    truth: Integers

    def compute_recall(self, search: Search, k: int) -> float:
        """Return the share of hits that are as near as the exact k-th."""
        shares = []
        for query, exact in zip(self.queries, self.truth, strict=True):
            threshold = float(self.vectors[exact[k - 1]] @ query) - _TIE
            found = search(query[None], k)
            shares.append(float((self.vectors[found[found >= 0]] @ query >= threshold).sum()) / k)
        return statistics.mean(shares)

    def judge(self, system: IndexedVectors) -> None:
        system.recall_10 = self.compute_recall(system.search, 10)
        system.recall_100 = self.compute_recall(system.search, 100)


def measure_index(
    library: LibraryFolder,
    vectors: Annotated[int, typer.Option(min=100, metavar="N", help="Vectors in the collection.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=10, metavar="N", help="Queries, one at a time.")] = 500,
) -> BenchmarkReport:
    """Search for the nearest of many vectors: exact search, eqkin, and annoy if it is installed.

    The vectors are embeddings of the library's equations; if it has too few, similar ones are made.

    **Example**

        python -m benchmarks index --library papers --vectors 100000
    """
    log("embedding")
    embeddings = load_embeddings(library)
    if len(embeddings) < 2 * queries + 100:
        raise BadInput(
            f"{library}: {len(embeddings):,} equations are too few for {queries:,} queries; `eqkin add` more"
        )
    generator = np.random.default_rng(0)
    embeddings = embeddings[generator.permutation(len(embeddings))]
    base = embeddings[queries:][:vectors]
    collection = np.concatenate((base, make_similar_vectors(base, vectors - len(base), generator)))
    report = BenchmarkReport("index", {"vectors": len(collection), "embeddings": len(base), "queries": queries})
    with TemporaryDirectory() as folder:
        compare_systems(report, collection, embeddings[:queries], Path(folder))
    return report


def load_embeddings(library: Path) -> Floats:
    """Return the unit vectors of a library's equations: from its index, or embedded now."""
    encoder = Encoder.load()
    with Library.open(library) as opened:
        try:
            index = VectorIndex.open(opened, encoder.digest)
            return index.get_vectors(index.trees)
        except BadInput:
            parts = [encoder.embed(forest) for _, forest, _ in opened.iter_trees(opened.list_tree_keys())]
    return normalise(np.concatenate([np.zeros((0, encoder.dimensions), np.float32), *parts]))


def make_similar_vectors(base: Floats, count: int, generator: np.random.Generator) -> Floats:
    """Make `count` more vectors similar to those of `base`."""
    made = np.empty((count, base.shape[1]), np.float32)
    for start in range(0, count, 100_000):
        part = made[start : start + 100_000]
        one, plus, minus = generator.integers(0, len(base), (3, len(part)))
        part[:] = normalise(base[one] + _STRIDE * (base[plus] - base[minus]))
    return made


def compare_systems(report: BenchmarkReport, vectors: Floats, queries: Floats, folder: Path) -> None:
    """Build each system, measure its recall and time single queries."""
    log("exact search")
    exact = IndexedVectors("exact, 32 bits", lambda q, k: find_exact(vectors, q, k), 0.0, 4.0 * vectors.shape[1])
    collection = _Collection(vectors, queries, np.stack([exact.search(query[None], 100) for query in queries]))
    log("building eqkin's index")
    ours, rounded = build_ours(vectors, folder)
    collection.judge(ours)
    collection.judge(rounded)
    systems = [exact, rounded, ours]
    try:
        log("building annoy")
        systems += build_annoy(collection, ours.recall_10, folder)
    except ImportError:
        report.facts["note"] = "annoy is not installed: pip install 'eqkin[peers]' (it needs a compiler)"
    log("single queries")
    # exact search first and alone: it reads all vectors and would evict those of the others from the cache
    for query, system in chain(
        product(queries, systems[:1]), product(queries, systems[1:2]), product(queries, systems[2:])
    ):
        system.seconds.append(time_call(system.search, query[None], 10)[1])
    if len(systems) > 3:
        ratios = (theirs / own for theirs, own in zip(systems[-1].seconds, ours.seconds, strict=True))
        report.facts["times_as_fast_as_annoy_at_equal_recall"] = statistics.median(ratios)
    for system in systems:
        report.add(
            "Nearest neighbours",
            system.name,
            recall_10=system.recall_10,
            recall_100=system.recall_100,
            **summarise_times(system.seconds),
            bytes_per_vector=system.bytes_per_vector,
            build_seconds=system.build_seconds,
        )


def find_exact(vectors: Floats, query: Floats, k: int) -> Integers:
    """Return the `k` nearest of all vectors, best first."""
    cosines = vectors @ query[0]
    best = np.argpartition(-cosines, k)[:k]
    return best[np.argsort(-cosines[best])]


def build_ours(vectors: Floats, folder: Path) -> tuple[IndexedVectors, IndexedVectors]:
    """Build the index that `eqkin index` builds for large libraries; return it, and exact search in its vectors."""
    numbers, width = np.arange(len(vectors)), vectors.shape[1]

    def build() -> tuple[VectorFiles, BinaryCodes, int]:
        parts = [slice(at, at + _FILE_VECTORS) for at in range(0, len(vectors), _FILE_VECTORS)]
        entries = [write_vectors(folder, VectorSegment.encode(numbers[part], vectors[part])) for part in parts]
        files = VectorFiles(folder, entries, width)
        return files, BinaryCodes(files), sum(entry.bytes for entry in entries)

    (files, codes, size), seconds = time_call(build)

    def search(queries: Floats, k: int, rows: Integers | None = None) -> Integers:
        cosines = files.compute_cosines(queries, rows)[0]
        best = np.argpartition(-cosines, k)[:k]
        return best if rows is None else rows[best]

    compared, per_vector = SETTINGS.compared_vectors, size / len(vectors)
    ours = IndexedVectors("eqkin", lambda q, k: search(q, k, codes.find_rows(q[0], compared)), seconds, per_vector)
    return ours, IndexedVectors("exact, 8 bits", search, 0.0, per_vector)


def build_annoy(collection: _Collection, recall: float, folder: Path) -> list[IndexedVectors]:
    """Build annoy; return it with its defaults, and searching as many nodes as it needs to reach a recall."""
    annoy = import_module("annoy")
    vectors, path = collection.vectors, folder / "annoy"
    index: Any = annoy.AnnoyIndex(vectors.shape[1], "angular")
    index.set_seed(0)

    def build() -> None:
        for number, vector in enumerate(vectors):
            index.add_item(number, vector)
        index.build(ANNOY_TREES, n_jobs=int(os.environ.get("OMP_NUM_THREADS", -1)))
        index.save(str(path))

    def make_search(nodes: int) -> Search:
        return lambda queries, k: np.array(index.get_nns_by_vector(queries[0], k, search_k=nodes), np.int64)

    _, seconds = time_call(build)
    size, nodes = path.stat().st_size / len(vectors), 4_000
    while collection.compute_recall(make_search(nodes), 10) < recall and nodes < len(vectors):
        nodes = int(_SEARCH_STEP * nodes)
        log(f"annoy searching {nodes:,} nodes")
    names = {-1: f"annoy ({ANNOY_TREES} trees)", nodes: f"annoy ({ANNOY_TREES} trees, search_k {nodes:,})"}
    systems = [IndexedVectors(name, make_search(number), seconds, size) for number, name in names.items()]
    for system in systems:
        collection.judge(system)
    return systems
