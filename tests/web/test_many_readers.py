"""A server of several processes under load: while a writer changes the library and a process is killed."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

PATIENCE = 120.0  # seconds for what should take a moment, on a busy machine too
MARK = "q_{%d} = \\prod_{j<%d} \\Xi_j^{%d}"  # an equation of the note with this number
# Adds and removes notes, and merges or rewrites whatever can be, each time.
WRITER = r"""
import sys
from pathlib import Path
from eqkin import Encoder, Library
from eqkin.index.manifest import IndexSettings
from eqkin.index.update import update_index

folder, notes, mark, encoder = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Encoder.load()
notes.mkdir()
with Library.open(folder, create=True) as library:
    for number in range(1, 5):
        note = notes / f"n{number}.md"
        note.write_text(f"# Note {number}\n\nOn products number{number}.\n\n$$ {mark % (number, number, number)} $$\n")
        library.add(note)
        if not number % 2:
            library.remove(str(notes / f"n{number - 1}.md"))
        update_index(library, encoder, settings=IndexSettings(max_small_parts=2))
"""


class Clients:
    """Threads that ask a server, each waiting for its answer, until they are stopped."""

    def __init__(self, place: str, number: int = 3) -> None:
        self.failures: list[str] = []
        self.answers = 0
        self._place, self._stop = place, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(seed,), daemon=True) for seed in range(number)]
        for thread in self._threads:
            thread.start()

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            with closing(http.client.HTTPConnection(self._place, timeout=PATIENCE)) as connection:
                for _ in range(chance.randrange(1, 12)):
                    address = self._address(chance)
                    try:
                        status, body = get(connection, address)
                    except (OSError, http.client.HTTPException) as error:
                        status, body = 0, repr(error)
                    if status != 200:
                        self.failures.append(f"{address}: {status} {body[:200]}")
                        break
                    self.answers += 1
                    self._stop.wait(0.5)  # which leaves the processor to the writer

    def _address(self, chance: random.Random) -> str:
        formula = chance.choice(["E = mc^2", r"\int f(x) dx", r"P(a|b) = \frac{P(b|a) P(a)}{P(b)}", MARK % (2, 2, 2)])
        asked = {"q": formula, "k": 5}
        return chance.choice(
            [
                "/api/search?" + urlencode(asked),
                "/api/search?" + urlencode(asked | {"explain": "true"}),
                "/api/search?" + urlencode(asked | {"text": "energy products"}),
                "/api/search?" + urlencode({"text": "probability", "k": 3}),
                "/api/search?" + urlencode(asked | {"field": "probability"}),
                "/search?" + urlencode(asked),
                "/paper?key=atlas:probability",
                "/api/similar-papers/atlas:quantum?k=2",
                "/api/facets",
                "/",
            ]
        )

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def get(connection: http.client.HTTPConnection, address: str) -> tuple[int, str]:
    connection.request("GET", address)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def soon(place: str) -> Iterator[tuple[int, http.client.HTTPConnection]]:
    """New connections, each with the id of the process that answers it, until patience ends."""
    latest = time.monotonic() + PATIENCE
    while time.monotonic() < latest:
        with closing(http.client.HTTPConnection(place, timeout=PATIENCE)) as connection:
            health = json.loads(get(connection, "/healthz")[1])
            assert (health["status"], health["processes"]) == ("ok", 2)
            yield health["process"], connection
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def processes(place: str, without: int = 0) -> set[int]:
    """The two that answer, as soon as there are two; `without` is none of them."""
    seen: set[int] = set()
    for process, _ in soon(place):
        assert process != without
        seen.add(process)
        if len(seen) == 2:
            return seen
    raise AssertionError


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "eqkin", "serve", "--library", str(folder), "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            place = re.search(r"http://([^/]+)/", server.stdout.readline())
            assert place, server.communicate(timeout=PATIENCE)[1]
            yield server, place[1]
        finally:
            server.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals that Windows does not know")
def test_readers_continue_while_a_writer_works_and_after_one_is_killed(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "library")
    with serving(copy) as (server, place):
        before = processes(place)
        clients = Clients(place)
        command = [sys.executable, "-c", WRITER, str(copy), str(tmp_path / "notes"), MARK]
        written = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert written.returncode == 0, written.stderr
        found: set[int] = set()
        for process, connection in soon(place):
            status, body = get(connection, "/api/search?" + urlencode({"q": MARK % (4, 4, 4), "k": 3}))
            hits = json.loads(body)["hits"]
            papers = {hit["equation"]["paper"]["key"].rpartition("/")[2] for hit in hits}
            if "n4.md" in papers and "n3.md" not in papers:
                found.add(process)
            if found == before:
                break
        clients.stop()
        assert clients.failures == []
        assert clients.answers > 10

        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        latest = time.monotonic() + PATIENCE
        while runs(victim) and time.monotonic() < latest:
            time.sleep(0.01)
        after = processes(place, without=victim)
        assert len(after & before) == 1
        clients = Clients(place, 2)
        while clients.answers < 10 and not clients.failures:
            time.sleep(0.01)
        clients.stop()
        assert clients.failures == []

        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
        assert errors == ""
        assert not any(map(runs, before | after))


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals that Windows does not know")
def test_workers_end_when_the_parent_is_killed(folder: Path) -> None:
    with serving(folder) as (server, place):
        both = processes(place)
        server.kill()
        server.wait(PATIENCE)
        latest = time.monotonic() + PATIENCE
        while any(map(runs, both)) and time.monotonic() < latest:
            time.sleep(0.01)
        assert not any(map(runs, both))
