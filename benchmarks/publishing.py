"""A writer that publishes snapshots of a library again and again while it is served: papers come and go."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from eqkin.errors import BadInput

_EQUATIONS = 10  # of a note
_KEPT = 3  # notes; older ones are removed
_PATIENCE = 60.0  # seconds for the last snapshot to be seen


class Publisher:
    """Adds notes to a library and takes older ones away, with eqkin's own commands, in a thread.

    Args:
        library: the folder; it is changed.
        notes: an empty folder for the notes.
    """

    def __init__(self, library: Path, notes: Path) -> None:
        self._library, self._notes = library, notes
        self.published = 0
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End with the snapshot under way."""
        self._stop.set()
        self._thread.join()

    def seen_after(self, place: str) -> float:
        """Seconds until every process of the server at `host:port` finds the last note."""
        start, seen = time.perf_counter(), set()
        while time.perf_counter() - start < _PATIENCE:
            with closing(http.client.HTTPConnection(place, timeout=_PATIENCE)) as connection:
                connection.request("GET", "/health")
                health = json.loads(connection.getresponse().read())
                connection.request("GET", f"/api/search?{urlencode({'q': _formula(self.published, 0), 'k': 1})}")
                hits = json.loads(connection.getresponse().read()).get("hits", [])
            if hits and hits[0]["equation"]["paper"]["key"].endswith(f"/n{self.published}.md"):
                seen.add(health["process"])
            if len(seen) == health["processes"]:
                return time.perf_counter() - start
        raise BadInput(f"the last papers added are not found after {_PATIENCE:g} seconds")

    def _publish(self) -> None:
        while not self._stop.is_set() and not self.problems:
            note = self._note(self.published + 1)
            self._run("add", str(note))
            if self.published >= _KEPT:
                self._run("remove", str(self._notes / f"n{self.published - _KEPT + 1}.md"))
            self._run("index")
            self.published += 1

    def _note(self, number: int) -> Path:
        path = self._notes / f"n{number}.md"
        shown = "\n\n".join(f"$$ {_formula(number, n)} $$" for n in range(_EQUATIONS))
        path.write_text(f"# Note {number}\n\nProducts and sums, number{number}.\n\n{shown}\n", "utf-8")
        return path

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "eqkin", arguments[0], "--library", str(self._library), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.problems.append(f"{' '.join(command[2:])}: {done.stderr.strip()[-300:]}")


def _formula(note: int, number: int) -> str:
    return rf"\Xi_{{{note}}}^{{{number}}} = \prod_{{j<{note}}} \sum_{{i<{number + 2}}} w_{{ij}}^{{{note + number}}}"


def copied(library: Path, folder: Path) -> Path:
    """A copy of a library to write to; the user's own is left alone."""
    try:
        return Path(shutil.copytree(library, folder / "library"))
    except (OSError, shutil.Error) as error:
        raise BadInput(f"{library}: cannot be copied to be written to ({error})") from error
