"""Work done by processes of this machine."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import LimitReached
from eqkin.executors import open_executor
from eqkin.index import VectorIndex, update_index
from eqkin.index.embedding import Embedding, EmbedTask


def test_two_processes_embed_as_one_does(atlas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqkin.executors.processes._WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("eqkin.index.updating._STEP_TREES", 40)
    encoder = Encoder.load()
    vectors = []
    for jobs in (1, 2):
        copy = shutil.copytree(atlas, tmp_path / str(jobs))
        with Library.open(copy) as library, open_executor(jobs=jobs) as workers:
            assert update_index(library, encoder, workers=workers).embedded > 150
            assert workers.tally.done >= 4
            index = VectorIndex.open(library, encoder.digest)
            vectors.append(index.get_vectors(index.trees))
    assert np.array_equal(vectors[0], vectors[1])


def test_trees_nobody_can_embed_are_an_error_that_names_them() -> None:
    encoder = Encoder.load()
    task = EmbedTask(np.array([3, 7]), encoder.parse_formulas(["a=b", "x^2"]))
    with pytest.raises(LimitReached, match="trees 3 to 7 could not be embedded .*`eqkin index` goes on"):
        list(Embedding(encoder).given_up(task, "crash", "it died"))
