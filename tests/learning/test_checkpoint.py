"""Checkpoints survive kills, full disks, damage and concurrent runs."""

import errno
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from eqkin.errors import CorruptData, StorageFailed
from eqkin.learning.checkpoint import CHECKPOINT_FILE, load_checkpoint, save_checkpoint

_KINDS = st.sampled_from(["?", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8"])
_ARRAYS = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in ("__metadata__", "facts")),
    _KINDS.flatmap(lambda kind: npst.arrays(kind, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))),
    max_size=4,
)


def _state(step: int, size: int = 50) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Return a state whose every part contains its step."""
    arrays = {
        "weight": np.full((size, 7), step, np.float32),
        "moment": np.full(size, step, np.float64),
        "count": np.array(step),
    }
    return arrays, {"step": step, "again": [step]}


def _saved_step(folder: Path) -> int | None:
    """Return the step of the state in the folder, after checking that it is complete."""
    checkpoint = load_checkpoint(folder)
    if checkpoint is None:
        return None
    step = checkpoint.facts["step"]
    assert all((array == step).all() for array in checkpoint.arrays.values())
    assert checkpoint.facts == {"step": step, "again": [step]}
    return step


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _spawn(script: str, *arguments: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


@given(_ARRAYS)
def test_checkpoint_restores_bits_dtypes_and_shapes(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    save_checkpoint(folder, arrays, {"step": 0})
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None
    assert checkpoint.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        loaded = checkpoint.arrays[name]
        assert (loaded.dtype, loaded.shape, loaded.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_load_returns_none_without_a_checkpoint(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "missing") is None


def test_save_deletes_only_what_killed_runs_left(tmp_path: Path) -> None:
    for name in ("checkpoint-best.safetensors", "metrics.jsonl"):
        (tmp_path / name).write_text("not ours")
    (tmp_path / f".{CHECKPOINT_FILE}.77.tmp").write_text("of a run that was killed")
    for step in (1, 2, 2, 10):
        save_checkpoint(tmp_path, *_state(step))
        assert _saved_step(tmp_path) == step
    assert _names(tmp_path) == ["checkpoint-best.safetensors", CHECKPOINT_FILE, "metrics.jsonl"]


# Saves a step into one copy of a folder after the other. Each save happens in a process of its own, which kills itself
# at the first, second, third ... moment at which something reaches the disk, until one has no such moment left.
_DOOMED = """
import itertools, os, shutil, signal, sys
from pathlib import Path
import numpy as np
from eqkin.learning.checkpoint import save_checkpoint
before, copies, step = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def moment():
    global countdown
    countdown -= 1
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def doomed(function):
    def call(*arguments, **options):
        moment()
        result = function(*arguments, **options)
        moment()
        return result
    return call

class Torn:
    def __init__(self, file): self.file = file
    def __enter__(self): return self
    def __exit__(self, *rest): self.file.close()
    def fileno(self): return self.file.fileno()
    def flush(self): self.file.flush()
    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half]); self.file.flush(); moment()
        self.file.write(content[half:])

opened = Path.open
Path.open = lambda self, mode="r", *rest: Torn(opened(self, mode)) if mode == "wb" else opened(self, mode, *rest)
os.fsync, Path.replace, Path.unlink = doomed(os.fsync), doomed(Path.replace), doomed(Path.unlink)
for countdown in itertools.count(1):
    folder = shutil.copytree(before, copies / str(countdown))
    child = os.fork()
    if not child:
        save_checkpoint(folder, {"weight": np.full((50, 7), step)}, {"step": step, "again": [step]})
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        sys.exit(status)
"""


@pytest.mark.parametrize(("old", "new"), [(None, 1), (1, 2), (2, 2)])
def test_save_killed_at_any_moment_leaves_the_old_or_the_new_state(tmp_path: Path, old: int | None, new: int) -> None:
    before, copies = tmp_path / "before", tmp_path / "copies"
    before.mkdir()
    copies.mkdir()
    if old is not None:
        save_checkpoint(before, *_state(old))
    (before / f".{CHECKPOINT_FILE}.5.tmp").write_text("left by a killed run")
    process = _spawn(_DOOMED, before, copies, new)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    folders = sorted(copies.iterdir(), key=lambda folder: int(folder.name))
    assert len(folders) > 5
    found = []
    for folder in folders:
        found.append(_saved_step(folder))
        save_checkpoint(folder, *_state(new + 1))
        assert _saved_step(folder) == new + 1
        assert _names(folder) == [CHECKPOINT_FILE]
    if old != new:
        assert found == sorted(found, key=[old, new].index)  # first the old one, from some moment on the new one
        assert set(found) == {old, new}


def test_load_detects_any_flipped_byte(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, *_state(1, 4))
    path = tmp_path / CHECKPOINT_FILE
    content, harmless = path.read_bytes(), 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        # One bit of the header of a zstd frame means nothing.
        try:
            assert _saved_step(tmp_path) == 1
            harmless += 1
        except CorruptData as error:
            assert path.name in str(error)
    assert harmless <= 2


def test_load_reports_truncated_and_foreign_files(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {}, {"step": 1, "best": math.nan})
    path = tmp_path / CHECKPOINT_FILE
    content = path.read_bytes()
    damaged = [content[:length] for length in (0, 1, 8, len(content) // 2, len(content) - 1)]
    for other in (*damaged, b"null", b"[" * 100_000, zstandard.compress(b"null")):
        path.write_bytes(other)
        with pytest.raises(CorruptData, match=path.name):
            load_checkpoint(tmp_path)


def test_full_disk_is_a_clear_error_and_keeps_the_old_state(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, *_state(1))
    script = "import resource, signal, sys\nfrom pathlib import Path\nimport numpy as np\n"
    script += "from eqkin.learning.checkpoint import save_checkpoint\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    script += "resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
    script += "save_checkpoint(Path(sys.argv[1]), {'weight': np.random.rand(9_000)}, {'step': 2})\n"
    process = _spawn(script, tmp_path)
    _, errors = process.communicate(timeout=60)
    assert "StorageFailed: " in errors
    assert f"{CHECKPOINT_FILE}: could not be written" in errors
    assert _saved_step(tmp_path) == 1
    assert _names(tmp_path) == [CHECKPOINT_FILE]


@pytest.mark.parametrize("call", [1, 2])
def test_failed_fsync_is_a_clear_error_and_keeps_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    save_checkpoint(tmp_path, *_state(1))
    fsync, calls = os.fsync, iter(range(1, 100))

    def fail(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr("eqkin.files.os.fsync", fail)
    with pytest.raises(StorageFailed, match="Input/output error"):
        save_checkpoint(tmp_path, *_state(2))
    assert _saved_step(tmp_path) == call  # the second comes after the rename
