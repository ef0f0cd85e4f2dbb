"""`python -m benchmarks load`: many clients ask a server for a time, each waiting for its answer before it asks again.

What they ask is mixed: formulas, with explanations, with words, with filters, words alone, and the pages people see.
Whatever is not answered with 200 is an error; "come again in a second" is one too.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from benchmarks.search import formulas
from eqkin.errors import BadInput

# How often each kind of request is made, of a hundred: searches most of all, as people and programs do.
MIX = {"formula": 50, "explained": 12, "filtered": 10, "with words": 8, "words": 5, "page": 10, "paper": 5}
_WORDS = ("energy", "probability of an event", "stability", "wave equation", "matrix", "limit theorem", "entropy")
_FORMULAS = 400
_TIMEOUT = 60.0  # seconds after which a client gives up
_HITS = 10
_ASKED = 20  # formulas whose papers are asked for

Progress = Callable[[float, int, int], None]  # seconds, answers, errors


@dataclass
class LoadReport:
    """What happened."""

    clients: int
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of the answers, by kind of request
    ends: list[float] = field(default_factory=list)  # when each answer came, from the beginning
    errors: Counter[str] = field(default_factory=Counter)
    processes: Counter[int] = field(default_factory=Counter)  # connections that each of the server's processes took
    elapsed: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def failed(self, what: str) -> None:
        """Count an error."""
        with self._lock:
            self.errors[what] += 1

    def connected(self, process: int) -> None:
        """Count a connection to a process of the server."""
        with self._lock:
            self.processes[process] += 1

    def answered(self, kind: str, seconds: float, end: float) -> None:
        """Take an answer into account."""
        with self._lock:
            self.seconds.setdefault(kind, []).append(seconds)
            self.ends.append(end)

    @property
    def answers(self) -> int:
        """Requests that were answered."""
        return len(self.ends)

    def by_second(self) -> list[int]:
        """Answers in each second: where the server stalled, there are none."""
        counts = Counter(map(int, self.ends))
        return [counts[second] for second in range(int(self.elapsed))]

    def pause(self) -> float:
        """The longest time in which nobody got an answer."""
        ends = [end for end in self.ends if end <= self.elapsed]  # later on, clients only wait for their last answers
        return float(np.diff(np.sort([0.0, *ends, self.elapsed])).max())

    def summary(self) -> dict[str, Any]:
        """The figures that matter; times in milliseconds."""
        whole = [seconds for kind in self.seconds.values() for seconds in kind]
        return {
            "clients": self.clients,
            "seconds": self.elapsed,
            "answers": self.answers,
            "errors": self.errors.total(),
            "errors_by_kind": dict(self.errors.most_common()),
            "answers_per_second": sum(end <= self.elapsed for end in self.ends) / max(self.elapsed, 1e-9),
            "longest_pause_ms": 1e3 * self.pause(),
            "by_second": self.by_second(),
            "connections_by_process": dict(self.processes.most_common()),
            "times": {name: _times(part) for name, part in {"all": whole, **self.seconds}.items() if part},
        }


def _times(seconds: list[float]) -> dict[str, float]:
    p50, p90, p99 = (1e3 * np.percentile(seconds, [50, 90, 99])).tolist()
    return {"count": len(seconds), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": 1e3 * max(seconds)}


def measure(address: str, *, clients: int = 64, seconds: float = 300.0, progress: Progress | None = None) -> LoadReport:
    """Ask the server at an address (`http://host:port`) for some time.

    Raises:
        BadInput: it does not answer, or is no server of eqkin.
    """
    place = urlsplit(address if "://" in address else f"//{address}").netloc
    requests, report = Requests(place), LoadReport(clients)
    threads = [_Client(place, requests, report, seed) for seed in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.begin(start, start + seconds)
    while (passed := time.perf_counter() - start) < seconds:
        time.sleep(min(1.0, seconds - passed))
        if progress:
            progress(time.perf_counter() - start, report.answers, report.errors.total())
    for thread in threads:
        thread.join()
    report.elapsed = seconds
    return report


class Requests:
    """What can be asked of a server: formulas of the atlas, and the server's own fields and papers."""

    def __init__(self, place: str) -> None:
        self._formulas = formulas(_FORMULAS)
        self._fields = list(_json(place, "/api/facets")["fields"])[:5]
        hits = [
            hit
            for formula in self._formulas[:_ASKED]
            for hit in _json(place, f"/api/search?{urlencode({'q': formula, 'k': 5})}")["hits"]
        ]
        if not hits:
            raise BadInput(f"http://{place}/: finds nothing; serve a library that has equations")
        self._papers = sorted({hit["equation"]["paper"]["key"] for hit in hits})

    def of(self, chance: random.Random) -> tuple[str, str]:
        """The kind of some request, and its path."""
        (kind,) = chance.choices(list(MIX), list(MIX.values()))
        formula: dict[str, Any] = {"q": chance.choice(self._formulas), "k": _HITS}
        words = {"text": chance.choice(_WORDS)}
        if kind == "page":
            return kind, chance.choice(("/", f"/search?{urlencode(formula)}", f"/search?{urlencode(formula)}"))
        if kind == "paper":
            return kind, f"/paper?{urlencode({'key': chance.choice(self._papers)})}"
        if kind == "filtered" and self._fields:
            formula |= {"field": chance.choice(self._fields)}
        elif kind == "explained":
            formula |= {"explain": "true"}
        elif kind == "with words":
            formula |= words
        elif kind == "words":
            formula = {"k": _HITS} | words
        return kind, f"/api/search?{urlencode(formula)}"


def _json(place: str, path: str) -> dict[str, Any]:
    try:
        with closing(http.client.HTTPConnection(place, timeout=_TIMEOUT)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != 200:
            raise BadInput(f"http://{place}{path[:80]}: HTTP {answer.status}: {body[:200].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(body)
        return found
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BadInput(f"http://{place}/: no server of eqkin answers there ({error})") from error


class _Client:
    """One that asks in a thread of its own; a connection that fails is made anew."""

    def __init__(self, place: str, requests: Requests, report: LoadReport, seed: int) -> None:
        self._place, self._requests, self._report = place, requests, report
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def begin(self, start: float, end: float) -> None:
        self._start, self._end = start, end
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _ask(self) -> None:
        for connection in self._connections():
            with closing(connection):
                while time.perf_counter() < self._end:
                    kind, path = self._requests.of(self._chance)
                    before = time.perf_counter()
                    try:
                        connection.request("GET", path, headers={"Accept": "text/html"} if kind == "page" else {})
                        answer = connection.getresponse()
                        body = answer.read()
                    except (OSError, http.client.HTTPException) as error:
                        self._report.failed(f"{kind}: {type(error).__name__}")
                        break
                    self._note(kind, before, answer.status, body)

    def _connections(self) -> Iterator[http.client.HTTPConnection]:
        while time.perf_counter() < self._end:
            connection = http.client.HTTPConnection(self._place, timeout=_TIMEOUT)
            try:
                connection.request("GET", "/health")
                self._report.connected(json.loads(connection.getresponse().read()).get("process", 0))
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                self._report.failed(f"connecting: {type(error).__name__}")
                connection.close()
                time.sleep(0.1)
                continue
            yield connection

    def _note(self, kind: str, before: float, status: int, body: bytes) -> None:
        now = time.perf_counter()
        if status == 200:
            self._report.answered(kind, now - before, now - self._start)
        else:
            code = ""
            with suppress(ValueError, KeyError, TypeError):
                code = json.loads(body)["error"]["code"]
            self._report.failed(f"{kind}: HTTP {status} {code}".rstrip())
