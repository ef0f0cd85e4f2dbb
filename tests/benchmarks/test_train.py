"""`python -m benchmarks train`: its report, and that the peer computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from benchmarks.train import GeometricNetwork  # noqa: E402
from eqkin.api import Library  # noqa: E402
from eqkin.encoder.model import FEATURES, Architecture  # noqa: E402
from eqkin.learning.data import Corpus  # noqa: E402
from eqkin.learning.torch_network import SumNetwork  # noqa: E402
from tests.benchmarks.running import run_benchmark  # noqa: E402
from tests.encoder.batches import batch_trees  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing torch-geometric warns of itself


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, unindexed_library: Path) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    with Library.open(unindexed_library) as library:
        Corpus.from_library(library).save(folder / "corpus.zst")
    return folder / "corpus.zst"


def test_train_reports_speeds_and_memory(corpus: Path) -> None:
    report = run_benchmark("train", corpus, "--batch", 2, "--seconds", 0.1, "--device", "cpu")
    tables, facts = report["tables"], report["facts"]
    for recipe in ("paper", "eqkin"):
        rows = {row["name"]: row for row in tables[f"{recipe}, batches of 2"]}
        assert rows["eqkin"]["triplets_per_second"] > 0 < rows["matrix products alone"]["triplets_per_second"]
    assert all(row["bytes_per_equation"] > 8 * facts["nodes_per_equation"] for row in tables["Data on the device"])


def test_torch_geometric_computes_the_same_network(corpus: Path) -> None:
    pytest.importorskip("torch_geometric", reason="the peer is not installed")
    forest = Corpus.load(corpus).forest.select(range(20))
    torch.manual_seed(0)
    network = SumNetwork(Architecture(width=32))
    peer = GeometricNetwork(network)
    features, trees = torch.rand(len(forest.tag), FEATURES), batch_trees(forest)
    assert torch.allclose(network(features, trees), peer(features, trees), atol=1e-4)
