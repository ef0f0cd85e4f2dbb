"""The application: routes, middleware and error handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from eqkin.errors import EqkinError
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, Limits
from eqkin.search.engine import SearchEngine
from eqkin.version import __version__
from eqkin.web import api, pages
from eqkin.web.errors import handle_error
from eqkin.web.guards import SecurityMiddleware
from eqkin.web.keys import PublicEngine
from eqkin.web.service import ServerState, WorkQueue
from eqkin.web.settings import LOOPBACK, ServerSettings

_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"], "allow_headers": ["Authorization"], "max_age": 3600,
}  # fmt: skip
STATIC_FOLDER = Path(__file__).parent / "static"


def create_app(
    engine: SearchEngine,
    judgements: LocalJudgements | None,
    settings: ServerSettings = LOOPBACK,
    limits: Limits = LIMITS,
) -> FastAPI:
    """Create the application of an engine.

    Args:
        engine: Searches.
        judgements: Stores judgements of users; without it they are refused.
        settings: Who may reach it, and under which names.
        limits: Bounds on requests.
    """
    takes_judgements = judgements is not None and not settings.read_only
    server = ServerState(
        engine=PublicEngine(engine),
        judgements=judgements,
        queue=WorkQueue(limits.web_workers, limits.web_waiting, limits.web_seconds),
        slow_queue=WorkQueue(limits.web_slow_workers, limits.web_slow_waiting, limits.web_seconds),
        templates=pages.create_environment(settings, takes_judgements=takes_judgements),
        settings=settings,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.queue.close()
        server.slow_queue.close()

    app = FastAPI(
        title="eqkin",
        version=__version__,
        description="Search engine for equations: related equations, and the papers that contain them.",
        # these pages load their scripts from another site
        docs_url=None,
        redoc_url=None,
        middleware=[
            *([Middleware(CORSMiddleware, **_CORS, allow_origins=settings.cors)] if settings.cors else []),
            Middleware(SecurityMiddleware, settings=settings, limits=limits),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4),
        ],
        exception_handlers={kind: handle_error for kind in (HTTPException, EqkinError, RequestValidationError)},
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = server
    app.include_router(api.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app
