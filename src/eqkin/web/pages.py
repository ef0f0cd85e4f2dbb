"""The pages for people, whole from the server, and each of them as JSON."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.errors import BadInput
from eqkin.markup import tag
from eqkin.search.results import EquationRecord, PaperHit, PaperPage, Results
from eqkin.web import api
from eqkin.web.errors import WebError, found
from eqkin.web.home import example_cards, home_body
from eqkin.web.layout import page
from eqkin.web.paper_view import paper_body
from eqkin.web.query import Query
from eqkin.web.result_view import result_page
from eqkin.web.service import Json, Service, service

_RELATED = 6


class Found(NamedTuple):
    """What a result page shows."""

    results: Results
    origin: EquationRecord | None  # the equation whose kin was looked for


class Read(NamedTuple):
    """What a paper's page shows."""

    page: PaperPage
    related: list[PaperHit]


async def home(request: Request) -> Response:
    """The empty page: what this is, and some formulas to begin with."""
    server = service(request)

    def work() -> str:
        cards = server.once("examples", lambda: example_cards(server.engine))
        return page("", home_body(server.engine, cards))

    return HTMLResponse(await server.queue.run(work))


async def search(request: Request) -> Response:
    """A result list."""
    server = service(request)
    query = Query.of(request.query_params)
    if not query.asks:
        return await home(request)

    def work() -> str:
        shown = _find(server, query)
        asked = shown.origin.latex if shown.origin else query.q
        title = asked if 0 < len(asked) < 60 else query.text or "Results"
        return page(title, result_page(query, shown.results, shown.origin), query=query)

    return HTMLResponse(await server.queue.run(work))


def _find(server: Service, query: Query) -> Found:
    origin = found(server.engine.equation, query.like) if query.like else None
    return Found(query.answer(server.engine), origin)


async def paper(request: Request) -> Response:
    """A paper: its equations by section, its related papers."""
    server, key = service(request), api.page_key(request)

    def work() -> str:
        read = _read(server, key)
        return page(read.page.paper.title or key, paper_body(read.page, read.related))

    return HTMLResponse(await server.queue.run(work))


async def paper_json(request: Request) -> Response:
    """The same for programs."""
    server, key = service(request), api.page_key(request)
    read = await server.queue.run(_read, server, key)
    return Json({"paper": read.page, "related": read.related})


def _read(server: Service, key: str) -> Read:
    shown = found(server.engine.paper, key)
    return Read(shown, _related(server, shown))


def _related(server: Service, shown: PaperPage) -> list[PaperHit]:
    try:
        return server.engine.similar_papers(shown.paper.key, _RELATED)
    except BadInput:  # it has no equations that could be compared
        return []


async def plane(request: Request) -> Response:
    """The map: the library's equations as points, related ones near each other."""
    canvas = tag("canvas", id="map", tabindex="0", role="img", aria_label="Map of the library's equations")
    zoom = [
        tag("button", sign, type="button", class_="icon", id=name, aria_label=label, title=label)
        for sign, name, label in (("+", "zoom-in", "Closer"), ("−", "zoom-out", "Farther"), ("⌂", "zoom-all", "All"))
    ]
    told = tag("div", id="point", role="status", aria_live="polite", hidden=True)
    hint = tag(
        "p", "Each point is an equation; related ones lie near each other. Click one to open it.", class_="quiet"
    )
    legend = tag("div", id="legend", aria_label="Fields")
    stage = tag("div", canvas, tag("div", zoom, class_="zoom"), told, class_="stage")
    body = tag("div", tag("div", tag("h1", "Map"), hint, class_="map-head"), stage, legend, class_="map")
    return HTMLResponse(page("Map", body, script="map", wide=True))


def error_page(request: Request, error: WebError) -> Response:
    """What went wrong, as a page; the form still shows what was asked."""
    try:
        query = Query.of(request.query_params)
    except WebError:
        query = Query()
    where = tag("pre", _pointed(query.q, error.position), class_="pointed") if error.position is not None else None
    body = tag(
        "div",
        tag("h1", "Not found" if error.status == 404 else "That did not work"),
        tag("p", error.message, f" (character {error.position + 1})" if error.position is not None else None),
        where,
        tag("p", tag("a", "Start anew", href="/")),
        class_="prose problem",
        role="alert",
        data_position=error.position,
    )
    title = "Not found" if error.status == 404 else "Error"
    return HTMLResponse(page(title, body, query=query), error.status, error.headers)


def _pointed(formula: str, position: int) -> list[str]:
    start = max(0, position - 60)
    return [formula[start:position], tag("mark", formula[position : position + 1] or " "), formula[position + 1 :][:60]]
