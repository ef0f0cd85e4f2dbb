"""A real server over a real library, and a real browser, one of each for all tests of the web."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from eqkin import Encoder, Library
from eqkin.index.update import update_index
from eqkin.library.judgements import LocalJudgements
from eqkin.search.engine import SearchEngine
from eqkin.web.app import create_app
from eqkin.web.server import get_url, make_config, open_listener
from eqkin.web.service import LOOPBACK, ServerSettings

HOSTILE = "record:hostile"
YEARS = (1999, 2007, 2019)


def papers(folder: Path) -> Path:
    """Papers with years, and one that tries whatever it can."""
    records = [
        {
            "doc_id": f"dated-{year}",
            "title": f"Energy in {year}",
            "year": year,
            "authors": ["Émilie du Châtelet", "Müller and Sons"],
            "fields": ["energetics"],
            "latex": r"\section{Motion} Kinetic energy. "
            rf"\[ E_{{{year}}} = \frac12 m v^2 \] \[ W = \oint F dx_{{{year}}} \]",
        }
        for year in YEARS
    ]
    script = "<script>alert(1)</script>"
    image = "<img src=https://example.org/x.png onerror=alert(2)>"
    records.append(
        {
            "doc_id": "hostile",
            "title": f"=cmd() {script}{image} 100% {{unbalanced",
            "year": 2019,
            "authors": [f"Eve {image}", "@SUM(A1) \\\\evil{"],
            "fields": [f"field{script}"],
            "abstract": f"{script}{image}",
            "latex": rf"\section{{Sec {script}}} Prose {image} here. "
            rf"\[ \Xi_{{evil}} = \text{{{script}}} + \text{{{image}}} \] after {script}",
        }
    )
    path = folder / "papers.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas_library: Path, encoder: Encoder) -> Path:
    """A library of the atlas and those papers."""
    place = tmp_path_factory.mktemp("web")
    with Library.open(shutil.copytree(atlas_library, place / "library")) as library:
        library.add(papers(place))
        update_index(library, encoder)
        return library.folder


@pytest.fixture(scope="session")
def engine(folder: Path, encoder: Encoder) -> Iterator[SearchEngine]:
    with SearchEngine(folder, encoder) as made:
        yield made


class Running:
    """A server in a thread of its own."""

    def __init__(self, app: object, settings: ServerSettings = LOOPBACK) -> None:
        self.listener = open_listener("127.0.0.1", 0)
        self.address = get_url(self.listener)
        self._server = uvicorn.Server(make_config(app, settings))  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=30)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self.listener.close()


@pytest.fixture(scope="session")
def server(engine: SearchEngine, folder: Path) -> Iterator[Running]:
    running = Running(create_app(engine, LocalJudgements(folder)))
    yield running
    running.stop()


def make_client(engine: SearchEngine, folder: Path, **settings: object) -> TestClient:
    """A client of an application, without a server between them."""
    app = create_app(engine, LocalJudgements(folder), ServerSettings(**settings))  # type: ignore[arg-type]
    return TestClient(app, "http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def client(engine: SearchEngine, folder: Path) -> Iterator[TestClient]:
    with make_client(engine, folder) as made:
        yield made


def chromium() -> str | None:
    """The browser that is installed."""
    named = os.environ.get("EQKIN_CHROMIUM", "")
    return next(
        (found for name in (named, "chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
        None,
    )
