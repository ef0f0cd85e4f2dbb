"""Killed writers, full disks, damaged bytes, two writers: nothing committed is lost, no reader sees half a write."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.errors import LibraryBusy, StorageFailed
from eqkin.files import WriterLock
from eqkin.library.queries import compute_statistics
from eqkin.library.records import export_equations
from tests.library.conftest import write_article

# Children add papers, one a batch; each kills itself at another moment at which something reaches the disk. The parent
# then adds the papers again. It has no engine before, as that would not survive a fork.
_DOOMED = """
import os, signal, sqlite3, sys
from pathlib import Path
from eqkin.api import Library, verify
from eqkin.library import database, writer
work, papers, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
countdown = 0

def step():
    global countdown
    countdown -= 1
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Doomed(sqlite3.Connection):
    def execute(self, sql, *rest):
        if sql.startswith(("BEGIN", "COMMIT", "INSERT INTO papers", "DELETE FROM papers")):
            step()
        result = super().execute(sql, *rest)
        if sql == "COMMIT":
            step()
        return result

    def executemany(self, sql, *rest):
        step()
        return super().executemany(sql, *rest)

def doom():
    connect, fsync, replace, unlink = sqlite3.connect, os.fsync, Path.replace, Path.unlink
    sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=Doomed, **kwargs)
    def doomed_fsync(descriptor): step(); fsync(descriptor); step()
    def doomed_replace(self, target): step(); replace(self, target); step()
    def doomed_unlink(self, missing_ok=False): step(); unlink(self, missing_ok=missing_ok)
    os.fsync, Path.replace, Path.unlink = doomed_fsync, doomed_replace, doomed_unlink
    writer.SETTINGS = writer.WriterSettings(batch_papers=1)

def add(folder):
    with Library.open(folder, create=True) as library:
        library.add(papers)

def killed_at(moment):
    global countdown
    child = os.fork()
    if not child:
        countdown = moment
        doom()
        add(work / str(moment))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0

moments = [1]
while killed_at(moments[-1]):
    moments.append(moments[-1] + stride)
survived = moments.pop()
expected = verify(work / str(survived)).content
for moment in moments:
    folder = work / str(moment)
    if (folder / "library.db").exists():
        problems = verify(folder).problems
        assert not problems, (moment, problems)
    add(folder)
    verdict = verify(folder)
    assert not verdict.problems + verdict.notes, (moment, verdict)
    assert verdict.content == expected, moment
print(survived)
"""


def _run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_writer_killed_at_many_moments_loses_nothing(tmp_path: Path, papers: Path) -> None:
    (papers / "a3.tex").unlink()
    (tmp_path / "work").mkdir()
    done = _run(_DOOMED, tmp_path / "work", papers, 3)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


_TERMINATED = """
import os, signal, sys
from eqkin.api import Library
from eqkin.library import ingest
parse_item = ingest.parse_item

def parse_slowly(item, known, *rest):
    parsed = parse_item(item, known, *rest)
    if item.key.endswith("a2.tex"):
        os.kill(os.getpid(), signal.SIGTERM)
    return parsed

