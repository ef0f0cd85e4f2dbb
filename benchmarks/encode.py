"""`python -m benchmarks encode`: how fast trees become vectors, beside the matrix products this machine can do in the same run.

The limit is the network's own products for the same numbers of nodes and nothing else. All take turns in rounds, in
one process with the same threads; the median counts. Then one formula at a time, from LaTeX to vector.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from eqkin.api import Library
from eqkin.encoder.architecture import FEATURES, SUM, Architecture, compute_weight_shapes
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.library.parsing import ParsedPaper, parse_item
from eqkin.sources import open_source
from eqkin.trees import Forest, ForestBuilder, Vocabulary

_ROWS = 2_048  # of the bare products, where they are fastest


@dataclass
class EncodeReport:
    """What was measured; seconds are those of each round."""

    architecture: Architecture
    trees: int
    nodes: int
    products: list[float] = field(default_factory=list)
    numpy: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)  # empty if torch is not installed
    conversion: list[float] = field(default_factory=list)  # seconds of each formula
    encoding: list[float] = field(default_factory=list)
    paper: list[float] = field(default_factory=list)  # the paper's network with numpy; empty if that is measured anyway

    @property
    def operations(self) -> float:
        """Floating-point operations of the network's products."""
        wide = self.architecture.width
        node = FEATURES * wide + self.architecture.layers * wide * wide
        return 2.0 * (self.nodes * node + self.trees * self.architecture.pooled_width * self.architecture.dimensions)

    def summary(self) -> dict[str, float]:
        """The figures that matter; ratios are of speeds, each the median of the rounds' own ratios."""
        products, encoder = statistics.median(self.products), statistics.median(self.numpy)
        figures = {
            "trees": self.trees,
            "nodes": self.nodes,
            "products_gflops": self.operations / products / 1e9,
            "numpy_gflops": self.operations / encoder / 1e9,
            "numpy_trees_per_second": self.trees / encoder,
            "numpy_nodes_per_second": self.nodes / encoder,
            "numpy_to_products": _ratio(self.products, self.numpy),
        }
        if self.paper:
            figures["cost_to_paper"] = _ratio(self.numpy, self.paper)
        if self.torch:
            eager = statistics.median(self.torch)
            figures |= {
                "torch_gflops": self.operations / eager / 1e9,
                "torch_trees_per_second": self.trees / eager,
                "torch_to_products": _ratio(self.products, self.torch),
                "numpy_to_torch": _ratio(self.torch, self.numpy),
            }
        figures["formulas"] = len(self.encoding)
        if self.encoding:
            total = [a + b for a, b in zip(self.conversion, self.encoding, strict=True)]
            for name, seconds in (("formula", total), ("conversion", self.conversion), ("encoding", self.encoding)):
                figures |= {
                    f"{name}_median_ms": 1e3 * statistics.median(seconds),
                    f"{name}_p99_ms": 1e3 * float(np.percentile(seconds, 99)),
                }
        return figures


