"""Training in several processes gives the result of one, and survives the death of a process."""

# ruff: noqa: E402
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")
if not torch.distributed.is_available():
    pytest.skip("this torch was built without torch.distributed", allow_module_level=True)
if sys.platform == "win32":
    pytest.skip("torchrun's processes meet on Linux and macOS alone", allow_module_level=True)

from eqkin.cli import app
from eqkin.encoder.model import Model
from eqkin.errors import BadInput, Unreachable
from eqkin.learning import sampling
from eqkin.learning.checkpoint import METRICS_FILE, load_checkpoint, read_metrics
from eqkin.learning.config import OptimizerConfig
from eqkin.learning.data import Corpus
from eqkin.learning.distributed import (
    SINGLE_PROCESS,
    join_process_group,
    open_fresh_store,
)
from eqkin.learning.run import MODEL_FOLDER, TrainingRun
from research.training import train_module
from tests.learning import two_processes
from tests.learning.two_processes import CPU, FAST_DIMENSIONS, KILLED_AT, LOGGING, RECIPES, RESUMED, STEPS

ROOT = Path(__file__).parents[2]
SECONDS = 150  # that a start of torchrun may take, on a slow and busy machine


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a module."""
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a process; return its output and errors."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun then ends its processes, after half a minute by force
        process.communicate(timeout=60)
        raise
    return out, err


@pytest.fixture(scope="module")
def folder(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two processes; see `two_processes`."""
    made = tmp_path_factory.mktemp("together")
    corpus.save(made / "corpus.zst")
    _, err = ended(start("tests.learning.two_processes", made))
    assert (made / "lost-0.json").is_file(), err
    return made


def kept(folder: Path, name: str) -> list[dict[str, np.ndarray]]:
    """Return the arrays that each process stored under a name."""
    return [dict(np.load(folder / f"{name}-{rank}.npz")) for rank in range(2)]


def said(folder: Path, name: str) -> list[list[str]]:
    """Return the error of each process."""
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(2)]


def test_all_reduce_and_all_gather_have_the_gradients_of_one_process(folder: Path) -> None:
    xs = [two_processes.numbers(rank) for rank in range(2)]
    everyone = torch.stack([x.view(3, 2, 4) for x in xs], dim=1).flatten(0, 2)  # group by group, rank by rank
    total = sum(x.mean(0) for x in xs)
    sum(two_processes.loss_of_sums(x, everyone, total, rank) for rank, x in enumerate(xs)).backward()
    for rank, found in enumerate(kept(folder, "sums")):
        np.testing.assert_allclose(found["everyone"], everyone.detach(), atol=1e-12)
        np.testing.assert_allclose(found["total"], total.detach(), atol=1e-12)
        np.testing.assert_allclose(found["mean"], sum(xs).detach() / 2, atol=1e-12)
        np.testing.assert_allclose(found["gradient"], xs[rank].grad, rtol=1e-10)
        assert np.array_equal(everyone.detach()[found["rows"]], xs[rank].detach())
        assert found["most"] == 1


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_train_like_one(name: str, folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PROJECTION_DIMENSIONS", FAST_DIMENSIONS)
    one, two = two_processes.steps(corpus, RECIPES[name]), kept(folder, name)
    assert len(one["losses"]) == STEPS
    for found in two:
        assert found.keys() == one.keys()
        for key, expected in one.items():
            if key.startswith("adam."):  # takes the same steps for gradients twice as large, but its averages show it
                scale = abs(expected).max() or 1
                np.testing.assert_allclose(found[key] / scale, expected / scale, atol=1e-3, err_msg=key)
            else:
                np.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-5, err_msg=key)
    for key, value in two[0].items():
        assert np.array_equal(value, two[1][key]), key  # or they would drift apart


def test_resumed_run_gives_the_network_of_one_without_a_break(folder: Path) -> None:
    assert Model.load(folder / "resumed" / MODEL_FOLDER).digest == Model.load(folder / "whole" / MODEL_FOLDER).digest


def test_dead_process_is_noticed_and_the_last_checkpoint_stays(folder: Path) -> None:
    kind, message = json.loads((folder / "lost-0.json").read_text())
    assert kind == Unreachable.__name__ and "--resume" in message
    saved = load_checkpoint(folder / "killed")
    assert saved is not None and saved.facts["step"] == KILLED_AT


