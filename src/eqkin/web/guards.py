"""Middleware for every request: security headers, a limit on bodies, allowed host names."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eqkin.limits import Limits
from eqkin.web.errors import WebError, handle_error
from eqkin.web.service import ServerSettings

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_DRAIN_FACTOR = 10  # a body up to this many times too large is read to its end, so that the client sees the answer
_SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecurityMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, limits: Limits) -> None:
        self.app, self.settings, self.limits = app, settings, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        root = scope["root_path"] = self.settings.root_path
        if root and not scope["path"].startswith(root + "/"):  # the proxy has removed it
            scope["path"] = root + scope["path"]
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        try:
            self._check_request(scope)
            body = _LimitedBody(receive, self.limits.web_body_bytes)
            await self.app(scope, body, guarded_send)
        except Exception as error:
            if started:
                raise
            response = await handle_error(Request(scope), error)
            await response(scope, receive, guarded_send)

    def _check_request(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not host.endswith("]"):  # an IPv6 address without a port
            host = host.rsplit(":", 1)[0]
        if self.settings.hosts and host.lower() not in self.settings.hosts:  # protects against DNS rebinding
            raise WebError(421, "misdirected_request", "this server is not known by that name")
        site = headers.get("sec-fetch-site", "same-origin")
        if scope["method"] not in ("GET", "HEAD") and site not in ("same-origin", "none"):
            raise WebError(403, "forbidden", "other sites may not send anything here")
        try:
            scope["path"].encode("utf-8")
            unquote_to_bytes(scope["query_string"].replace(b"+", b" ")).decode("utf-8")
            unquote_to_bytes(scope.get("raw_path") or b"").decode("utf-8")
        except UnicodeError:
            raise WebError(400, "bad_request", "the address is not UTF-8") from None
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.web_body_bytes:
            raise _make_too_large_error(self.limits.web_body_bytes)


def _make_too_large_error(limit: int) -> WebError:
    # the rest of the body is not read, so the connection cannot be reused
    message = f"the request's body is larger than {limit:,} bytes"
    return WebError(413, "too_large", message, headers={"Connection": "close"})


class _LimitedBody:
    """A request's body; raises once it is larger than allowed, whatever its headers say."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._seen = receive, limit, 0

    async def __call__(self) -> Message:
        message = await self._receive_next()
        if self._seen > self._limit:
            while message.get("more_body") and self._seen < _DRAIN_FACTOR * self._limit:
                message = await self._receive_next()  # a client that is still sending would not see the answer
            raise _make_too_large_error(self._limit)
        return message

    async def _receive_next(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        return message
