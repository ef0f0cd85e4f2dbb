"""The application: which address is answered by what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from eqkin.errors import EqkinError
from eqkin.library.judgements import KeepsJudgements
from eqkin.limits import LIMITS, Limits
from eqkin.search.engine import Engine
from eqkin.web import api, openapi, pages
from eqkin.web.errors import WebError, answer
from eqkin.web.guards import Guard
from eqkin.web.routes import ROUTES
from eqkin.web.service import Service
from eqkin.web.work import WorkQueue

STATIC = Path(__file__).parent / "static"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def create_app(
    engine: Engine, judgements: KeepsJudgements, *, limits: Limits = LIMITS, hosts: Sequence[str] = LOOPBACK
) -> Starlette:
    """The application over an engine.

    Args:
        engine: what searches.
        judgements: where those of people go.
        limits: bounds on requests.
        hosts: names by which requests may call the server; empty: any.
    """
    server = Service(engine, judgements, limits, WorkQueue(limits))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        server.queue.close()

    app = Starlette(
        routes=[
            Route("/", pages.home),
            Route("/search", pages.search),
            Route("/search.json", api.search),
            Route("/paper", pages.paper),
            Route("/paper.json", pages.paper_json),
            Route("/map", pages.plane),
            Route("/map.json", api.plane),
            Route("/api", openapi.api_page),
            Route("/openapi.json", openapi.openapi),
            *(Route(route.path, route.endpoint, methods=[route.method]) for route in ROUTES),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, limits=limits, hosts=hosts)],
        exception_handlers={kind: answer for kind in (WebError, EqkinError, HTTPException)},
        lifespan=lifespan,
    )
    app.state.service = server
    return app
