"""Embedding in worker processes gives the vectors of one process, and names what it cannot embed."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import LimitReached
from eqkin.executor import LocalExecutor
from eqkin.formulas.engine import parse_operators
from eqkin.index.features import TreeTask, fail_task
from eqkin.index.index import Index
from eqkin.index.manifest import IndexSettings
from eqkin.index.update import update_index


def test_two_processes_compute_the_same_vectors_as_one(
    unindexed_library: Path, encoder: Encoder, tmp_path: Path
) -> None:
    vectors = []
    for jobs in (1, 2):
        copy = shutil.copytree(unindexed_library, tmp_path / str(jobs))
        with Library.open(copy) as library, LocalExecutor(jobs, warm_up_seconds=0.0) as executor:
            assert (
                update_index(library, encoder, executor=executor, settings=IndexSettings(step_trees=40)).indexed > 150
            )
            index = Index.open(library, encoder.digest)
            vectors.append(index.get_vectors(index.keys))
    assert np.array_equal(vectors[0], vectors[1])


def test_trees_that_cannot_be_indexed_are_named(encoder: Encoder) -> None:
    forest = encoder.parse_formulas(["a=b", "x^2"])
    task = TreeTask(np.array([3, 7]), forest, parse_operators(forest))
    with pytest.raises(LimitReached, match="trees 3 to 7 could not be indexed .*`eqkin index` continues there"):
        fail_task(task, "crash", "it died")
