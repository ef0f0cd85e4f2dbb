"""Errors in one format, problem details (RFC 9457): `{"title", "status", "code", "detail", "position"?}`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from eqkin.errors import BadInput, CorruptData, EqkinError, LibraryBusy, LimitReached, StorageFailed, Unreachable
from eqkin.limits import LIMITS
from eqkin.search.query import OversizedFormula, UnreadableFormula

T = TypeVar("T")
_LOG = logging.getLogger("eqkin.web")
_STATUS_OF_ERROR: dict[type[EqkinError], tuple[int, str]] = {
    BadInput: (400, "bad_input"),
    LimitReached: (400, "limit_reached"),
    CorruptData: (500, "corrupt_data"),
    LibraryBusy: (503, "library_busy"),
    StorageFailed: (503, "storage_failed"),
    Unreachable: (503, "unreachable"),
}
_PUBLIC_MESSAGES = {
    "corrupt_data": "the library is damaged; the server's log says where",
    "library_busy": "another process is writing to the library; come again in a second",
    "storage_failed": "the library's disk, or the database behind this server, refuses; the server's log says why",
    "unreachable": "the database behind this server does not answer at the moment; come again in a second",
}


@dataclass(frozen=True)
class ProblemDetails:
    """An error, as RFC 9457 describes it."""

    title: str
    status: int
    code: str  # for programs; stable
    detail: str  # for people
    position: int | None  # of the wrong character in the formula, counted from 1


class WebError(HTTPException):
    """An error response: the values of `ProblemDetails`, and further headers."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        position: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.code: str = code
        self.position: int | None = position

    @property
    def problem(self) -> ProblemDetails:
        """What the client is told."""
        title = HTTPStatus(self.status_code).phrase
        return ProblemDetails(title, self.status_code, self.code, self.detail, self.position)


def find_or_404(look: Callable[..., T], key: str, *arguments: Any) -> T:
    """Look something up by a key; a key that does not exist is a 404."""
    try:
        return look(key, *arguments)
    except BadInput as error:
        raise WebError(404, "not_found", str(error)) from error


def make_busy_error(message: str) -> WebError:
    """Make the error of an overloaded server."""
    return WebError(503, "busy", message, headers={"Retry-After": str(LIMITS.web_retry_seconds)})


def to_web_error(error: Exception) -> WebError:
    """Convert an exception to the error that the client sees."""
    if isinstance(error, WebError):
        return error
    if isinstance(error, RequestValidationError):
        messages = []
        for wrong in error.errors()[:5]:
            if wrong["type"] == "json_invalid":
                return WebError(400, "bad_request", f"the body is not JSON (from character {wrong['loc'][-1]} on)")
            place = ".".join(map(str, wrong["loc"][1:])) or "the body"
            messages.append(f"{place}: {wrong['msg'][:1].lower()}{wrong['msg'][1:]}")
        return WebError(400, "bad_request", "; ".join(messages))
    if isinstance(error, ClientDisconnect):
        return WebError(400, "client_disconnected", "the client has gone before its request was complete")
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_").replace("-", "_")
        detail = "there is no such address here" if error.status_code == 404 else error.detail
        return WebError(error.status_code, code, detail, headers=error.headers)
    for family, (status, code) in _STATUS_OF_ERROR.items():
        if isinstance(error, family):
            return _convert_known_error(error, status, code)
    _LOG.error("a request failed", exc_info=error)
    return WebError(500, "internal", "internal error; the server's log has the details")


def _convert_known_error(error: EqkinError, status: int, code: str) -> WebError:
    if status >= 500:  # the message contains paths of the server
        _LOG.error("%s", error)
        headers = {"Retry-After": str(LIMITS.web_retry_seconds)} if status == 503 else {}
        return WebError(status, code, _PUBLIC_MESSAGES[code], headers=headers)
    if isinstance(error, UnreadableFormula | OversizedFormula):
        problem = error.problem
        code = "bad_formula" if isinstance(error, UnreadableFormula) else code
        return WebError(status, code, problem.message, problem.position + 1 if problem.position >= 0 else None)
    return WebError(status, code, str(error))


async def handle_error(request: Request, error: Exception) -> Response:
    """Handle any exception: JSON for programs, a page for browsers."""
    web_error = to_web_error(error)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    is_page = not path.startswith(("/api/", "/static/")) and path not in ("/openapi.json", "/healthz", "/export")
    if is_page and "text/html" in request.headers.get("accept", ""):
        from eqkin.web.pages import render_error

        return render_error(request, web_error)
    return Response(
        orjson.dumps(web_error.problem), web_error.status_code, web_error.headers, "application/problem+json"
    )
