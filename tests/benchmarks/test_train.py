"""`python -m benchmarks train`: what it prints, and that the peer does the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from benchmarks.__main__ import app  # noqa: E402
from benchmarks.train import PAPER_EQUATIONS, GeometricNetwork, Memory  # noqa: E402
from eqkin.api import Library  # noqa: E402
from eqkin.encoder.architecture import FEATURES, Architecture  # noqa: E402
from eqkin.encoder.torch_network import SumNetwork  # noqa: E402
from eqkin.encoder.tree_ops import TreeBatch  # noqa: E402
from eqkin.training.corpus import Corpus  # noqa: E402

runner = CliRunner()
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing torch-geometric warns of itself


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    with Library.open(folder / "library") as library:
        library.add("atlas:")
        Corpus.from_library(library).save(folder / "corpus.zst")
    return folder / "corpus.zst"


def test_speeds_and_memory_are_told(corpus: Path) -> None:
    options = ["--batch", "2", "--seconds", "0.1", "--device", "cpu", "--json"]
    result = runner.invoke(app, ["train", str(corpus), *options])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    (speed,) = told["batches"]
    assert speed["batch"] == 2 and speed["ours"] > 0 and speed["limit"] > 0
    assert told["memory"]["bytes_an_equation"] > 8 * told["memory"]["nodes_an_equation"]


def test_the_paper_s_equations_need_wider_labels() -> None:
    figures = Memory(equations=10, nodes_an_equation=50.0, bytes_a_label=2, bytes_an_equation=500.0).summary()
    assert figures["projected_bytes"] == 600 * PAPER_EQUATIONS


def test_the_peer_computes_the_same_network(corpus: Path) -> None:
    pytest.importorskip("torch_geometric", reason="the peer is not installed")
    forest = Corpus.load(corpus).forest.select(range(20))
    torch.manual_seed(0)
    network = SumNetwork(Architecture(width=32))
    peer = GeometricNetwork(network)
    features, trees = torch.rand(len(forest.tag), FEATURES), TreeBatch.from_forest(forest)
    assert torch.allclose(network(features, trees), peer(features, trees), atol=1e-4)
