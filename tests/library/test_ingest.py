"""Tasks of an ingest, as workers get them."""

import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.executor import LocalExecutor
from eqkin.formulas.engine import parse_operators
from eqkin.index.features import FeatureExtractor, TreeTask
from eqkin.library.ingest import PaperTask, parse_task
from eqkin.library.parsing import parse_paper
from eqkin.limits import LIMITS
from eqkin.sources import rest
from eqkin.sources.paper import Paper, make_failed_item


def test_worker_with_another_parser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this machine eqkin 9.9: install the same eqkin"):
        parse_task("eqkin 9.9", PaperTask(make_failed_item("a", "a", BadInput("unread")), "", "a"))


def test_embedding_is_sent_as_its_model_and_made_ready_once() -> None:
    encoder = Encoder.load()
    forest = encoder.parse_formulas(["a=b", "x^2"])
    task = TreeTask(np.array([3, 7]), forest, parse_operators(forest))
    sent = pickle.dumps(FeatureExtractor(encoder))
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    found, expected = first(task), FeatureExtractor(encoder)(task)
    assert (found.keys.tolist(), found.vectors.tolist()) == ([3, 7], expected.vectors.tolist())


class _RemoteExecutor(LocalExecutor):
    """Replaces a cluster: calls `before` when it has all tasks."""

    is_remote = True

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._before = before

    def map(self, function: Any, tasks: Iterable[Any], *, on_failure: Any) -> Iterator[Any]:
        sent = pickle.loads(pickle.dumps(list(tasks)))
        self._before()
        return super().map(function, sent, on_failure=on_failure)


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
    assert (report.papers, report.failed) == (4, {})


def test_unexpected_error_of_a_source_that_only_this_machine_can_reach_fails_its_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "here" / "oddly"
    package.mkdir(parents=True)
    for number in range(3):
        (package / f"m{number}.py").write_text(f'"""Law {number}.\n\n.. math:: x = {number}\n"""\n')
    monkeypatch.syspath_prepend(str(package.parent))
    read = rest.read_module

    def fail_once(raw: bytes, key: str, *others: Any, **named: Any) -> Paper:
        if key.endswith("m1"):
            raise ZeroDivisionError("odd")
        return read(raw, key, *others, **named)

    monkeypatch.setattr(rest, "read_module", fail_once)
    with Library.open(tmp_path / "library", create=True) as library:
        report = library.add("python:oddly", executor=_RemoteExecutor())
    assert (report.papers, report.failed) == (2, {"unreadable": 1})
    assert "ZeroDivisionError('odd')" in report.problems[0]


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
