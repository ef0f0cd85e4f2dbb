"""Users of a server, for locust: searches by formula, words and both, with filters and explanations, and pages.

Each user waits for an answer and asks again at once. `load.py` starts locust with this file.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any
from urllib.parse import urlencode

from gevent.event import Event
from locust import FastHttpUser, constant, events, task

from benchmarks.search import list_atlas_formulas

TEXTS = ("energy", "probability of an event", "stability", "wave equation", "matrix", "limit theorem", "entropy")
HITS = 10
FORMULAS = list_atlas_formulas(400)
_REQUESTS: list[dict[str, Any]] = []
_READY = Event()


@events.request.add_listener
def record_request(
    name: str, response_time: float, response: Any = None, exception: Exception | None = None, **_: Any
) -> None:
    """Keep what happened: locust's own statistics round times to two digits."""
    if name != "prepare":
        error = ""
        if exception is not None or not response or response.status_code != 200:
            status = getattr(response, "status_code", 0)
            error = f"HTTP {status}" if status else type(exception).__name__
        _REQUESTS.append({"kind": name, "seconds": response_time / 1e3, "end": time.time(), "error": error})


@events.quitting.add_listener
def write_requests(**_: Any) -> None:
    """Write all requests to the file that `load.py` reads."""
    with open(os.environ["EQKIN_LOAD_RESULTS"], "w", encoding="utf-8") as file:
        json.dump(_REQUESTS, file)


class Visitor(FastHttpUser):
    """Somebody who searches."""

    wait_time = constant(0)
    network_timeout = connection_timeout = 60.0
    fields: list[str]
    papers: list[str]

    def on_start(self) -> None:
        """Find out which subject areas and papers the server has, once for all users."""
        if not hasattr(Visitor, "papers"):
            Visitor.papers = []
            Visitor.fields = list(self._get_json("/api/facets", {})["fields"])[:5]
            hits = [hit for q in FORMULAS[:20] for hit in self._get_json("/api/search", {"q": q, "k": 5})["hits"]]
            Visitor.papers += sorted({hit["equation"]["paper"]["key"] for hit in hits})
            _READY.set()
        _READY.wait()

    def _get(self, kind: str, path: str, parameters: dict[str, Any], **headers: str) -> Any:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.client.get(path + query, name=kind, headers=headers)

    def _get_json(self, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._get("prepare", path, parameters).json()
        return answer

    def _search(self, kind: str, **parameters: Any) -> None:
        self._get(kind, "/api/search", {"k": HITS, **parameters})

    @task(50)
    def search_formula(self) -> None:
        """Search for a formula."""
        self._search("formula", q=random.choice(FORMULAS))

    @task(12)
    def search_explained(self) -> None:
        """Search with explanations."""
        self._search("explained", q=random.choice(FORMULAS), explain="true")

    @task(10)
    def search_filtered(self) -> None:
        """Search in one subject area."""
        self._search("filtered", q=random.choice(FORMULAS), field=random.choice(self.fields or [""]))

    @task(8)
    def search_both(self) -> None:
        """Search for a formula and words."""
        self._search("with words", q=random.choice(FORMULAS), text=random.choice(TEXTS))

    @task(5)
    def search_words(self) -> None:
        """Search for words."""
        self._search("words", text=random.choice(TEXTS))

    @task(10)
    def open_page(self) -> None:
        """Look at the start page or at a page of results."""
        path, parameters = random.choice([("/", {}), *2 * [("/search", {"q": random.choice(FORMULAS), "k": HITS})]])
        self._get("page", path, parameters, Accept="text/html")

    @task(5)
    def open_paper(self) -> None:
        """Look at the page of a paper."""
        self._get("paper", "/paper", {"key": random.choice(self.papers)})
