"""How fast trees become vectors, compared with the bare matrix products of the same network in the same run.

The limit is the network's own matrix products for the same numbers of nodes and nothing else. All take turns in rounds,
in one process with the same threads; medians count. Then one formula at a time, from LaTeX to vector.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import BenchmarkReport, compute_speedup, log, summarise_times, time_rounds
from benchmarks.search import list_atlas_formulas
from eqkin import Encoder, Library
from eqkin.cli.train import load_corpus
from eqkin.encoder.model import FEATURES, SUM, Architecture, Model, Vocabulary, compute_weight_shapes
from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.library.parsing import parse_item
from eqkin.sources.readers import open_source

# Matrix products are fastest with this number of rows.
_ROWS = 2_048


def measure_encode(
    library: Annotated[
        Path | None,
        typer.Option(
            "--library",
            "-l",
            metavar="DIR|FILE",
            help="Trees of this library, or of a file made by `eqkin export --forest`.",
            show_default="the bundled atlas",
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model's folder.", show_default="random weights")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Shape of the random network, such as kind=mix; repeatable.",
            show_default="the paper's",
        ),
    ] = None,
    trees: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many trees.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Number of rounds; medians count.")] = 5,
    formulas: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Formulas timed one by one.", show_default="all of the atlas")
    ] = None,
) -> BenchmarkReport:
    """Time the encoder against the bare matrix products of its network, then single formulas.

    GFLOP/s count the network's matrix products only, in every row.

    **Example**

        python -m benchmarks encode --library papers --trees 20000 --rounds 9
    """
    log("reading trees")
    if library is None:
        papers = (parse_item(item) for item in open_source("atlas:"))
        forest = sample_trees((paper.forest for paper in papers if paper.forest is not None), trees)
    elif library.is_file():
        forest = sample_trees([load_corpus(library, library).forest], trees)
    else:
        with Library.open(library) as opened:
            forest = sample_trees((part for _, part, _ in opened.iter_trees(opened.list_tree_keys())), trees)
    if not len(forest):
        raise BadInput(f"{library}: no trees there; fill it with `eqkin add`")
    settings = dict(setting.split("=", 1) for setting in shape or [])
    loaded = Model.load(model) if model else make_random_model(forest, **settings)
    encoder, architecture = Encoder(loaded), loaded.architecture
    functions: dict[str, Callable[[], object]] = {
        "matrix products": make_matrix_products(architecture, forest),
        "encoder (numpy)": lambda: encoder.embed(forest),
        "parser of operator trees": lambda: parse_operators(forest),
    }
    if architecture.kind != SUM:
        paper_encoder = Encoder(make_random_model(forest))
        functions["network of the paper (numpy)"] = lambda: paper_encoder.embed(forest)
    facts: dict[str, Any] = {"trees": len(forest), "nodes": len(forest.n_children), "rounds": rounds}
    report = BenchmarkReport("encode", facts | {"architecture": architecture.to_dict()})
    times = time_rounds(functions, rounds)
    add_throughput(report, times, count_operations(architecture, forest))
    time_single_formulas(report, encoder, list_atlas_formulas(formulas))
    return report


def add_throughput(report: BenchmarkReport, times: dict[str, list[float]], operations: float) -> None:
    """Add a row of speeds for each system; ratios are medians over rounds."""
    trees = report.facts["trees"]
    for name, seconds in times.items():
        median = statistics.median(seconds)
        of_products = compute_speedup(times["matrix products"], seconds)
        # Other functions compute other products.
        own = name in ("matrix products", "encoder (numpy)")
        report.add(
            "Trees to vectors",
            name,
            equations_per_second=trees / median if name != "matrix products" else None,
            gflops=operations / median / 1e9 if own else None,
            of_matrix_products=of_products if own else None,
            time_to_encoder=compute_speedup(seconds, times["encoder (numpy)"]),
        )


def count_operations(architecture: Architecture, forest: Forest) -> float:
    """Count the floating-point operations of the network's matrix products."""
    per_node = FEATURES * architecture.width + architecture.layers * architecture.width**2
    per_tree = architecture.pooled_width * architecture.dimensions
    return 2.0 * (len(forest.n_children) * per_node + len(forest) * per_tree)


def sample_trees(parts: Iterable[Forest], count: int) -> Forest:
    """Return at most `count` trees, evenly spread over all forests."""
    forests = list(parts)
    ends = np.cumsum([0, *(len(forest) for forest in forests)])
    chosen = np.unique(np.linspace(0, ends[-1] - 1, min(count, int(ends[-1]))).astype(np.int64))
    sampled = [
        forest.select(chosen[(chosen >= start) & (chosen < end)] - start)
        for forest, (start, end) in zip(forests, pairwise(ends.tolist()), strict=True)
    ]
    return Forest.concatenate(sampled)


def make_random_model(forest: Forest, **shape: str) -> Model:
    """Make a model with random weights, by default of the paper's shape: it costs the same as a trained one."""
    generator = np.random.default_rng(0)
    architecture = Architecture(**{name: int(text) if text.isdecimal() else text for name, text in shape.items()})  # type: ignore[arg-type]
    weights = {
        name: np.asarray(generator.normal(0, shape[-1] ** -0.5, shape) if len(shape) > 1 else np.ones(shape), "f4")
        for name, shape in compute_weight_shapes(architecture).items()
    }
    return Model(architecture, Vocabulary.learn([forest]), weights)


def make_matrix_products(architecture: Architecture, forest: Forest) -> Callable[[], None]:
    """Return a function that computes the network's matrix products for as many nodes and trees, and nothing else."""
    width, generator = architecture.width, np.random.default_rng(0)
    shapes = [(len(forest.n_children), FEATURES, width)]
    shapes += [(len(forest.n_children), width, width)] * architecture.layers
    shapes += [(len(forest), architecture.pooled_width, architecture.dimensions)]
    matrices = [generator.random((inner, columns), np.float32) for _, inner, columns in shapes]
    left = generator.random((_ROWS, max(FEATURES, architecture.pooled_width)), np.float32)
    inputs = {inner: np.ascontiguousarray(left[:, :inner]) for _, inner, _ in shapes}
    results = {columns: np.empty((_ROWS, columns), np.float32) for _, _, columns in shapes}

    def multiply() -> None:
        for (rows, inner, columns), matrix in zip(shapes, matrices, strict=True):
            for start in range(0, rows, _ROWS):
                count = min(_ROWS, rows - start)
                np.matmul(inputs[inner][:count], matrix, out=results[columns][:count])

    return multiply


def time_single_formulas(report: BenchmarkReport, encoder: Encoder, formulas: Iterable[str]) -> None:
    """Time formulas one by one: the whole way, conversion to a tree, tree to vector."""
    # The first formulas start the engine.
    encoder.encode(list(islice(formulas, 8)))
    conversion, encoding = [], []
    for formula in formulas:
        start = time.perf_counter()
        try:
            forest = encoder.parse_formulas([formula])
        except BadInput:
            continue
        converted = time.perf_counter()
        encoder.embed(forest)
        conversion.append(converted - start)
        encoding.append(time.perf_counter() - converted)
    report.facts["formulas"] = len(encoding)
    whole = [sum(pair) for pair in zip(conversion, encoding, strict=True)]
    for name, seconds in {"LaTeX to vector": whole, "LaTeX to tree": conversion, "tree to vector": encoding}.items():
        report.add("One formula at a time", name, **summarise_times(seconds))
