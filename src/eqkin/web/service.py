"""What the requests of a server share: settings, engine, judgements, bounded queues of work, and errors.

Errors have one format, problem details (RFC 9457): `{"title", "status", "code", "detail", "position"?}`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import jinja2
import orjson
from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from eqkin.errors import BadInput, CorruptData, EqkinError, LibraryBusy, LimitReached, StorageFailed, Unreachable
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, CancelScope
from eqkin.search.query import FormulaError, UnreadableFormula
from eqkin.web.keys import PublicEngine

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
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


async def wait_forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


# Returns when the client of the current request has gone.
WAIT_FOR_DISCONNECT: ContextVar[Callable[[], Coroutine[Any, Any, None]]] = ContextVar(
    "wait_for_disconnect", default=wait_forever
)


class WorkQueue:
    """Runs functions in a few threads, with a bounded queue and a time limit. Used from one event loop.

    A function is cancelled when its time is over or its client has gone.
    """

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="eqkin-web")
        self._room = threads + waiting
        self._seconds = seconds
        # requests that wait or run
        self.under_way = 0

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a function; raises `WebError` (503) if the queue is full, the time is up or the client has gone.

        A function that was given up keeps its place until it ends, so that the queue stays bounded.
        """
        if self.under_way >= self._room:
            raise make_busy_error("too many requests at the moment; come again in a second")
        self.under_way += 1
        loop = asyncio.get_running_loop()
        scope = CancelScope()
        future = self._threads.submit(scope.run, function, *arguments, **named)
        future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._leave))
        answer = asyncio.wrap_future(future)
        gone = asyncio.ensure_future(WAIT_FOR_DISCONNECT.get()())
        awaited: set[asyncio.Future[Any]] = {answer, gone}
        try:
            await asyncio.wait(awaited, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
        except asyncio.CancelledError:
            raise make_busy_error("the server is stopping") from None
        finally:
            gone.cancel()
            scope.cancel()
            if not answer.done():
                # nobody waits for it
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
                future.cancel()
        raise make_busy_error(f"gave up after {self._seconds:g} seconds")

    def _leave(self) -> None:
        self.under_way -= 1

    def close(self) -> None:
        """Stop accepting work; running functions finish."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class ServerState:
    """State of a server process."""

    engine: PublicEngine
    # None: this server keeps none.
    judgements: LocalJudgements | None
    # Runs searches.
    queue: WorkQueue
    # Runs what takes long: drafts, whole papers, exports. Searches do not wait for it.
    slow_queue: WorkQueue
    templates: jinja2.Environment
    settings: ServerSettings

    def render(self, template: str, **context: Any) -> str:
        """Render a template of the pages."""
        return self.templates.get_template(template).render(context)


async def get_state(request: Request) -> ServerState:
    """Return the state of the server that handles a request."""
    found: ServerState = request.app.state.service
    return found


State = Annotated[ServerState, Depends(get_state)]


class JsonResponse(Response):
    """A JSON response of records and arrays."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Serialise the content."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True)
class ProblemDetails:
    """An error, as RFC 9457 describes it."""

    title: str
    status: int
    # A stable name for programs.
    code: str
    # A sentence for people.
    detail: str
    # Position of the wrong character in the formula, counted from 1.
    position: int | None


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
    # The message contains paths of the server.
    if status >= 500:
        _LOG.error("%s", error)
        headers = {"Retry-After": str(LIMITS.web_retry_seconds)} if status == 503 else {}
        return WebError(status, code, _PUBLIC_MESSAGES[code], headers=headers)
    if isinstance(error, FormulaError):
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


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server; every process of it reads them from its environment."""

    # Folder of the library.
    library: str = ""
    # Address of a Milvus server that has the collection, instead of a library.
    milvus: str = ""
    collection: str = ""
    # The network of the collection's vectors; None: the bundled one.
    model: str | None = None
    # Number of processes.
    workers: int = 1

    # Host names that requests may use; empty: any.
    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    # Requests may also use an IP address as the host.
    any_address: bool = False
    # Path under which a proxy shows the server, as in "/eqkin".
    root_path: str = ""
    # Origins whose scripts may use the HTTP interface; "*": any.
    cors: tuple[str, ...] = ()
    # Origins that may show the page in a frame.
    frames: tuple[str, ...] = ()
    # What clients must know.
    token: str = ""
    # Refuse judgements and drafts.
    read_only: bool = False
    # Addresses and networks of proxies whose X-Forwarded-* headers are believed.
    proxies: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ServerSettings:
        """Return the settings that `to_json` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(ServerSettings)
# A server that only this machine reaches.
LOOPBACK = ServerSettings()
