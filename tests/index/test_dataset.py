"""A library becomes Parquet files with a card, and what they hold is what the library holds."""

import re
from pathlib import Path

import numpy as np
import pytest

from eqkin import BadInput, Encoder, Library
from eqkin.index import dataset
from eqkin.index.index import Index
from tests.cli.running import eqkin

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'eqkin[dataset]'")
import pyarrow.parquet as parquet  # noqa: E402


@pytest.fixture(scope="module")
def exported(atlas_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "atlas-equations"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "ROWS_PER_FILE", 1_000)
        patch.setattr(dataset, "ROWS_PER_GROUP", 300)
        with Library.open(atlas_library) as library:
            seen: list[int] = []
            counts = library.export_dataset(folder, seen.append)
    assert seen == sorted(set(seen)) and seen[-1] == counts["equations"]
    return folder


def test_dataset_holds_equations_context_trees_and_vectors(exported: Path, atlas_library: Path, encoder: Encoder):
    table = pyarrow.concat_tables(parquet.read_table(path) for path in sorted((exported / "data").glob("equations-*")))
    rows = table.to_pylist()
    with Library.open(atlas_library) as library:
        wanted = list(library.iter_equations())
        index = Index.open(library, encoder.digest)
        np.testing.assert_array_equal([row["vector"] for row in rows], index.get_vectors(index.keys))
    assert [{key: row[key] for key in one} for row, one in zip(rows, wanted, strict=True)] == wanted
    for row in rows[::100]:
        assert len(row["tree_tags"]) == len(row["tree_texts"]) == len(row["tree_children"])
        assert sum(row["tree_children"]) == len(row["tree_tags"]) - 1  # every node but the root is a child
        assert re.findall(r"<(m\w+)", row["mathml"])[0] == "math" and row["tree_tags"][0] in row["mathml"]


def test_dataset_is_cut_into_files_and_its_card_counts_them(exported: Path):
    sizes = [parquet.read_metadata(path).num_rows for path in sorted((exported / "data").glob("equations-*"))]
    assert len(sizes) > 1 and set(sizes[:-1]) == {1_000}
    card = (exported / "README.md").read_text("utf-8")
    assert card.startswith("---\nlicense: other\n") and "| equations | " + f"{sum(sizes):,}" + " |" in card
    columns = set(re.findall(r"`(\w+)`", card.partition("## Equations")[2].partition("`data/")[0]))
    assert set(parquet.read_schema(exported / "data" / "equations-00000.parquet").names) <= columns
    assert parquet.read_schema(exported / "data" / "citations.parquet").names == ["paper", "cites"]


def test_dataset_is_not_written_over_other_files(exported: Path, atlas_library: Path):
    with Library.open(atlas_library) as library, pytest.raises(BadInput, match="not empty"):
        library.export_dataset(exported)


def test_command_exports_an_empty_library(tmp_path: Path):
    Library.open(tmp_path / "library", create=True).close()
    ended = eqkin("export", "--library", tmp_path / "library", "--dataset", tmp_path / "data")
    assert ended.code == 0 and "0 equations, 0 papers, 0 citations" in ended.out
    assert parquet.read_table(tmp_path / "data" / "data" / "equations-00000.parquet").num_rows == 0
