"""The application: routes, error handlers, and the middleware that refuses and protects."""

from __future__ import annotations

import base64
import hmac
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eqkin.errors import EqkinError
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, Limits
from eqkin.search.engine import SearchEngine
from eqkin.version import __version__
from eqkin.web import api, pages
from eqkin.web.keys import PublicEngine
from eqkin.web.service import (
    LOOPBACK,
    WAIT_FOR_DISCONNECT,
    ServerSettings,
    ServerState,
    WebError,
    WorkQueue,
    handle_error,
)

_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"], "allow_headers": ["Authorization"], "max_age": 3600,
}  # fmt: skip
STATIC_FOLDER = Path(__file__).parent / "static"
# A draft is larger than other bodies.
UPLOAD_PATHS = ("/api/similar-papers", "/draft")
# These paths need no token.
_OPEN_PATHS = ("/healthz", "/robots.txt")


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


def build_security_headers(settings: ServerSettings) -> dict[str, str]:
    """Build the headers of every response."""
    ancestors = " ".join(settings.frames) or "'none'"
    shared = bool(settings.frames or settings.cors)
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
        f"frame-ancestors {ancestors}"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "cross-origin" if shared else "same-origin",
    }


class SecurityMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, limits: Limits) -> None:
        self.app: ASGIApp = app
        self._settings = settings
        self._limits = limits
        self._headers = build_security_headers(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        root = self._settings.root_path
        path = scope["path"].removeprefix(root) if f"{scope['path']}/".startswith(f"{root}/") else scope["path"]
        # the server leaves the body of an answer to HEAD out by itself
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        # a proxy may have removed the root path or not: from here on it is there
        scope = {**scope, "root_path": root, "path": root + path, "method": method}
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        try:
            takes_files = path in UPLOAD_PATHS and not self._settings.read_only
            limit = self._limits.web_upload_bytes if takes_files else self._limits.web_body_bytes
            self._check_request(scope, Headers(scope=scope), path, limit)
            body = _LimitedBody(receive, limit)
            WAIT_FOR_DISCONNECT.set(body.wait_for_disconnect)
            await self.app(scope, body, guarded_send)
        except Exception as error:
            if started:
                raise
            response = await handle_error(Request(scope), error)
            await response(scope, receive, guarded_send)

    def _check_request(self, scope: Scope, headers: Headers, path: str, limit: int) -> None:
        """Raise `WebError` if the request is not admitted."""
        # a site that resolves to this address is not to be read by its scripts (DNS rebinding)
        if not self._is_known_host(headers.get("host", "").lower()):
            raise WebError(421, "misdirected_request", "this server is not known by that name (see --allowed-host)")
        token = self._settings.token
        if token and path not in _OPEN_PATHS and not _has_token(headers, token):
            asked = {"WWW-Authenticate": 'Basic realm="eqkin: the token is the password", charset="UTF-8", Bearer'}
            raise WebError(401, "unauthorized", "this server asks for its token", headers=asked)
        if scope["method"] != "GET" and self._is_foreign(headers):
            raise WebError(403, "forbidden", "other sites may not send anything here (see --cors)")
        try:
            scope["path"].encode("utf-8")
            unquote_to_bytes(scope["query_string"].replace(b"+", b" ")).decode("utf-8")
            unquote_to_bytes(scope.get("raw_path") or b"").decode("utf-8")
        except UnicodeError:
            raise WebError(400, "bad_request", "the address is not UTF-8") from None
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise _make_too_large_error(limit)

    def _is_known_host(self, host: str) -> bool:
        """Return whether requests may use a host, with or without a port."""
        # an IPv6 address has brackets
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        if not self._settings.hosts or name in self._settings.hosts:
            return True
        with suppress(ValueError):
            return self._settings.any_address and bool(ipaddress.ip_address(name.strip("[]")))
        return False

    def _is_foreign(self, headers: Headers) -> bool:
        """Return whether a script or form of another site, which is not admitted by CORS, sends the request."""
        origin = headers.get("origin", "")
        if {origin, "*"} & set(self._settings.cors):
            return False
        if "sec-fetch-site" in headers:
            return headers["sec-fetch-site"] not in ("same-origin", "none")
        host = origin.partition("://")[2].lower()
        own = host == headers.get("host", "").lower() or host.rsplit(":", 1)[0] in self._settings.hosts
        return bool(origin) and not own


def _has_token(headers: Headers, token: str) -> bool:
    """Return whether a request has the token, as a bearer token or as the password that a browser asks for."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    return scheme.lower() in ("basic", "bearer") and hmac.compare_digest(given.encode(), token.encode())


def _make_too_large_error(limit: int) -> WebError:
    # the rest of the body is not read, so the connection cannot be reused
    message = f"the request's body is larger than {limit:,} bytes"
    return WebError(413, "too_large", message, headers={"Connection": "close"})


class _LimitedBody:
    """A request's body; raises once it is larger than allowed, whatever its headers say."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise _make_too_large_error(self._limit)
        return message

    async def wait_for_disconnect(self) -> None:
        """Return when the client has gone; for handlers that have read the body or need none of it."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
