"""Users of a server, for locust: searches by formula, words and both, with filters and explanations, and pages.

Each user waits for an answer and asks again at once. `load.py` starts locust with this file in a folder with
`setup.json` (formulas, fields and papers to ask for) and reads `requests.json` from it afterwards.
"""

from __future__ import annotations

import json
import random
import time
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


class Visitor(FastHttpUser):
    """A user who searches."""

    wait_time = constant(0)
    network_timeout = connection_timeout = 60.0

    def _get(self, kind: str, path: str, parameters: dict[str, Any], **headers: str) -> None:
        query = f"?{urlencode(parameters)}" if parameters else ""
        self.client.get(path + query, name=kind, headers=headers)

    def _search(self, kind: str, *, formula: bool = True, **parameters: str) -> None:
        query = {"q": random.choice(SETUP["formulas"])} if formula else {}
        self._get(kind, "/api/search", {"k": HITS, **query, **parameters})

    @task(50)
    def search_formula(self) -> None:
        """Search for a formula."""
        self._search("formula")

    @task(12)
    def search_explained(self) -> None:
        """Search with explanations."""
        self._search("explained", explain="true")

    @task(10)
    def search_filtered(self) -> None:
        """Search in one subject area."""
        self._search("filtered", field=random.choice(SETUP["fields"] or [""]))

    @task(8)
    def search_both(self) -> None:
        """Search for a formula and words."""
        self._search("with words", text=random.choice(TEXTS))

    @task(5)
    def search_words(self) -> None:
        """Search for words."""
        self._search("words", formula=False, text=random.choice(TEXTS))

    @task(10)
    def open_page(self) -> None:
        """Look at the start page or at a page of results."""
        results = ("/search", {"q": random.choice(SETUP["formulas"]), "k": HITS})
        path, parameters = random.choice([("/", {}), results, results])
        self._get("page", path, parameters, Accept="text/html")

    @task(5)
    def open_paper(self) -> None:
        """Look at the page of a paper."""
        self._get("paper", "/paper", {"key": random.choice(SETUP["papers"])})
