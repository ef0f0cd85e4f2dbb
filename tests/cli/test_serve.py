"""`eqkin serve` and `eqkin demo` as a user starts and stops them."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from eqkin import Library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.md").write_text("# Energy\n\nMass is energy.\n\n$$E = mc^2$$\n")
    with Library.open(tmp_path / "library") as library:
        library.add(tmp_path / "notes.md")
    return tmp_path / "library"


def serve(*arguments: object, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "eqkin", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r" at (http://\S+)", line):
            return process, found[1]
    process.wait(30)
    raise AssertionError(process.stderr.read() if process.stderr else "")


def test_serve_embeds_what_is_new_answers_and_stops_politely(folder: Path) -> None:
    process, address = serve("serve", "--library", folder)
    try:
        assert address.startswith("http://127.0.0.1:")
        hits = httpx.get(f"{address}search.json?q=E%3Dmc%5E2", timeout=30).json()["hits"]
        assert hits[0]["equation"]["latex"].strip() == "E = mc^2"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_the_demo_ends_with_the_page(tmp_path: Path) -> None:
    process, address = serve("demo", XDG_DATA_HOME=str(tmp_path), NO_SERVE="0")
    try:
        assert "Bayes" in httpx.get(address, timeout=30).text
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode in (0, 143, -signal.SIGTERM)


def test_a_port_that_is_taken_and_a_library_that_is_not_there_are_told(folder: Path, tmp_path: Path) -> None:
    process, address = serve("serve", "--library", folder)
    try:
        port = address.rstrip("/").rpartition(":")[2]
        again = [sys.executable, "-m", "eqkin", "serve", "--library", str(folder), "--port", port]
        second = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 3
        assert "choose another --port" in second.stderr
    finally:
        process.terminate()
        process.communicate(timeout=30)
    missing = [sys.executable, "-m", "eqkin", "serve", "--library", str(tmp_path / "nothing")]
    assert subprocess.run(missing, capture_output=True, timeout=60, check=False).returncode == 3
