"""Tasks of an ingest, as workers get them."""

import pickle
from functools import partial
from pathlib import Path

import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.executor import WorkerEnvironmentError
from eqkin.index.embedding import EmbedFunction, EmbedTask
from eqkin.library.ingest import ShardTask, SkippedFiles, SourceError, describe_parser, fail_task, parse_task
from eqkin.sources import Shard, open_source_shards
from eqkin.sources.metadata import MetadataSnapshot
from tests.backends.ray.conftest import write_shard

parse = partial(parse_task, describe_parser())


def _make_task(path: Path, **options: object) -> ShardTask:
    return ShardTask(Shard(path, **options), "source")


@pytest.mark.parametrize("in_folder", [False, True])
def test_damaged_shard_gives_the_papers_before_the_damage(tmp_path: Path, in_folder: bool) -> None:
    task = _make_task(write_shard(tmp_path / "in" / "a.tar", range(5), whole=3), in_folder=in_folder)
    events = parse(task)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["ParsedPaper"] * 3 + (
        ["ParsedPaper", "SkippedFiles"] if in_folder else ["SkippedFiles", "SourceError"]
    )
    assert [event.failure for event in events[:4] if hasattr(event, "failure")] == [""] * 3 + ["unreadable"] * in_folder


def test_papers_that_the_library_has_are_not_parsed_again(tmp_path: Path) -> None:
    task = _make_task(write_shard(tmp_path / "in" / "a.tar", range(3)))
    *first, skipped = parse(task)
    assert skipped == SkippedFiles({"PDF only": 1})
    known = {parsed.key: parsed.digest for parsed in first[:2]}
    *again, _ = parse(ShardTask(task.shard, "source", known))
    assert [parsed.unchanged for parsed in again] == [True, True, False]


def test_shard_that_a_worker_does_not_see_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    task = _make_task(tmp_path / "nowhere" / "a.tar")
    with pytest.raises(WorkerEnvironmentError, match="No such file"):
        parse(task)
    (error,) = fail_task(task, "crash", "it died")
    assert isinstance(error, SourceError)
    assert "a.tar: was not read: it died; run the command again" in error.message


def test_worker_with_another_parser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this machine eqkin 9.9: install the same eqkin"):
        parse_task("eqkin 9.9", [])


def test_shards_of_a_folder_are_found_unopened(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        write_shard(tmp_path / "in" / name, range(2))
    (tmp_path / "in" / "note.md").write_text("$$a=b$$")
    parts = list(open_source_shards(str(tmp_path / "in")))
    assert [part.path.name for part in parts if isinstance(part, Shard)] == ["a.tar", "b.tar"]
    assert len(parts) == 3


def test_metadata_table_is_made_again_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta.jsonl").write_text('{"id": "1701.00001", "title": "Known"}\n')
    snapshot = MetadataSnapshot(tmp_path / "meta.jsonl", folder=tmp_path / "here")
    sent = pickle.dumps(_make_task(write_shard(tmp_path / "in" / "a.tar", range(1, 2)), look_up=snapshot.get))
    for table in (tmp_path / "here").iterdir():
        table.unlink()
    monkeypatch.setenv("EQKIN_CACHE", str(tmp_path / "there"))
    parsed, _ = parse(pickle.loads(sent))
    assert parsed.title == "Known"


def test_embedding_is_sent_as_its_model_and_made_ready_once() -> None:
    encoder = Encoder.load()
    forest = encoder.parse_formulas(["a=b", "x^2"])
    sent = pickle.dumps(EmbedFunction(encoder))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    numbers, vectors = first(EmbedTask([3, 7], forest))
    _, expected = EmbedFunction(encoder)(EmbedTask([3, 7], forest))
    assert (numbers, vectors.tolist()) == ([3, 7], expected.tolist())
