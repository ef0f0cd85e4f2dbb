"""What a Ray cluster reads and embeds is what one process reads and embeds."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.cluster.ray import RayExecutor
from eqkin.encoder.encoder import Encoder
from eqkin.index.manifest import IndexSettings
from eqkin.index.reader import VectorIndex
from eqkin.index.update import update_index
from eqkin.library.ingest import AddReport
from tests.cluster.ray.conftest import write_shard
from tests.library.conftest import write_article


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """A folder of shards and papers, a record file, a damaged shard, and a shard that is there twice."""
    folder = tmp_path / "in"
    write_shard(folder / "a.tar", range(1, 5))
    write_shard(folder / "b.tar", range(5, 9), whole=2)
    for number in (1, 2, 3):
        write_article(folder, number)
    damaged = write_shard(tmp_path / "damaged.tar", range(9, 13), whole=1)
    whole = write_shard(tmp_path / "whole.tar", range(13, 17))
    shutil.copy(whole, tmp_path / "again.tar")
    lines = [{"doc_id": str(n), "latex": rf"\[ x_{n} = {n} \]"} for n in range(5)] + [{"doc_id": "bad"}]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [folder, damaged, whole, tmp_path / "again.tar", tmp_path / "records.jsonl"]


def _content(library: Library) -> dict[str, list[tuple[object, ...]]]:
    tables = ("papers", "sections", "equations", "citations")
    rows = {table: list(map(tuple, library.connection.execute(f"SELECT * FROM {table}"))) for table in tables}
    forests = [forest.canonicalise() for _, forest in library.iter_forests()]
    return rows | {"trees": [(f.tags, f.texts, f.tag.tolist(), f.n_children.tolist()) for f in forests]}


def _told(report: AddReport) -> tuple[object, ...]:
    return report.papers, report.unchanged, report.failed, report.equations, report.skipped, sorted(report.problems)


def test_ray_makes_the_same_library_as_one_process(sources: list[Path], tmp_path: Path, executor: RayExecutor) -> None:
    with Library.open(tmp_path / "one", create=True) as one, Library.open(tmp_path / "many", create=True) as many:
        expected = one.add(*sources)
        report = many.add(*sources, executor=executor)
        assert _told(report) == _told(expected)
        assert (report.papers, report.unchanged) == (4 + 2 + 3 + 1 + 4 + 5, 4)
        assert report.failed == {"unreadable": 2, "damaged source": 1}
        assert report.skipped == {"PDF only": 5}
        assert _content(many) == _content(one)
        again = many.add(*sources, executor=executor)
        assert (again.papers, again.unchanged) == (0, report.papers + report.unchanged)
        assert executor.progress.done == 7
    verdicts = [verify(tmp_path / name) for name in ("one", "many")]
    assert not verdicts[0].problems + verdicts[1].problems + verdicts[1].notes
    assert verdicts[0].content == verdicts[1].content


def test_ray_computes_the_same_vectors_as_one_process(
    unindexed_library: Path, tmp_path: Path, executor: RayExecutor
) -> None:
    encoder = Encoder.load()
    vectors = []
    for name, who in (("one", None), ("many", executor)):
        with Library.open(shutil.copytree(unindexed_library, tmp_path / name)) as library:
            report = update_index(library, encoder, executor=who, settings=IndexSettings(step_trees=40))
            index = VectorIndex.open(library, encoder.digest)
            assert not index.missing
            vectors.append(index.get_vectors(index.trees))
    assert report.embedded == len(vectors[0]) == len(vectors[1])
    assert executor.progress.done >= 5
    assert np.array_equal(vectors[0], vectors[1])
