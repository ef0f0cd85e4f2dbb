"""`eqkin serve` and `eqkin demo` as a user starts and stops them."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from eqkin import Library
from eqkin.errors import BadInput
from tests.cli.running import eqkin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.md").write_text("# Energy\n\nMass is energy.\n\n$$E = mc^2$$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "notes.md")
    return tmp_path / "library"


def serve(
    *arguments: object, printed: list[str] | None = None, **environment: str
) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address; what it prints before is added to `printed`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "eqkin", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r" at (http://\S+)", line):
            return process, found[1]
        if printed is not None:
            printed.append(line.strip())
    process.wait(30)
    raise AssertionError(process.stderr.read() if process.stderr else "")


def test_serve_embeds_new_equations_answers_and_stops_cleanly(folder: Path) -> None:
    # the option prevails
    process, address = serve("serve", "--library", folder, EQKIN_MILVUS="http://127.0.0.1:9")
    try:
        assert address.startswith("http://127.0.0.1:")
        hits = httpx.get(f"{address}api/search?q=E%3Dmc%5E2", timeout=30).json()["hits"]
        assert hits[0]["equation"]["latex"].strip() == "E = mc^2"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_demo_builds_the_atlas_shows_names_of_kin_and_serves_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("NO_SERVE", "1")
    built = eqkin("demo")
    assert built.code == 0, built.err
    for part in ("equations found", "<math", "Kin of Bayes' law", "1,631 equations embedded in 128 dimensions"):
        assert part in built.out
    assert f"eqkin search 'E = mc^2' --library {tmp_path / 'eqkin' / 'atlas'}\n" in built.out
    assert (tmp_path / "eqkin" / "atlas" / "library.db").exists()
    printed: list[str] = []
    process, address = serve("demo", printed=printed, NO_SERVE="0")
    try:
        assert {"The same in other letters", "Contains it", "Similar"} <= set(printed)
        names = [re.sub(r" \(\d+\)$", "", line.partition(" · ")[0]) for line in printed]
        expected = {"Bayes' theorem", "naive Bayes", "Ising model", "Boltzmann machine", "Hopfield energy"}
        assert expected <= set(names)
        assert re.search(r"\d equations", httpx.get(address, timeout=30).text)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode in (0, 143, -signal.SIGTERM)


def test_serve_reports_a_taken_port_a_missing_library_and_one_library_too_many(folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = eqkin("serve", "--library", folder, "--port", taken.getsockname()[1])
    assert second.code == 3
    assert eqkin("serve", "--library", tmp_path / "nothing").code == 3
    both = eqkin("serve", "--port", "0", "--milvus", "http://127.0.0.1:9", "--library", folder)
    assert both.code == 3


@pytest.mark.parametrize(
    "options",
    [
        ["--host", "0.0.0.0"],
        ["--host", "0.0.0.0", "--token", "short"],
        ["--token-file", "nowhere.txt"],
        ["--token-file", os.devnull],
        ["--token", "long-enough", "--token-file", os.devnull],
        ["--host", "0.0.0.0", "--trust-proxy", "proxy.example"],
        ["--allowed-host", "papers.example:8443"],
        ["--allowed-host", "https://papers.example"],
        ["--cors", "example.org/x"],
        ["--frame", "https://a.example; script-src *"],
        ["--root-path", "/a b"],
    ],
)
def test_serve_refuses_unsafe_options(folder: Path, options: list[str]) -> None:
    assert eqkin("serve", "--library", folder, "--port", "0", *options).code == BadInput.exit_code


@pytest.mark.parametrize("workers", [1, 2])
def test_serve_reports_an_unreadable_library_for_any_number_of_processes(folder: Path, workers: int) -> None:
    (folder / "index").write_text("in the way")
    ended = eqkin("serve", "--library", folder, "--port", "0", "--workers", workers)
    assert (ended.code, ended.out) == (7, "")
    assert "Traceback" not in ended.err


def test_serve_beyond_this_machine_states_the_risk_and_reads_the_token(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-secret\n")
    for options, risk in (
        (["--token-file", tmp_path / "token"], "nothing is encrypted"),
        (["--public", "--read-only"], "anyone who reaches this server can search the library\n"),
    ):
        process, address = serve("serve", "--library", folder, "--host", "0.0.0.0", *options)
        try:
            status = httpx.get(f"{address}api/facets", timeout=30).status_code
            rebound = httpx.get(f"{address}healthz", headers={"Host": "evil.example"}, timeout=30).status_code
            authorization = {"Authorization": "Bearer a-long-secret"}
            known = httpx.get(f"{address}api/facets", headers=authorization, timeout=30).status_code
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=30)
        assert (status, rebound, known) == ((200, 421, 200) if "--public" in options else (401, 200, 200))
        assert risk in errors
