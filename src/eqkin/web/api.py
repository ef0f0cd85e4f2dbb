"""The interface for programs: JSON in and out."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from eqkin.library.judgements import Judgement
from eqkin.search.results import MapPoints
from eqkin.web.errors import WebError, bad_request, found
from eqkin.web.exports import export as exported
from eqkin.web.parameters import FORMAT, KEY, PAPERS, POINTS, Q, read
from eqkin.web.query import Query
from eqkin.web.service import Json, service

_KEYWORD_CHARS = 200


async def search(request: Request) -> Response:
    """A result list."""
    server = service(request)
    return Json(await server.queue.run(Query.of(request.query_params, explain=False).answer, server.engine))


async def facets(request: Request) -> Response:
    """Fields and years with their counts: of a query's candidates, or of the whole library."""
    server = service(request)
    query = Query.of(request.query_params, explain=False)
    if query.asks:
        results = await server.queue.run(query.answer, server.engine)
        return Json({"fields": results.fields, "years": results.years})
    fields, years = await server.queue.run(server.engine.facets)
    return Json({"fields": fields, "years": years})


async def preview(request: Request) -> Response:
    """A formula as MathML, or what is wrong with it and where."""
    server = service(request)
    given = read(request.query_params, [Q])["q"]
    if not given.strip():
        raise bad_request("q: a formula is needed")
    shown = await server.queue.run(server.engine.preview, given)
    if shown.problem is not None:
        position = shown.problem.position
        raise WebError(400, "bad_formula", shown.problem.message, position if position >= 0 else None)
    return Json({"mathml": shown.mathml, "unknown": shown.unknown, "repaired": shown.repaired})


async def equation(request: Request) -> Response:
    """One equation."""
    server = service(request)
    return Json(await server.queue.run(found, server.engine.equation, request.path_params["id"]))


async def paper(request: Request) -> Response:
    """A paper and its equations by section."""
    server = service(request)
    return Json(await server.queue.run(found, server.engine.paper, page_key(request)))


async def similar_papers(request: Request) -> Response:
    """Papers related to one by their mathematics, with the pairs of equations that say so."""
    server = service(request)
    k = read(request.query_params, [PAPERS])["k"]
    return Json(await server.queue.run(found, server.engine.similar_papers, page_key(request), k))


def page_key(request: Request) -> str:
    """The key of the paper a request is about: in its path, or as a parameter."""
    key = request.path_params.get("key") or read(request.query_params, [KEY])["key"]
    if not key:
        raise bad_request("key: the paper's key is needed")
    return str(key)


async def plane(request: Request) -> Response:
    """The library's equations on a plane."""
    server = service(request)
    limit = read(request.query_params, [POINTS])["limit"]
    points = await server.queue.run(server.engine.map, limit)
    return Json(_compact(points))


def _compact(points: MapPoints) -> dict[str, Any]:
    """The map with each field's name once."""
    names = sorted(set(points.fields))
    number = {name: i for i, name in enumerate(names)}
    return {
        "ids": points.ids,
        "names": names,
        "fields": [number[name] for name in points.fields],
        "x": points.places[:, 0].astype(float).round(4).tolist(),
        "y": points.places[:, 1].astype(float).round(4).tolist(),
    }


async def export(request: Request) -> Response:
    """A result list as a file."""
    server = service(request)
    form = read(request.query_params, [FORMAT])["format"]
    results = await server.queue.run(Query.of(request.query_params, explain=False).answer, server.engine)
    content, media_type, name = exported(results, form)
    return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'}, media_type=media_type)


async def health(request: Request) -> Response:
    """That the server is there, which of its processes answers, and how busy that is; never waits for work."""
    queue, processes = service(request).queue, getattr(request.app.state, "processes", 1)
    return Json({"status": "ok", "under_way": queue.under_way, "process": os.getpid(), "processes": processes})


async def judgements(request: Request) -> Response:
    """What people said of results, as evaluation queries."""
    server = service(request)
    return Json({"queries": await server.queue.run(server.judgements.export)})


async def judge(request: Request) -> Response:
    """Keep what someone says of a result."""
    server = service(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise WebError(415, "unsupported_media_type", "a judgement is sent as application/json")
    try:
        async with asyncio.timeout(server.limits.web_seconds):
            judgement = _judgement(await request.body())
    except TimeoutError:
        raise WebError(408, "request_timeout", "the body took too long", headers={"Connection": "close"}) from None

    def keep() -> Judgement:
        found(server.engine.equation, judgement.equation)
        return server.judgements.add(judgement)

    return Json(await server.queue.run(keep), 201)


def _judgement(body: bytes) -> Judgement:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise bad_request("the body is no JSON object")
    texts = {name: given.get(name, "") for name in ("equation", "latex", "mathml", "words")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise bad_request(f"{name}: a string is needed")
    keywords = given.get("keywords", [])
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        raise bad_request("keywords: a list of strings is needed")
    if not isinstance(given.get("relevant"), bool):
        raise bad_request("relevant: true or false is needed")
    words = tuple(word.strip()[:_KEYWORD_CHARS] for word in keywords if word.strip())
    return Judgement(relevant=given["relevant"], keywords=words, **texts)