ingest.parse_item = parse_slowly
from eqkin.cli import main
sys.argv = ["eqkin", "add", *sys.argv[1:]]
main()
"""


def test_terminated_add_keeps_committed_papers_and_says_so(tmp_path: Path, papers: Path) -> None:
    stopped = _run(_TERMINATED, papers, "--library", tmp_path / "library", "--jobs", 1)
    assert stopped.returncode == 130
    assert "run the same command again" in stopped.stderr
    assert verify(tmp_path / "library").papers >= 1
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(papers)
    assert verify(tmp_path / "library").papers == 3


def test_full_disk_raises_storage_failed_and_keeps_the_old_state(library: Library, tmp_path: Path) -> None:
    before = verify(library.folder).content
    (tmp_path / "big").mkdir()
    text = "".join(rf"\[ x_{{{n}}} + \text{{word{n}}} = y^{{{n}}} \]" + "\n" for n in range(3000))
    (tmp_path / "big" / "big.tex").write_text(text)
    script = "import resource, signal, sys\nfrom eqkin.api import Library\n"
    script += "library = Library.open(sys.argv[1], create=True)\n"
    script += (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    )
    script += "library.add(sys.argv[2])\n"
    full = _run(script, library.folder, tmp_path / "big")
    assert full.returncode == 1
    assert re.search(r"StorageFailed: .*(could not be written|disk|I/O)", full.stderr), full.stderr
    verdict = verify(library.folder)
    assert not verdict.problems
    assert verdict.content == before
    assert library.add(tmp_path / "big").papers == 1


def test_failed_fsync_raises_storage_failed_and_leaves_no_library(
    tmp_path: Path, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("eqkin.files.os.fsync", fail)
        with pytest.raises(StorageFailed, match="Input/output error"):
            Library.open(tmp_path / "library", create=True)
    assert [path.name for path in (tmp_path / "library").iterdir()] == ["lock"]
    with Library.open(tmp_path / "library", create=True) as library:
        assert library.add(papers).papers == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_library_can_be_read_and_refuses_writes(library: Library, papers: Path) -> None:
    write_article(papers, 9)
    library.folder.chmod(0o555)
    try:
        with Library.open(library.folder) as reader:
            assert compute_statistics(reader)["papers"] == 3
            with pytest.raises(StorageFailed):
                reader.add(papers)
    finally:
        library.folder.chmod(0o755)


def test_open_raises_storage_failed_where_no_folder_can_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFailed, match="no library can be created"):
        Library.open(tmp_path / "file" / "library", create=True)


def test_second_writer_is_refused_and_told_of_the_first_and_readers_continue(library: Library, papers: Path) -> None:
    write_article(papers, 9)
    with WriterLock(library.folder):
        with pytest.raises(LibraryBusy, match=f"process {os.getpid()} on "):
            library.add(papers)
        with Library.open(library.folder) as reader:
            assert compute_statistics(reader)["papers"] == 3
        with pytest.raises(LibraryBusy):
            verify(library.folder)
    assert library.add(papers).papers == 1


def test_killed_writer_leaves_no_lock(library: Library, papers: Path) -> None:
    script = "import os, signal, sys\nfrom pathlib import Path\nfrom eqkin.files import WriterLock\n"
    script += "WriterLock(Path(sys.argv[1])).__enter__()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    assert _run(script, library.folder).returncode == -signal.SIGKILL
    write_article(papers, 9)
    assert library.add(papers).papers == 1


_CRASHING_WORKERS = """
import multiprocessing, os, sys
from eqkin.api import Library
from eqkin.executor import LocalExecutor
from eqkin.library import parsing
parse = parsing.parse

def crash(text, *rest, **options):
    if "subject7" in text and multiprocessing.parent_process():
        os._exit(11)
    return parse(text, *rest, **options)

parsing.parse = crash
if __name__ == "__main__":
    executor = LocalExecutor(2, warm_up_seconds=0.0)
    report = Library.open(sys.argv[1], create=True).add(sys.argv[2], executor=executor)
    print(report.papers, dict(report.failed))
"""


def test_worker_that_dies_costs_only_its_paper(tmp_path: Path) -> None:
    for number in range(12):
        write_article(tmp_path / "papers", number)
    script = tmp_path / "crashing_workers.py"
    script.write_text(_CRASHING_WORKERS)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "library", tmp_path / "papers"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "11 {'crash': 1}", done.stderr
    assert not verify(tmp_path / "library").problems


def test_unfinished_export_does_not_block_a_writer(library: Library, papers: Path) -> None:
    with Library.open(library.folder) as reader:
        lines = export_equations(reader)
        next(lines)
        for number in range(10, 30):
            library.add(write_article(papers, number))
        assert len(list(lines)) == 11


def test_two_open_libraries_write_in_turn(library: Library, papers: Path) -> None:
    with Library.open(library.folder) as other:
        library.add(write_article(papers, 11))
        other.add(write_article(papers, 12))
        library.add(write_article(papers, 13))
        verdict = verify(library.folder)
        assert not verdict.problems + verdict.notes
        assert verdict.papers == 6


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_library_is_created_where_a_creation_was_killed(tmp_path: Path, papers: Path) -> None:
    script = "import os, signal, sys\nfrom pathlib import Path\nfrom eqkin.api import Library\n"
    script += "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nLibrary.open(sys.argv[1], create=True)\n"
    assert _run(script, tmp_path / "library").returncode == -signal.SIGKILL
    assert [path.suffix for path in (tmp_path / "library").iterdir() if path.name != "lock"] == [".tmp"]
    with Library.open(tmp_path / "library", create=True) as library:
        assert library.add(papers).papers == 3
    assert sorted(path.name for path in (tmp_path / "library").iterdir()) == ["library.db", "lock"]
