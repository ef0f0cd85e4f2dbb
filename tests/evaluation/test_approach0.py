"""approach0 in its own process: what it finds, what it cannot read, and what happens when it fails."""

import os
import signal
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from eqkin.errors import BadInput, LimitReached
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems import approach0 as module
from eqkin.evaluation.systems.approach0 import Approach0
from tests.trees.strategies import build

pytestmark = pytest.mark.skipif(find_spec("pya0") is None, reason="pya0 has wheels for Linux on x86-64 alone")

LATEX = [
    r"a^2 + b^2 = c^2",
    r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "e^{i\\pi}\n+ 1 = 0",  # goes over two lines
    r"\frac{x}{y",
    r"x^2 + y^2 = 1",
    "[/imath]",
    "",
]


def formulas(*latex):
    """Formulas whose trees do not matter."""
    return FormulaSet(build([("mi", "", "x", [])] * len(latex)), list(latex))


@pytest.fixture(scope="module")
def ranked():
    system = Approach0()
    queries = formulas(LATEX[0], LATEX[2], r"P(a|b) = \frac{P(b|a) P(a)}{P(b)}", r"\frac{x}{")
    return system, system.rank(queries, formulas(*LATEX))


def test_approach0_ranks_identical_formula_first(ranked):
    _, scores = ranked
    assert scores[0].argmax() == 0
    assert scores[1].argmax() == 2


def test_approach0_finds_renamed_formula_and_ranks_unrelated_last(ranked):
    _, scores = ranked
    assert scores[2].argmax() == 1
    assert scores[0, 4] > scores[0, 1]  # another sum of squares
    assert (scores[:3, [3, 5, 6]] == -1).all()


def test_approach0_counts_unreadable_formulas(ranked):
    system, scores = ranked
    assert system.refused == {"formulas": 3, "queries": 1}
    assert (scores[3] == -1).all()


def test_approach0_prints_nothing_leaves_no_index_and_finds_at_most_depth_formulas(
    capfd, tmp_path, tmp_path_factory, monkeypatch
):
    (tmp_path / "pya0.py").write_text("raise SystemExit(7)")  # nothing is imported from the current folder
    temporary = tmp_path_factory.mktemp("t")  # approach0 aborts if a path is long
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_SHARED_MEMORY", str(temporary))
    monkeypatch.setattr(module.tempfile, "tempdir", str(temporary))
    found = formulas("x+1", "x+2", r"\frac{x}{", "x+3", "x+y")
    scores = Approach0(depth=2).rank(formulas("x+1"), found)
    assert (scores > -1).sum() == 2
    assert scores[0].argmax() == 0
    assert capfd.readouterr() == ("", "")
    assert not list(temporary.iterdir())


def test_approach0_index_is_where_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SHARED_MEMORY", str(tmp_path))
    assert module._find_roomy_folder(10) == str(tmp_path)
    assert module._find_roomy_folder(10**12) is None
    monkeypatch.setattr(module, "_SHARED_MEMORY", str(tmp_path / "nowhere"))
    assert module._find_roomy_folder(10) is None


def test_approach0_finds_long_query_under_its_own_name():
    """pya0 alone says it is the first formula."""
    long = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"
    assert Approach0().rank(formulas(long), formulas("a^2 + b^2 = c^2", long, "x+1"))[0].argmax() == 1


def test_approach0_without_formulas_starts_no_process():
    assert Approach0().rank(formulas("x"), formulas()).shape == (1, 0)


def test_approach0_rejects_formulas_without_latex():
    with pytest.raises(BadInput, match="trees only"):
        Approach0().rank(FormulaSet(build([("mi", "", "x", [])])), formulas("x"))


def failing(tmp_path, monkeypatch, body):
    """Put another program in the engine's place: it fails when it indexes formulas."""
    start = "import os, sys, time\nprint('indexing formulas 0 to 1', flush=True)\n"
    (tmp_path / "strange_engine.py").write_text(start + body)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(module, "_WORKER", "strange_engine")


def test_approach0_crash_is_reported_with_its_request(tmp_path, monkeypatch):
    failing(tmp_path, monkeypatch, f"os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    with pytest.raises(BadInput, match="stopped .SIGSEGV. while indexing formulas 0 to 1"):
        Approach0().rank(formulas("x"), formulas("x", "y"))


def test_approach0_timeout_is_reported(tmp_path, monkeypatch):
    failing(tmp_path, monkeypatch, "time.sleep(100)")
    monkeypatch.setattr(module, "_BASE_SECONDS", -60.0)
    with pytest.raises(LimitReached, match="took more than 1 seconds; rank fewer"):
        Approach0().rank(formulas("x"), formulas("x", "y"))


def test_approach0_error_of_worker_is_reported(tmp_path, monkeypatch):
    failing(tmp_path, monkeypatch, 'print(\'{"error": "no disk"}\', flush=True)')
    with pytest.raises(BadInput, match="failed while indexing formulas 0 to 1: no disk"):
        Approach0().rank(formulas("x"), formulas("x", "y"))


def test_approach0_scores_every_pair(ranked):
    _, scores = ranked
    assert scores.shape == (4, 7)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
