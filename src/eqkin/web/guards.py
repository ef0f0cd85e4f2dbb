"""Middleware for every request: who may ask, how often and how much; and security headers of every response."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import math
import time
from contextlib import suppress
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eqkin.limits import Limits
from eqkin.web.errors import WebError, handle_error
from eqkin.web.service import WAIT_FOR_DISCONNECT
from eqkin.web.settings import LoadBoard, RateLimiter, ServerSettings

UPLOAD_PATHS = ("/api/similar-papers", "/draft")  # a draft is larger than other bodies
_OPEN_PATHS = ("/healthz", "/robots.txt")  # for anyone, as often as they like
_DRAIN_FACTOR = 10  # a body up to this many times too large is read to its end, so that the client sees the answer


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

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        limits: Limits,
        board: LoadBoard | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.app, self.settings, self.limits, self.board, self._limiter = app, settings, limits, board, limiter
        self._headers = build_security_headers(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        root = self.settings.root_path
        stripped = not f"{scope['path']}/".startswith(f"{root}/")  # the proxy has removed it
        path = root + scope["path"] if stripped else scope["path"]
        # the server leaves the body of an answer to HEAD out by itself
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        scope = {**scope, "root_path": root, "path": path, "method": method}
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-cache")
                if self.board is not None and self.board.has_too_many:
                    headers["Connection"] = "close"
            await send(message)

        try:
            path = scope["path"].removeprefix(root)
            takes_files = path in UPLOAD_PATHS and not self.settings.read_only
            limit = self.limits.web_upload_bytes if takes_files else self.limits.web_body_bytes
            self._check_request(scope, Headers(scope=scope), path, limit)
            body = _LimitedBody(receive, limit, self.limits.web_seconds)
            WAIT_FOR_DISCONNECT.set(body.wait_for_disconnect)
            await self.app(scope, body, guarded_send)
        except Exception as error:
            if started:
                raise
            response = await handle_error(Request(scope), error)
            await response(scope, receive, guarded_send)

    def _check_request(self, scope: Scope, headers: Headers, path: str, limit: int) -> None:
        """Raise `WebError` if the request is not admitted."""
        if not self._is_known_host(headers.get("host", "").lower()):  # protects against DNS rebinding
            raise WebError(421, "misdirected_request", "this server is not known by that name (see --allowed-host)")
        if path not in _OPEN_PATHS:
            self._check_client(scope, headers, path)
        if scope["method"] != "GET" and self._is_foreign(headers):
            raise WebError(403, "forbidden", "other sites may not send anything here (see --cors)")
        if "content-length" in headers and "transfer-encoding" in headers:  # a proxy may see another request in it
            message = "Content-Length and Transfer-Encoding exclude each other"
            raise WebError(400, "bad_request", message, headers={"Connection": "close"})
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
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]  # an IPv6 address has brackets
        if not self.settings.hosts or name in self.settings.hosts:
            return True
        with suppress(ValueError):
            return self.settings.any_address and bool(ipaddress.ip_address(name.strip("[]")))
        return False

    def _is_foreign(self, headers: Headers) -> bool:
        """Return whether a script or form of another site, which is not admitted by CORS, sends the request."""
        origin = headers.get("origin", "")
        if {origin, "*"} & set(self.settings.cors):
            return False
        if "sec-fetch-site" in headers:
            return headers["sec-fetch-site"] not in ("same-origin", "none")
        host = origin.partition("://")[2].lower()
        own = host == headers.get("host", "").lower() or host.rsplit(":", 1)[0] in self.settings.hosts
        return bool(origin) and not own

    def _check_client(self, scope: Scope, headers: Headers, path: str) -> None:
        if self._limiter is not None and not path.startswith("/static/"):
            delay = self._limiter.compute_delay(_get_client(scope), time.monotonic())
            if delay:
                message = "too many requests from this address; come again later"
                raise WebError(429, "too_many_requests", message, headers={"Retry-After": str(math.ceil(delay))})
        if self.settings.token and not _has_token(headers, self.settings.token):
            asked = {"WWW-Authenticate": 'Basic realm="eqkin: the token is the password", charset="UTF-8", Bearer'}
            raise WebError(401, "unauthorized", "this server asks for its token", headers=asked)


def _get_client(scope: Scope) -> str:
    """Return the client's address; of IPv6 the network, within which a client chooses freely."""
    address: str = (scope.get("client") or ("",))[0]
    with suppress(ValueError):
        if ":" in address:
            return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    return address


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
    """A request's body; raises once it is larger or takes longer than allowed, whatever its headers say."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive, self._limit, self._seen, self._complete = receive, limit, 0, False
        self._latest = asyncio.get_running_loop().time() + seconds

    async def __call__(self) -> Message:
        message = await self._receive_next()
        if self._seen > self._limit:
            while message.get("more_body") and self._seen < _DRAIN_FACTOR * self._limit:
                message = await self._receive_next()  # a client that is still sending would not see the answer
            raise _make_too_large_error(self._limit)
        return message

    async def wait_for_disconnect(self) -> None:
        """Return when the client has gone; for handlers that have read the body or need none of it."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _receive_next(self) -> Message:
        try:
            async with asyncio.timeout_at(None if self._complete else self._latest):
                message = await self._receive()
        except TimeoutError:
            raise WebError(408, "request_timeout", "the body took too long", headers={"Connection": "close"}) from None
        self._seen += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message
