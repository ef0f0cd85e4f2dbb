"""The application and its routes."""

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
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, Limits
from eqkin.search.engine import SearchEngine
from eqkin.web import api, openapi, pages
from eqkin.web.errors import WebError, handle_error
from eqkin.web.guards import SecurityMiddleware
from eqkin.web.openapi import API_ROUTES
from eqkin.web.service import ServerState, WorkQueue

STATIC_FOLDER = Path(__file__).parent / "static"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


def create_app(
    engine: SearchEngine, judgements: LocalJudgements, *, limits: Limits = LIMITS, hosts: Sequence[str] = LOOPBACK_HOSTS
) -> Starlette:
    """Create the application of an engine.

    Args:
        engine: Searches.
        judgements: Stores judgements of users.
        limits: Bounds on requests.
        hosts: Host names that requests may use; empty: any.
    """
    server = ServerState(engine, judgements, limits, WorkQueue(limits))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        server.queue.close()

    app = Starlette(
        routes=[
            Route("/", pages.show_home),
            Route("/search", pages.show_search),
            Route("/search.json", api.search),
            Route("/paper", pages.show_paper),
            Route("/paper.json", pages.get_paper_json),
            Route("/map", pages.show_map),
            Route("/map.json", api.get_map),
            Route("/api", openapi.show_api_page),
            Route("/openapi.json", openapi.get_openapi),
            *(Route(route.path, route.endpoint, methods=[route.method]) for route in API_ROUTES),
            Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
        ],
        middleware=[Middleware(SecurityMiddleware, limits=limits, hosts=hosts)],
        exception_handlers={kind: handle_error for kind in (WebError, EqkinError, HTTPException)},
        lifespan=lifespan,
    )
    app.state.service = server
    return app
