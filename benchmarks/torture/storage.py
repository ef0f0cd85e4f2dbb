"""Kill, I/O errors, power loss and damage: what must survive on disk (`docs/RELIABILITY.md`).

`python -m benchmarks.torture.storage SECONDS SEED FOLDER ACTION...` runs all campaigns and writes their rows as JSON;
`faults.c` must be preloaded. Every case is a forked child: this process never starts a JavaScript engine, which does
not survive a fork. All cases use the same folder, because the keys of papers have its path.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.torture.disk import MODES, SimulatedDisk, read_log
from eqkin.api import Library, pack, unpack, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import EqkinError
from eqkin.index.manifest import LOCK_FILES, IndexManifest, IndexSettings
from eqkin.index.update import update_index
from eqkin.library import writer
from eqkin.library.judgements import Judgement, LocalJudgements

# Campaign, cases, failures, note.
Row = tuple[str, int, int, str]
# Where the case is, and a check that raises.
Case = tuple[str, Callable[[], object]]
_PAPER = (
    r"""\documentclass{article}\newcommand{\half}{\frac12}\title{On %(n)d}\begin{document}\section{Energy}
The energy of body %(n)d is \begin{equation} E = \half m v^2 + V(x_{%(n)d}) \end{equation} and
\begin{align} a_{%(n)d} &= b^2 \\ c &= \sum_i d_i \end{align}"""
    + 2_000 * "It moves. "
    + r"\end{document}"
)
_ERRNOS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES)
_CASE_SECONDS = 120
_DAMAGES = ("flip", "zero", "truncate", "append", "swap", "delete")
_HARMLESS = dict.fromkeys(("lock", *LOCK_FILES), _DAMAGES)


load_encoder = cache(Encoder.load)


def act(name: str, work: Path) -> None:
    """Change the library of a folder, in one of several ways; doing it twice is doing it once."""
    folder = work / "library"
    # Two papers, or two more.
    if name == "write":
        (work / "papers").mkdir(exist_ok=True)
        for n in range(4 if folder.exists() else 2):
            (work / "papers" / f"p{n}.tex").write_text(_PAPER % {"n": n})
    elif name == "outdate":
        with Library.open(folder) as library, library.open_writer() as opened:
            opened.set_converter(replace(library.converter, sha256="0" * 64))
    elif name == "judge":
        kept = LocalJudgements(folder)
        if len(kept.list_all()) < 2:
            kept.add(Judgement(equation="paper#1", relevant=True, latex="x", keywords=("energy",)))
    elif name == "pack":
        pack(folder, work / "packed")
    elif name == "unpack":
        if not (work / "copy").exists():
            unpack(work / "packed", work / "copy")
    else:
        with Library.open(folder, create=True) as library:
            _change(library, name, work / "papers")


def _change(library: Library, name: str, papers: Path) -> None:
    if name.startswith("add"):
        library.add(papers)
        return
    if name == "upgrade":
        library.upgrade()
    elif name == "remove":
        library.remove(str(papers / "p0.tex"))
    update_index(library, load_encoder(), settings=IndexSettings(max_small_parts=1, step_trees=4))


# states of a folder: another one, and what was done to it
_BASES = {"papers": ("", "write"), "added": ("papers", "add"), "indexed": ("added", "index", "judge")}
_BASES |= {"packed": ("indexed", "pack"), "grown": ("indexed", "write"), "outdated": ("indexed", "outdate")}
# what each action starts from
ACTIONS = {"add": "papers", "add and merge": "grown", "index": "added", "remove": "indexed", "upgrade": "outdated"}
ACTIONS |= {"judge": "indexed", "pack": "indexed", "unpack": "packed"}


class Campaigns:
    """All campaigns on tiny libraries below a new folder `root`, with `faults.c` preloaded."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.case, self.chance, self.faults = root, root / "case", random.Random(seed), ctypes.CDLL(None)
        writer.SETTINGS = replace(writer.SETTINGS, batch_papers=1)
        root.mkdir()
        # Loaded once for all children.
        load_encoder()

    def restore(self, base: str) -> None:
        """Make the folder of a case as a base is, which is made first if need be."""
        if base and not (self.root / base).exists():
            before, *actions = _BASES[base]
            self.restore(before)
            for action in actions:
                require(run_forked(partial(act, action, self.case)))
            shutil.copytree(self.case, self.root / base)
        shutil.rmtree(self.case, ignore_errors=True)
        if base:
            shutil.copytree(self.root / base, self.case)
        else:
            self.case.mkdir()

    def describe(self) -> list[Any]:
        """Return what must be the same after an action, however it came about."""
        self.require_intact()
        report, manifest = verify(self.case / "library"), IndexManifest.load(self.case / "library" / "index")
        judgements = len(LocalJudgements(self.case / "library").list_all())
        notes = [note for note in report.notes if "unused files" not in note]
        return [report.content, notes, manifest.count if manifest else None, judgements]

    def require_intact(self) -> None:
        """Raise an error if there is a library and it is damaged."""
        for folder in (self.case / "library", self.case / "copy"):
            if (folder / "library.db").exists():
                problems = verify(folder).problems
                assert not problems, problems

    def require(self, expected: list[Any], action: str = "", ended: dict[str, Any] | None = None) -> None:
        """Check the state after an interrupted action, do it again, and compare the result."""
        assert "foreign" not in (ended or {}), ended
        self.require_intact()
        if action:
            require(run_forked(partial(act, action, self.case)))
        found = self.describe()
        assert found == expected, f"{found} instead of {expected}"

    def run_killed(self, action: str) -> Iterator[Case]:
        """Kill an action at random moments, for ever."""
        self.restore(ACTIONS[action])
        start = time.monotonic()
        require(run_forked(partial(act, action, self.case)))
        seconds, expected = time.monotonic() - start, self.describe()
        while True:
            self.restore(ACTIONS[action])
            run_forked(partial(act, action, self.case), kill_after=self.chance.uniform(0, seconds))
            yield "", partial(self.require, expected, action)

    def run_failing(self, action: str) -> Iterator[Case]:
        """Let each call that changes the disk fail once, alone or with all after it."""
        self.restore(ACTIONS[action])
        calls = list(range(1, require(run_forked(partial(self._act_with_fault, action))) + 1))
        expected = self.describe()
        self.chance.shuffle(calls)
        for call in calls:
            self.restore(ACTIONS[action])
            error, lasting = self.chance.choice(_ERRNOS), self.chance.random() < 0.5
            ended = run_forked(partial(self._act_with_fault, action, b"", call, error, lasting))
            yield f"call {call} of {len(calls)}, errno {error}", partial(self.require, expected, action, ended)

    def _act_with_fault(
        self, action: str, log: bytes = b"", call: int = 0, error: int = 0, lasting: bool = False
    ) -> int:
        self.faults.set_fault(log, call, error, lasting)
        act(action, self.case)
        return int(self.faults.count_calls())

    def run_powerless(self, action: str) -> Iterator[Case]:
        """Cut the power after each change of the disk: what was not synchronised is lost, in part, or out of order."""
        self.restore(ACTIONS[action])
        log, disk, whole = self.root / "log", SimulatedDisk(self.case), SimulatedDisk(self.case)
        log.unlink(missing_ok=True)
        require(run_forked(partial(self._act_with_fault, action, os.fsencode(log))))
        expected, operations = self.describe(), read_log(log)
        for operation in operations:
            whole.apply(operation)
        # After the last change, everything that was acknowledged must be there.
        for mode in MODES:
            self._cut_power(whole, mode)
            yield f"after all changes, {mode}", partial(self.require, expected)
        for number, operation in enumerate(operations[:-1], 1):
            disk.apply(operation)
            for mode in MODES:
                self._cut_power(disk, mode)
                place = f"after {number} of {len(operations)} ({operation.name} {operation.path}), {mode}"
                again = self.chance.random() < 0.02
                yield place, partial(self.require, expected, action) if again else self.require_intact

    def _cut_power(self, disk: SimulatedDisk, mode: str) -> None:
        shutil.rmtree(self.case)
        disk.write_state(self.case, mode, self.chance)

    def run_damaged(self, _: str) -> Iterator[Case]:
        """Damage a file at random, for ever; `verify` must find it, a search must notice it or not depend on it."""
        self.restore("indexed")
        expected = require(run_forked(self._search))
        while True:
            self.restore("indexed")
            path = self.chance.choice([path for path in sorted((self.case / "library").rglob("*")) if path.is_file()])
            kind, content = self.chance.choice(_DAMAGES), path.read_bytes()
            damaged = damage(content, kind, self.chance)
            if damaged == content or kind in _HARMLESS.get(path.name, ()):
                continue
            path.write_bytes(damaged or b"")
            if kind == "delete":
                path.unlink()
            yield f"{kind} of {path.relative_to(self.case)}", partial(self._require_noticed, expected)

    def _require_noticed(self, expected: list[Any]) -> None:
        ended = run_forked(self._search)
        # Where nothing is stored in a page of the database, damage changes nothing, and is not found.
        if "result" in ended:
            assert ended["result"] == expected, ended
        else:
            assert ended.get("error", " ")[0] in ("CorruptData", "BadInput"), ended
            assert verify(self.case / "library").problems, "verify found nothing"

    def _search(self) -> list[Any]:
        with Library.open(self.case / "library") as library:
            LocalJudgements(library.folder).list_all()
            found = library.search(r"E = \frac12 m v^2", k=5).hits + library.search(text="energy of body", k=5).hits
            return [[hit.equation.id, round(hit.score, 5)] for hit in found]