def test_run_of_two_processes_is_resumed_by_one(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder / "killed", run)
    assert TrainingRun(corpus, RESUMED, run, "cpu", logging=LOGGING).train(resume=True).finished
    one, two = Model.load(run / MODEL_FOLDER), Model.load(folder / "whole" / MODEL_FOLDER)
    for name, weight in two.weights.items():
        np.testing.assert_allclose(one.weights[name], weight, rtol=1e-5, atol=1e-5, err_msg=name)
    curves = [read_metrics(where / METRICS_FILE) for where in (run, folder / "whole")]
    steps = [[(record["step"], record.get("triples")) for record in curve] for curve in curves]
    assert steps[0] == steps[1]  # written once, by the first process
    losses = [[record["loss"] for record in curve if "loss" in record] for curve in curves]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_fresh_store_ignores_entries_of_dead_processes() -> None:
    store = torch.distributed.HashStore()
    for other in (1, 2):  # of a start that failed
        store.set(f"eqkin/token-{other}", "dead")
    names: set[bytes] = set()
    for start in range(2):
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda rank: open_fresh_store(store, rank, 3, timedelta(seconds=30)), (0, 1, 2)))
        assert not parts[1].check(["key"])
        parts[0].set("key", f"of start {start}")
        names.update(part.get("key") for part in parts)
    assert names == {b"of start 0", b"of start 1"}


def test_errors_of_the_first_process_are_raised_in_all(folder: Path) -> None:
    for first, second in (said(folder, name) for name in ("odd", "there", "different")):
        assert first == second
    assert said(folder, "odd")[0] == [
        "BadInput",
        "7 triplets per step cannot be divided among 2 processes: try --batch 6",
    ]
    assert f"contains a run at step {STEPS}" in said(folder, "there")[0][1]
    assert "different equations" in said(folder, "different")[0][1]
    for kind, message in said(folder, "nan"):  # it was stopped at step 5, when the second process was asked to
        assert kind == "TrainingFailed" and "at step 5" in message and "nan" in message
    assert "has a checkpoint of step" in said(folder, "nan")[0][1]  # only the first has a folder to look into


def test_sigterm_to_torchrun_saves_the_run(folder: Path, tmp_path: Path) -> None:
    settings = "--batch 2 --triplets 20000 --set width=4 --set layers=1 --set normalised= --set masking=0".split()
    run, command = tmp_path / "run", ["train", folder / "corpus.zst", "--recipe", "paper", "--device", "cpu"]
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "eqkin")
    process = start(*torchrun, *command, "-o", run, *settings, "--set", "held_out=0.25")
    assert process.stderr is not None
    while "triplets:" not in (line := process.stderr.readline()):
        assert line, "it ended"
    process.send_signal(signal.SIGTERM)
    out, err = ended(process)
    saved = load_checkpoint(run)
    assert saved is not None and 0 < saved.facts["step"] < 10_000, err
    assert out.count("stopped at step") == 1 and "torchrun ... eqkin train --resume" in out


def test_process_group_is_single_without_torchrun() -> None:
    with join_process_group(CPU) as group:
        assert group == SINGLE_PROCESS
        x = torch.ones(3)
        assert group.all_reduce(x) is x and group.all_gather(x) is x and group.all_reduce_mean(x) is x
        assert group.check_any(True) and not group.check_any(False) and group.find_max(7) == 7
        assert group.broadcast(lambda: b"sent") == b"sent"
        group.all_reduce_([x])
        group.check_same("recipes", "mine")
    assert not torch.distributed.is_initialized()


def test_single_process_training_is_rejected_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, RANK=0)
    module = torch.nn.Linear(1, 1)
    with pytest.raises(BadInput, match="without torchrun"):
        train_module(module, lambda step: module.weight.sum(), OptimizerConfig(1))
    refused = CliRunner().invoke(app, ["finetune"])
    assert isinstance(refused.exception, BadInput) and "without torchrun" in str(refused.exception)


def test_failed_rendezvous_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, RANK=1)  # the first one is not there
    with pytest.raises(Unreachable, match=r"2 processes .* did not meet at 127\.0\.0\.1:1 "):
        with join_process_group(CPU, timeout=timedelta(seconds=1)):
            pass
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(BadInput, match="torchrun sets"), join_process_group(CPU):
        pass


def started(monkeypatch: pytest.MonkeyPatch, **place: int) -> None:
    """Set the variables that torchrun sets for one of two processes."""
    for name, value in {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1, **place}.items():
        monkeypatch.setenv(name, str(value))