def measure(
    model: Model | None = None,
    *,
    library: Path | None = None,
    trees: int = 10_000,
    rounds: int = 5,
    formulas: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> EncodeReport:
    """Time the encoder over at most `trees` trees of a library or the atlas, and over formulas of the atlas.

    Without a model the weights are random: that costs the same.
    """
    tell = progress or (lambda _: None)
    tell("reading trees ...")
    articles = [parse_item(item, "") for item in open_source("atlas:")]
    forest = _sample([article.forest for article in articles if article.forest is not None], trees)
    if library is not None:
        with Library.open(library, create=False) as opened:
            forest = _sample([part for _, part in opened.iter_forests()], trees)
    if not len(forest):
        raise BadInput(f"{library}: no trees there; fill it with `eqkin add`")
    model = model or random_model(forest)
    encoder = Encoder(model)
    report = EncodeReport(model.architecture, len(forest), len(forest.n_children))
    works: list[tuple[list[float], Callable[[], object]]] = [
        (report.products, _products(model.architecture, forest)),
        (report.numpy, lambda: encoder.embed(forest)),
    ]
    if model.architecture.kind != SUM:
        papers = Encoder(random_model(forest))
        works.append((report.paper, lambda: papers.embed(forest)))
    try:
        works.append((report.torch, _torch_eager(model, forest)))
    except ImportError:
        tell("torch is not installed")
    for number in range(-1, rounds):  # the first one only warms up
        tell(f"round {max(number, 0) + 1} of {rounds} ...")
        for seconds, work in works:
            elapsed = _timed(work)
            if number >= 0:
                seconds.append(elapsed)
    tell("one formula at a time ...")
    _single_formulas(encoder, list(_formulas(articles))[:formulas], report)
    return report


def _ratio(theirs: list[float], ours: list[float]) -> float:
    """How much faster ours is: both of a round ran one after the other, so other load on the machine cancels out."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _sample(parts: Iterable[Forest], most: int) -> Forest:
    """At most so many trees, evenly spread over all."""
    forests = list(parts)
    ends = np.cumsum([0, *(len(forest) for forest in forests)])
    chosen = np.unique(np.linspace(0, ends[-1] - 1, min(most, int(ends[-1]))).astype(np.int64))
    builder = ForestBuilder()
    for forest, (start, end) in zip(forests, pairwise(ends.tolist()), strict=True):
        builder.add_forest(forest.select(chosen[(chosen >= start) & (chosen < end)] - start))
    return builder.build()


def random_model(forest: Forest) -> Model:
    """The paper's architecture with weights that nothing was learned for."""
    generator = np.random.default_rng(0)
    architecture = Architecture()
    weights = {
        name: np.asarray(generator.normal(0, shape[-1] ** -0.5, shape) if len(shape) > 1 else np.ones(shape), "f4")
        for name, shape in compute_weight_shapes(architecture).items()
    }
    return Model(architecture, Vocabulary.learn([forest]), weights)


def _products(architecture: Architecture, forest: Forest) -> Callable[[], None]:
    """The network's matrix products for as many nodes and trees, some rows at a time, and nothing else."""
    wide, generator = architecture.width, np.random.default_rng(0)
    shapes = [(len(forest.n_children), FEATURES, wide)]
    shapes += [(len(forest.n_children), wide, wide)] * architecture.layers
    shapes += [(len(forest), architecture.pooled_width, architecture.dimensions)]
    matrices = [generator.random((inner, columns), np.float32) for _, inner, columns in shapes]
    left = generator.random((_ROWS, max(FEATURES, architecture.pooled_width)), np.float32)
    inputs = {inner: np.ascontiguousarray(left[:, :inner]) for _, inner, _ in shapes}
    results = {columns: np.empty((_ROWS, columns), np.float32) for _, _, columns in shapes}

    def work() -> None:
        for (rows, inner, columns), matrix in zip(shapes, matrices, strict=True):
            for start in range(0, rows, _ROWS):
                here = min(_ROWS, rows - start)
                np.matmul(inputs[inner][:here], matrix, out=results[columns][:here])

    return work


def _torch_eager(model: Model, forest: Forest) -> Callable[[], object]:
    """The same network in eager torch over the same trees, put together before; raises ImportError without torch."""
    import torch

    from eqkin.encoder.torch_network import build_network
    from eqkin.training.held_out import iter_batches
    from eqkin.training.resident import DeviceForest

    network = build_network(model.architecture, model.weights)
    resident = DeviceForest(forest, model.vocabulary, torch.device("cpu"))
    prepared = [
        (resident.build_features(batch, torch.float32), batch.trees)
        for batch in iter_batches(resident, torch.arange(len(resident)))
    ]

    def work() -> None:
        with torch.no_grad():
            for features, trees in prepared:
                network(features, trees)

    return work


def _formulas(articles: Iterable[ParsedPaper]) -> Iterator[str]:
    """The atlas's equations as a person might paste them."""
    for article in articles:
        for equation in article.equations:
            yield f"\\begin{{{equation.environment}}}{equation.latex}\\end{{{equation.environment}}}"


def _single_formulas(encoder: Encoder, formulas: list[str], report: EncodeReport) -> None:
    encoder.encode(formulas[:8])  # the converter's engine started
    for formula in formulas:
        start = time.perf_counter()
        try:
            forest = encoder.parse_formulas([formula])
        except BadInput:
            continue
        converted = time.perf_counter()
        encoder.embed(forest)
        report.conversion.append(converted - start)
        report.encoding.append(time.perf_counter() - converted)
