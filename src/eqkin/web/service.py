"""What the requests of one server share: the engine, the queue of work, the judgements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from eqkin.library.judgements import JudgementStore
from eqkin.limits import Limits
from eqkin.search.engine import SearchEngine
from eqkin.web.work import WorkQueue

T = TypeVar("T")


@dataclass
class ServerState:
    """A server's state."""

    engine: SearchEngine
    judgements: JudgementStore
    limits: Limits
    queue: WorkQueue
    memory: dict[str, Any] = field(default_factory=dict)  # what is worked out once

    def compute_once(self, name: str, function: Callable[[], T]) -> T:
        """What the function gives, worked out at most once (twice, if two ask at the same time)."""
        if name not in self.memory:
            self.memory[name] = function()
        found: T = self.memory[name]
        return found


def get_state(request: Request) -> ServerState:
    """The state of the server that answers."""
    found: ServerState = request.app.state.service
    return found


class JsonResponse(Response):
    """An answer for programs: records and arrays as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The content's bytes."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
