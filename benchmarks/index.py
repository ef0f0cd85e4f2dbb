"""`python -m benchmarks index`: finding the nearest of many vectors, beside exact search and annoy (the paper's, 16 trees).

The vectors are the embeddings of a library's equations. If more are asked for than it has, each further one is an
embedding plus a part of the difference of two others, drawn at random: so the cloud keeps its directions and its
crowded places. Queries are embeddings that were left out of the collection. A hit counts for recall if it is as near as
the exact k-th (formulas that occur many times are equally good answers). Single queries take turns between the systems.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.index import VectorIndex, nearest
from eqkin.index.nearest import FaissIndex
from eqkin.index.vectors import Floats, Integers, VectorFiles, normalise, write_vectors

PAPER_EQUATIONS, PAPER_BYTES = 28_973_591, 13e9
ANNOY_TREES = 16
_STRIDE = 0.3  # of the difference of two others that is added
_TIE = 1e-6
_FINER = 1.15  # steps in which annoy is made to look at more
_FILE = 500_000

Search = Callable[[Floats, int], Integers]


@dataclass
class IndexMeasurement:
    """One system, asked in one way."""

    name: str
    build_seconds: float
    bytes_a_vector: float  # on disk
    recall_10: float = 0.0
    recall_100: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of single queries for 10 hits

    def summary(self) -> dict[str, float | str]:
        """The figures that matter."""
        figures = asdict(self)
        seconds = figures.pop("seconds")
        return figures | {
            "p50_ms": 1e3 * statistics.median(seconds),
            "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
            "gigabytes_of_the_paper": self.bytes_a_vector * PAPER_EQUATIONS / 1e9,
        }


@dataclass
class IndexReport:
    """What was measured."""

    vectors: int
    real: int  # of these, embeddings as they are
    queries: int
    rows: list[IndexMeasurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faster: float = 0.0  # ours than annoy at equal or better recall: median of each query's ratio

    def summary(self) -> dict[str, Any]:
        """The figures that matter."""
        return {
            "vectors": self.vectors,
            "real": self.real,
            "queries": self.queries,
            "systems": [row.summary() for row in self.rows],
            "faster_than_annoy": self.faster,
            "notes": self.notes,
        }


def measure(
    library: Path,
    *,
    vectors: int = 1_000_000,
    queries: int = 500,
    progress: Callable[[str], None] | None = None,
) -> IndexReport:
    """Build each system over so many vectors and ask it.

    Raises:
        BadInput: the library has too few equations.
    """
    tell = progress or (lambda _: None)
    tell("embedding ...")
    real = _embeddings(library)
    if len(real) < 2 * queries + 100:
        raise BadInput(f"{library}: {len(real):,} equations are too few for {queries:,} queries; `eqkin add` more")
    generator = np.random.default_rng(0)
    real = real[generator.permutation(len(real))]
    asked, base = real[:queries], real[queries:][:vectors]
    collection = np.concatenate((base, _grown(base, vectors - len(base), generator)))
    report = IndexReport(len(collection), len(base), queries)
    with TemporaryDirectory() as folder:
        _compare(report, collection, asked, Path(folder), tell)
    return report


def _embeddings(library: Path) -> Floats:
    """The unit vectors of a library's equations: from its index, or made now."""
    encoder = Encoder.load()
    with Library.open(library, create=False) as opened:
        try:
            index = VectorIndex.open(opened, encoder.digest)
            return index.get_vectors(index.trees)
        except BadInput:
            parts = [encoder.embed(forest) for _, forest in opened.iter_forests()]
    return normalise(np.concatenate([np.zeros((0, encoder.dimensions), np.float32), *parts]))


def _grown(base: Floats, count: int, generator: np.random.Generator) -> Floats:
    """So many more vectors like those there are."""
    grown = np.empty((count, base.shape[1]), np.float32)
    for start in range(0, count, 100_000):
        here = grown[start : start + 100_000]
        one, plus, minus = generator.integers(0, len(base), (3, len(here)))
        here[:] = normalise(base[one] + _STRIDE * (base[plus] - base[minus]))
    return grown