def damage(content: bytes, kind: str, chance: random.Random) -> bytes | None:
    """Return damaged content of a file, None if it is deleted."""
    if kind == "delete":
        return None
    at, size = chance.randrange(len(content) + 1), 512
    before, after = content[:at], content[at:]
    changed = {
        "flip": bytes(byte ^ 1 << chance.randrange(8) for byte in after[:1]) + after[1:],
        "zero": bytes(len(after[:size])) + after[size:],
        "swap": after[size : 2 * size] + after[:size] + after[2 * size :],
        "append": after + bytes([at % 256]) * 9,
    }
    return before + changed.get(kind, b"")


def require(ended: dict[str, Any]) -> Any:
    """Return the result of a child; raises if it had none."""
    assert "result" in ended, ended
    return ended["result"]


def run_forked(function: Callable[[], Any], kill_after: float | None = None) -> dict[str, Any]:
    """Run a function in a child; return its "result", its "error" if that is eqkin's, or a "foreign" one."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            signal.alarm(_CASE_SECONDS)
            try:
                ended: dict[str, Any] = {"result": function()}
            except EqkinError as error:
                ended = {"error": [type(error).__name__, str(error)]}
            except BaseException:
                ended = {"foreign": traceback.format_exc(limit=-4)}
            os.pwrite(file.fileno(), json.dumps(ended).encode(), 0)
            os._exit(0)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        file.seek(0)
        ended = json.loads(file.read() or "{}")
        return ended or {"foreign" if kill_after is None else "killed": f"status {status}"}


def run_campaigns(seconds: float, seed: int, root: Path, actions: list[str]) -> list[Row]:
    """Run all campaigns on storage in this process, which has `faults.c` preloaded."""
    campaigns, rows = Campaigns(root, seed), list[Row]()
    for name, run, chosen in (
        ("kill -9", campaigns.run_killed, actions),
        ("I/O errors", campaigns.run_failing, actions),
        ("power loss", campaigns.run_powerless, [action for action in actions if "pack" not in action]),
        ("damage", campaigns.run_damaged, ["search"]),
    ):
        cases = failures = complete = 0
        for action in chosen:
            deadline = time.monotonic() + seconds / 4 / len(chosen)
            for place, check in run(action):
                cases += 1
                try:
                    check()
                except Exception:
                    failures += 1
                    sys.stderr.write(f"{name}, {action}, {place}: {traceback.format_exc(limit=-2)}\n")
                if time.monotonic() > deadline:
                    break
            else:
                complete += 1
        rows.append((name, cases, failures, f"{', '.join(chosen)}; all possible cases of {complete} of them"))
    return rows


def run_storage(seconds: float, seed: int = 0, actions: Iterable[str] = ACTIONS) -> list[Row]:
    """Compile `faults.c`, and run all campaigns on storage in a new process with it."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve()
        source, library = Path(__file__).with_name("faults.c"), root / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source, "-ldl", "-lpthread"], check=True)
        command = [sys.executable, "-m", "benchmarks.torture.storage", str(seconds), str(seed), str(root / "work")]
        command += actions
        preload = {"LD_PRELOAD": str(library), "EQKIN_FAULT_ROOT": str(root / "work" / "case")}
        done = subprocess.run(command, env=os.environ | preload, stdout=subprocess.PIPE, check=True)
        return [(name, cases, failures, note) for name, cases, failures, note in json.loads(done.stdout)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_campaigns(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])))
