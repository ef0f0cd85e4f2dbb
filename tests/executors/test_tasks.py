"""What a worker does with a task, whoever the worker is."""

import pickle
from pathlib import Path

import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.executors import WorkerEnvironmentError
from eqkin.index.embedding import Embedding, EmbedTask
from eqkin.library.tasks import Reading, ShardTask, SkippedFiles, SourceError
from eqkin.sources import Shard, open_source_shards
from eqkin.sources.metadata import MetadataSnapshot
from tests.executors.conftest import write_shard


def _shard(path: Path, **options: object) -> ShardTask:
    return ShardTask(Shard(path, **options), "source")


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_shard_part_by_part_is_the_whole_shard(tmp_path: Path, in_folder: bool) -> None:
    task = _shard(write_shard(tmp_path / "in" / "a.tar", range(5), whole=3), in_folder=in_folder)
    whole = list(Reading().do(task))
    parts = [event for part in Reading().parts(task) for event in Reading().do(part)]
    for event in [*whole, *parts]:
        event.__dict__.pop("peak_bytes", None)
    assert parts == whole
    kinds = [type(event).__name__ for event in whole]
    assert kinds == ["Extract"] * 3 + (["Extract", "Skipped"] if in_folder else ["Skipped", "Damage"])


def test_papers_that_the_library_has_are_not_read_again(tmp_path: Path) -> None:
    task = _shard(write_shard(tmp_path / "in" / "a.tar", range(3)))
    *first, skipped = Reading().do(task)
    assert skipped == SkippedFiles({"PDF only": 1})
    known = {extract.key: extract.digest for extract in first[:2]}
    *again, _ = Reading().do(ShardTask(task.shard, "source", known))
    assert [extract.unchanged for extract in again] == [True, True, False]


def test_a_shard_that_a_worker_does_not_see_is_left_to_another(tmp_path: Path) -> None:
    task = _shard(tmp_path / "nowhere" / "a.tar")
    with pytest.raises(WorkerEnvironmentError, match="shared file system"):
        list(Reading().do(task, last=False))
    (damage,) = Reading().do(task, last=True)
    assert isinstance(damage, SourceError)
    assert damage.reason == "unreadable source"
    (given_up,) = Reading().given_up(task, "crash", "it died")
    assert "a.tar: was not read: it died; run the command again" in given_up.message


def test_shards_of_a_folder_are_found_unopened(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        write_shard(tmp_path / "in" / name, range(2))
    (tmp_path / "in" / "note.md").write_text("$$a=b$$")
    parts = list(open_source_shards(str(tmp_path / "in")))
    assert [part.path.name for part in parts if isinstance(part, Shard)] == ["a.tar", "b.tar"]
    assert len(parts) == 3


def test_metadata_are_looked_up_where_the_table_was_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta.jsonl").write_text('{"id": "1701.00001", "title": "Known"}\n')
    snapshot = MetadataSnapshot(tmp_path / "meta.jsonl", folder=tmp_path / "here")
    sent = pickle.dumps(_shard(write_shard(tmp_path / "in" / "a.tar", range(1, 2)), look_up=snapshot.get))
    for table in (tmp_path / "here").iterdir():
        table.unlink()
    monkeypatch.setenv("EQKIN_CACHE", str(tmp_path / "there"))
    extract, _ = Reading().do(pickle.loads(sent))
    assert extract.title == "Known"


def test_embedding_is_sent_as_its_model_and_made_ready_once() -> None:
    encoder = Encoder.load()
    forest = encoder.parse_formulas(["a=b", "x^2"])
    sent = pickle.dumps(Embedding(encoder))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    ((numbers, vectors),) = first.do(EmbedTask([3, 7], forest))
    ((_, expected),) = Embedding(encoder).do(EmbedTask([3, 7], forest))
    assert (numbers, vectors.tolist()) == ([3, 7], expected.tolist())
