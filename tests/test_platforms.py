"""What macOS and Windows do otherwise, simulated: locks, renames, links, paths, ports, consoles."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from eqkin import Library
from eqkin.errors import BadInput, StorageFailed
from eqkin.files import write_file
from eqkin.library.database import make_sqlite_uri
from eqkin.library.parsing import parse_item
from eqkin.sources.files import open_regular
from eqkin.sources.readers import open_source

# A module `msvcrt` on POSIX: what is locked cannot be read by others, so it must not be what they read.
WINDOWS_LOCKS = """
import fcntl, os, sys, types
import numpy, safetensors, zstandard  # not on Windows
locks = types.ModuleType("msvcrt")
locks.LK_LOCK, locks.LK_NBLCK = 1, 2
def locking(descriptor, mode, count):
    at = os.lseek(descriptor, 0, os.SEEK_CUR)
    assert at > os.fstat(descriptor).st_size + 1000
    fcntl.lockf(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == locks.LK_NBLCK else 0), count, at)
locks.locking = locking
sys.modules["msvcrt"], sys.platform = locks, "win32"
from pathlib import Path
from eqkin.errors import LibraryBusy
from eqkin.files import WriterLock
"""
HOLD = (
    WINDOWS_LOCKS
    + """
with WriterLock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""
)
TRY = (
    WINDOWS_LOCKS
    + """
try:
    with WriterLock(Path(sys.argv[1])):
        print("free")
except LibraryBusy as error:
    print(error)
"""
)
posix = pytest.mark.skipif(sys.platform == "win32", reason="simulates Windows elsewhere")


@posix
def test_lock_of_windows_names_its_holder_and_ends_with_it(tmp_path):
    attempt = [sys.executable, "-c", TRY, str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        refused = subprocess.run(attempt, capture_output=True, text=True, timeout=120)
        assert f"another process is writing (process {holder.pid} on" in refused.stdout, refused.stderr
        holder.communicate("", timeout=60)
    assert subprocess.run(attempt, capture_output=True, text=True, timeout=120).stdout == "free\n"


@pytest.mark.parametrize(
    ("failures", "platform", "written"), [(3, "win32", True), (99, "win32", False), (1, "linux", False)]
)
def test_rename_waits_for_readers_on_windows(tmp_path, monkeypatch, failures, platform, written):
    path, real, left = tmp_path / "file", Path.replace, [failures]
    path.write_bytes(b"old")

    def rename(source, target):
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(errno.EACCES, "in use")
        return real(source, target)

    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "platform", platform)
    if written:
        write_file(path, b"new")
    else:
        with pytest.raises(StorageFailed, match="in use"):
            write_file(path, b"new")
    assert path.read_bytes() == (b"new" if written else b"old")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@posix
def test_files_are_written_through_the_cache_of_the_drive_on_macos(tmp_path, monkeypatch):
    import fcntl

    asked = []

    def control(descriptor, command):
        asked.append(command)
        if len(asked) > 1:
            raise OSError(errno.ENOTSUP, "not on this file system")
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(sys, "platform", "darwin")
    write_file(tmp_path / "file", b"content")
    assert asked == [51, 51]  # the file, its folder
    assert (tmp_path / "file").read_bytes() == b"content"


@posix
def test_links_are_refused_where_the_system_has_no_flag_for_that(tmp_path, monkeypatch):
    (tmp_path / "secret.tex").write_text("secret")
    (tmp_path / "link.tex").symlink_to(tmp_path / "secret.tex")
    monkeypatch.delattr(os, "O_NOFOLLOW")
    with pytest.raises(BadInput, match="symbolic link"):
        open_regular(tmp_path / "link.tex")
    with open_regular(tmp_path / "secret.tex") as file:
        assert file.read() == b"secret"


def test_addresses_of_databases_are_those_that_sqlite_reads():
    assert [
        make_sqlite_uri(path, "ro")
        for path in (
            PurePosixPath("/home/a b/100%?#.db"),
            PureWindowsPath(r"C:\Users\a b\x.db"),
            PureWindowsPath(r"\\server\share\x.db"),
        )
    ] == [
        "file:///home/a%20b/100%25%3F%23.db?mode=ro",
        "file:///C:/Users/a%20b/x.db?mode=ro",
        "file:////server/share/x.db?mode=ro",
    ]


@posix
def test_papers_below_a_folder_are_removed_with_either_separator(tmp_path):
    for name in ("papers", "papers-of-others"):
        (tmp_path / name).mkdir()
        for file in (f"{name}/1.md", f"{name}\\2.md"):  # the second is a file whose name contains a backslash
            (tmp_path / file).write_text(f"# {name}\n\n$$x = {len(name)}$$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        for path in tmp_path.rglob("*.md"):
            library.add(path)
        assert library.remove(str(tmp_path / "papers")) == 2
        assert [paper["title"] for paper in library.list_papers()] == ["papers-of-others"] * 2


def test_document_without_title_is_named_after_its_file_with_either_separator(tmp_path):
    (tmp_path / "notes.md").write_text("$$x = 1$$\n\n$$y = 2$$\n")
    (item,) = open_source(str(tmp_path / "notes.md"))
    paper = replace(item.load(), origin=r"C:\Users\anna\waves.md")
    assert parse_item(replace(item, load=lambda: paper), "", "displays").title == "waves"


def run_python(*arguments: str, given: bytes = b"", **environment: str) -> bytes:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    done = subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, timeout=120, check=False,
        env={**kept, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pipes_are_utf8_on_windows():
    code = """
import sys
from eqkin.cli.console import prepare_streams
for stream in (sys.stdin, sys.stdout):
    stream.reconfigure(encoding="cp1252", newline="")
sys.platform = "win32"
prepare_streams()
sys.stdout.write(sys.stdin.read())
"""
    assert run_python("-c", code, given="α → 𝔼".encode()) == "α → 𝔼".encode()


def test_characters_that_a_terminal_lacks_are_shown_as_codes():
    shown = run_python("-m", "eqkin", "convert", r"\alpha \to \ddot{o}", PYTHONIOENCODING="cp1252").decode("cp1252")
    assert r"<mi>\u03b1</mi>" in shown
