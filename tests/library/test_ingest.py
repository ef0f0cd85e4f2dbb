"""Tasks of an ingest, as workers get them."""

import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.executor import ExecutorProgress, LocalExecutor, Outcome, WorkerEnvironmentError
from eqkin.index.embedding import EmbedFunction, TreeTask
from eqkin.library.ingest import ShardTask, SkippedFiles, SourceError, describe_parser, fail_task, parse_task
from eqkin.library.parsing import parse_paper
from eqkin.limits import LIMITS
from eqkin.sources import docstrings
from eqkin.sources.eprints import Shard
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.paper import Paper
from eqkin.sources.readers import open_source_shards
from tests.cluster.ray.conftest import write_shard
from tests.library.conftest import write_article

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


def _fail_to_look_up(key: str) -> None:
    raise ZeroDivisionError(key)


def test_shard_with_an_unexpected_error_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    task = _make_task(write_shard(tmp_path / "in" / "a.tar", range(3)), look_up=_fail_to_look_up, in_folder=True)
    error = parse(task)[-1]
    assert isinstance(error, SourceError)
    assert (error.reason, "a.tar: ZeroDivisionError" in error.message) == ("internal error", True)


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
    numbers, vectors = first(TreeTask([3, 7], forest))
    _, expected = EmbedFunction(encoder)(TreeTask([3, 7], forest))
    assert (numbers, vectors.tolist()) == ([3, 7], expected.tolist())


class _RemoteExecutor(LocalExecutor):
    """Replaces a cluster: takes batches, calls `before` when it has all tasks; with `fails`, the first run fails."""

    is_remote = True
    batch_size = 3

    def __init__(self, before: Callable[[], object] = lambda: None, *, fails: bool = False) -> None:
        super().__init__()
        self._before, self._fails = before, fails
        self.sizes: list[list[int]] = []  # papers per task, for every run

    def iter_outcomes(
        self, function: Callable[[Any], Any], tasks: Iterator[Any], progress: ExecutorProgress
    ) -> Iterator[Outcome[Any]]:
        sent = pickle.loads(pickle.dumps(list(tasks)))
        self._before()
        self.sizes.append([len(task) for task in sent])
        if self._fails:
            self._fails = False
            return (Outcome(task, failure=("crash", "it died")) for task in sent)
        return super().iter_outcomes(function, iter(sent), progress)


def test_sources_that_only_this_machine_can_reach_are_loaded_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "here" / "mathy"
    package.mkdir(parents=True)
    for number in range(4):
        (package / f"m{number}.py").write_text(f'"""Law {number}.\n\n.. math:: x = {number}\n"""\n')
    monkeypatch.syspath_prepend(str(package.parent))
    executor = _RemoteExecutor(lambda: shutil.rmtree(package))
    with Library.open(tmp_path / "library", create=True) as library:
        report = library.add("python:mathy", executor=executor)
    assert (report.papers, report.failed, executor.sizes) == (4, {}, [[3, 1]])


def test_unexpected_error_of_a_source_that_only_this_machine_can_reach_fails_its_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "here" / "oddly"
    package.mkdir(parents=True)
    for number in range(3):
        (package / f"m{number}.py").write_text(f'"""Law {number}.\n\n.. math:: x = {number}\n"""\n')
    monkeypatch.syspath_prepend(str(package.parent))
    read = docstrings.read_module

    def fail_once(raw: bytes, key: str, *others: Any) -> Paper:
        if key.endswith("m1"):
            raise ZeroDivisionError("odd")
        return read(raw, key, *others)

    monkeypatch.setattr(docstrings, "read_module", fail_once)
    with Library.open(tmp_path / "library", create=True) as library:
        report = library.add("python:oddly", executor=_RemoteExecutor())
    assert (report.papers, report.failed) == (2, {"unreadable": 1})
    assert "ZeroDivisionError('odd')" in report.problems[0]


def test_failed_batches_are_split_into_papers(tmp_path: Path) -> None:
    for number in range(4):
        write_article(tmp_path / "papers", number)
    executor = _RemoteExecutor(fails=True)
    with Library.open(tmp_path / "many", create=True) as many, Library.open(tmp_path / "one", create=True) as one:
        report = many.add(tmp_path / "papers", executor=executor)
        one.add(tmp_path / "papers")
    assert executor.sizes == [[3, 1], [1, 1, 1], [1]]
    assert (report.papers, executor.progress.retried) == (4, 2)
    assert verify(tmp_path / "many").content == verify(tmp_path / "one").content


def test_paper_out_of_time_is_kept_and_its_other_formulas_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqkin.library.parsing.LIMITS", replace(LIMITS, paper_seconds=-1.0))
    parsed = parse_paper(Paper("file:a.tex", r"\section{One}\[a=b\]\[c=d\]"), "digest")
    assert (parsed.failure, [section[1] for section in parsed.sections]) == ("", ["", "One"])
    assert {(e.status, e.reason) for e in parsed.equations} == {("failed", "limit: time for the paper")}


def test_annotation_with_a_reference_of_thousands_of_digits_costs_nothing() -> None:
    annotation = f'<annotation encoding="application/x-tex">&#{"9" * 5_000};</annotation>'
    mathml = f"<math><semantics><mi>x</mi>{annotation}</semantics></math>"
    text = rf"\begin{{eqkinmathml}}{mathml}\end{{eqkinmathml}}\[c=d\]"
    parsed = parse_paper(Paper("file:a.tex", text), "digest")
    assert parsed.failure == ""
    assert [e.status for e in parsed.equations][-1] == "converted"