def _compare(report: IndexReport, collection: Floats, asked: Floats, folder: Path, tell: Callable[[str], None]) -> None:
    tell("exact search ...")
    exact, search = _exact(collection)
    truth = np.stack([search(query[None], 100) for query in asked])
    report.rows.append(exact)
    tell("building ours ...")
    ours, search_ours = _ours(collection, folder)
    report.rows.append(ours)
    _judge(ours, search_ours, collection, asked, truth)
    systems: list[tuple[IndexMeasurement, Search]] = [(exact, search), (ours, search_ours)]
    try:
        tell("building annoy ...")
        built = _annoy(collection, folder)
    except ImportError:
        report.notes.append("annoy is not installed: pip install 'eqkin[peers]' (it needs a compiler)")
    else:
        systems += _annoy_ways(built, ours.recall_10, collection, asked, truth, tell)
        report.rows += [row for row, _ in systems[2:]]
    tell("single queries ...")
    # exact search apart: it reads all vectors, and would leave the others without a cache
    for query, (row, way) in chain(product(asked, systems[:1]), product(asked, systems[1:])):
        start = time.perf_counter()
        way(query[None], 10)
        row.seconds.append(time.perf_counter() - start)
    best = systems[-1][0]
    if best is not ours:
        report.faster = statistics.median(a / b for a, b in zip(best.seconds, ours.seconds, strict=True))
        if best.recall_10 < ours.recall_10:
            report.notes.append("annoy did not reach our recall: it is faster in this comparison than it should be")


def _exact(collection: Floats) -> tuple[IndexMeasurement, Search]:
    start = time.perf_counter()
    index = nearest.make_flat_index(collection.shape[1])
    index.add(np.arange(len(collection)), collection)
    seconds = time.perf_counter() - start
    row = IndexMeasurement("exact (faiss Flat)", seconds, 4.0 * collection.shape[1], recall_10=1.0, recall_100=1.0)
    return row, lambda queries, k: index.search(queries, k)[1][0]


def _ours(collection: Floats, folder: Path) -> tuple[IndexMeasurement, Search]:
    """As `eqkin index` builds it."""
    parts = range(0, len(collection), _FILE)
    numbers = np.arange(len(collection))
    entries = [write_vectors(folder, numbers[at : at + _FILE], collection[at : at + _FILE]) for at in parts]
    start = time.perf_counter()
    built: FaissIndex = nearest.build_inverted_lists(VectorFiles(folder, entries, collection.shape[1]))
    entry = built.save(folder)
    seconds = time.perf_counter() - start
    row = IndexMeasurement(f"eqkin ({built.kind}, {built.probes} probes)", seconds, entry.bytes / len(collection))
    loaded = nearest.load_index(folder, entry, collection.shape[1])
    return row, lambda queries, k: loaded.search(queries, k)[1][0]


def _annoy(collection: Floats, folder: Path) -> tuple[Any, float, float]:
    """The paper's index, seconds and bytes a vector; raises ImportError."""
    annoy = import_module("annoy")
    start = time.perf_counter()
    index = annoy.AnnoyIndex(collection.shape[1], "angular")
    index.set_seed(0)
    for number, vector in enumerate(collection):
        index.add_item(number, vector)
    index.build(ANNOY_TREES, n_jobs=int(os.environ.get("OMP_NUM_THREADS", -1)))
    path = folder / "annoy"
    index.save(str(path))
    return index, time.perf_counter() - start, path.stat().st_size / len(collection)


def _annoy_ways(
    built: tuple[Any, float, float],
    recall: float,
    collection: Floats,
    asked: Floats,
    truth: Integers,
    tell: Callable[[str], None],
) -> Iterator[tuple[IndexMeasurement, Search]]:
    """Annoy as it is by itself, and looking at as many vectors as it needs to reach a recall."""
    index, seconds, size = built

    def way(nodes: int) -> Search:
        return lambda queries, k: np.array(index.get_nns_by_vector(queries[0], k, search_k=nodes), np.int64)

    plain = IndexMeasurement(f"annoy ({ANNOY_TREES} trees)", seconds, size)
    _judge(plain, way(-1), collection, asked, truth)
    yield plain, way(-1)
    nodes = 4_000
    while _recall(way(nodes), collection, asked, truth, 10) < recall and nodes < len(collection):
        nodes = int(_FINER * nodes)
        tell(f"annoy looking at {nodes:,} vectors ...")
    row = IndexMeasurement(f"annoy ({ANNOY_TREES} trees, search_k {nodes:,})", seconds, size)
    _judge(row, way(nodes), collection, asked, truth)
    yield row, way(nodes)


def _judge(row: IndexMeasurement, search: Search, collection: Floats, asked: Floats, truth: Integers) -> None:
    row.recall_10 = _recall(search, collection, asked, truth, 10)
    row.recall_100 = _recall(search, collection, asked, truth, 100)


def _recall(search: Search, collection: Floats, asked: Floats, truth: Integers, k: int) -> float:
    """The share of hits that are as near as the exact k-th."""
    shares = []
    for query, right in zip(asked, truth, strict=True):
        threshold = float(collection[right[k - 1]] @ query) - _TIE
        found = search(query[None], k)
        shares.append(float((collection[found[found >= 0]] @ query >= threshold).sum()) / k)
    return statistics.mean(shares)
