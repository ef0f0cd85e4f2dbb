"""State that the requests of a server share: engine, judgements, and bounded queues of work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import jinja2
import orjson
from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from eqkin.library.judgements import LocalJudgements
from eqkin.limits import CancelScope
from eqkin.web.errors import make_busy_error
from eqkin.web.keys import PublicEngine
from eqkin.web.settings import ServerSettings

T = TypeVar("T")


async def wait_forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


WAIT_FOR_DISCONNECT: ContextVar[Callable[[], Coroutine[Any, Any, None]]] = ContextVar(
    "wait_for_disconnect", default=wait_forever
)  # returns when the client of the current request has gone


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
    judgements: LocalJudgements | None  # None: this server keeps none
    queue: WorkQueue  # for searches
    slow_queue: WorkQueue  # for what takes long: drafts, whole papers, maps, exports; searches do not wait for it
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
