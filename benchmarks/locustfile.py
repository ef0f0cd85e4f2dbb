"""Users of a server, for locust: searches by formula, words and both, with filters and explanations, and pages.

Each user waits for an answer and asks again at once. `load.py` starts locust with this file in a folder with
`setup.json` (formulas, fields and papers to ask for) and reads `requests.json` from it afterwards.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from locust import FastHttpUser, constant, events, task

TEXTS = ("energy", "probability of an event", "stability", "wave equation", "matrix", "limit theorem", "entropy")
HITS = 10
SETUP: dict[str, list[str]] = json.loads(Path("setup.json").read_text("utf-8"))
REQUESTS: list[dict[str, Any]] = []


@events.request.add_listener
def record_request(name: str, response_time: float, response: Any, exception: Exception | None, **_: Any) -> None:
    """Keep what happened: locust's own statistics round times to two digits."""
    status = getattr(response, "status_code", 0)
    error = "" if status == 200 and exception is None else f"HTTP {status}" if status else type(exception).__name__
    REQUESTS.append({"kind": name, "seconds": response_time / 1e3, "end": time.time(), "error": error})


@events.quitting.add_listener
def write_requests(**_: Any) -> None:
    """Write all requests to a file."""
    Path("requests.json").write_text(json.dumps(REQUESTS), "utf-8")


def make_search(**parameters: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the parameters of a search for a formula."""
    return "/api/search", {"k": HITS, "q": random.choice(SETUP["formulas"]), **parameters}


def make_page() -> tuple[str, dict[str, Any]]:
    """Return the start page, or twice as often a page of results."""
    return random.choice([("/", {}), *[("/search", make_search()[1])] * 2])


KINDS: dict[str, tuple[int, Callable[[], tuple[str, dict[str, Any]]]]] = {  # how often, and what is asked
    "formula": (50, make_search),
    "explained": (12, lambda: make_search(explain="true")),
    "filtered": (10, lambda: make_search(field=random.choice(SETUP["fields"] or [""]))),
    "with words": (8, lambda: make_search(text=random.choice(TEXTS))),
    "words": (5, lambda: ("/api/search", {"k": HITS, "text": random.choice(TEXTS)})),
    "page": (10, make_page),
    "paper": (5, lambda: ("/paper", {"key": random.choice(SETUP["papers"])})),
}


class Visitor(FastHttpUser):
    """A user who searches."""

    wait_time = constant(0)
    network_timeout = connection_timeout = 60.0

    @task
    def ask(self) -> None:
        """Ask for something."""
        (kind,) = random.choices(list(KINDS), [often for often, _ in KINDS.values()])
        path, parameters = KINDS[kind][1]()
        self.client.get(f"{path}?{urlencode(parameters)}" if parameters else path, name=kind)
