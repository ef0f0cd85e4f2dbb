"""A library as a data set for other programs: Parquet files and a card, in the layout that the Hugging Face Hub reads.

FOLDER/data/equations-00000.parquet    equations with paper, context, tree and vector; at most `ROWS_PER_FILE` each
FOLDER/data/citations.parquet          papers and what they cite
FOLDER/README.md                       the card, written last
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import BadInput, StorageFailed
from eqkin.index.index import Index
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_citations
from eqkin.library.records import export_equations
from eqkin.storage.files import write_atomically, write_file
from eqkin.version import __version__

ROWS_PER_GROUP = 5_000  # in memory together
ROWS_PER_FILE = 500_000
_CARD_TEMPLATE = Path(__file__).with_name("dataset_card.md")
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M", 10_000_000: "1M<n<10M"}
_TEXT_COLUMNS = ("section", "before", "after", "latex", "label", "printed", "environment", "whole", "status", "mathml")


def export_dataset(
    library: LibraryFiles, index: Index, folder: Path, digest: str, progress: Callable[[int], None] | None = None
) -> dict[str, int]:
    """Write a library to a folder as Parquet with a card.

    Args:
        library: The library.
        index: Its vectors; every equation must have one.
        folder: An empty or a new folder.
        digest: Of the network that made the vectors.
        progress: Called with the number of equations written so far.

    Returns:
        Numbers of equations, papers and citations.

    Raises:
        BadInput: The folder is not empty, pyarrow is not installed, or an equation has no vector.
        StorageFailed: The disk refused a write; without its card, the data set is incomplete.
    """
    try:
        pyarrow = import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise BadInput("a data set needs pyarrow: `pip install 'eqkin[dataset]'`") from error
    data = folder / "data"
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(f"{folder}: the folder is not empty; choose another one")
        data.mkdir(parents=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot be written to ({error.strerror or error})") from error
    schema = _make_schema(pyarrow, index.dimensions)
    counts = {"equations": 0, "papers": 0, "citations": 0}
    last_paper = None
    records = export_equations(library, numbers=True)
    for number in range(1_000_000):
        first = list(islice(records, 1))
        if not first and number:
            break
        with (
            write_atomically(data / f"equations-{number:05}.parquet") as path,
            parquet.ParquetWriter(path, schema, compression="zstd") as writer,
        ):
            for rows in _iter_groups(chain(first, islice(records, ROWS_PER_FILE - 1))):
                for row in rows:
                    counts["papers"] += row["paper"] != last_paper
                    last_paper = row["paper"]
                counts["equations"] += len(rows)
                writer.write_table(_make_table(pyarrow, schema, library, index, rows))
                if progress:
                    progress(counts["equations"])
    citations = list_citations(library)
    counts["citations"] = len(citations)
    columns = {name: [pair[at] for pair in citations] for at, name in enumerate(("paper", "cites"))}
    with write_atomically(data / "citations.parquet") as path:
        names = pyarrow.schema([(name, pyarrow.string()) for name in columns])
        parquet.write_table(pyarrow.table(columns, names), path, compression="zstd")
    size = next((name for most, name in _SIZES.items() if counts["equations"] < most), "n>10M")
    converter = f"{library.converter.name} {library.converter.version}"
    card = _CARD_TEMPLATE.read_text("utf-8").format(
        title=f"Equations of {folder.absolute().name}", size_category=size, version=__version__, converter=converter,
        digest=digest, dimensions=index.dimensions, **counts,
    )  # fmt: skip
    write_file(folder / "README.md", card.encode())
    return counts


def _iter_groups(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while rows := list(islice(records, ROWS_PER_GROUP)):
        yield rows


def _make_schema(pyarrow: Any, dimensions: int) -> Any:
    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    columns = [("id", text), ("paper", text), ("title", text), ("authors", texts), ("year", pyarrow.int32())]
    columns += [("fields", texts), *((name, text) for name in _TEXT_COLUMNS)]
    columns += [("inline", pyarrow.bool_()), ("repaired", pyarrow.bool_())]
    columns += [("tree_tags", texts), ("tree_texts", texts), ("tree_children", pyarrow.list_(pyarrow.int32()))]
    return pyarrow.schema([*columns, ("vector", pyarrow.list_(pyarrow.float32(), dimensions))])


def _make_table(pyarrow: Any, schema: Any, library: LibraryFiles, index: Index, rows: list[dict[str, Any]]) -> Any:
    numbers = np.array([row["tree"] for row in rows], np.int64)
    forest = library.get_trees(numbers)
    columns: dict[str, Any] = {
        name: pyarrow.array([row[name] for row in rows], schema.field(name).type)
        for name in schema.names
        if name in rows[0]
    }
    nodes = {
        "tree_tags": np.array(forest.tags, object)[forest.tag],
        "tree_texts": np.array(forest.texts, object)[forest.text],
        "tree_children": np.asarray(forest.n_children, np.int32),
    }
    offsets = pyarrow.array(forest.offsets.astype(np.int32))
    for name, values in nodes.items():
        items = pyarrow.array(values, schema.field(name).type.value_type)
        columns[name] = pyarrow.ListArray.from_arrays(offsets, items)
    vectors = pyarrow.array(np.asarray(index.get_vectors(numbers), np.float32).ravel())
    columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(vectors, index.dimensions)
    return pyarrow.table(columns, schema)
