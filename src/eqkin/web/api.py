"""The HTTP interface for programs: JSON in and out."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from eqkin.library.judgements import Judgement
from eqkin.search.results import MapPoints
from eqkin.web.errors import WebError, find_or_404, make_bad_request
from eqkin.web.exports import export_results as exported
from eqkin.web.parameters import EXPORT_FORMAT, FORMULA, PAPER_COUNT, PAPER_KEY, POINT_LIMIT, WebQuery, read_parameters
from eqkin.web.service import JsonResponse, get_state

_MAX_KEYWORD_CHARS = 200


async def search(request: Request) -> Response:
    """Return a result list."""
    server = get_state(request)
    return JsonResponse(
        await server.queue.run(WebQuery.from_params(request.query_params, explain=False).run, server.engine)
    )


async def get_facets(request: Request) -> Response:
    """Count fields and years of a query's candidates, or of the whole library."""
    server = get_state(request)
    query = WebQuery.from_params(request.query_params, explain=False)
    if query.is_given:
        results = await server.queue.run(query.run, server.engine)
        return JsonResponse({"fields": results.fields, "years": results.years})
    fields, years = await server.queue.run(server.engine.count_facets)
    return JsonResponse({"fields": fields, "years": years})


async def get_preview(request: Request) -> Response:
    """Return a formula as MathML, or an error with its position."""
    server = get_state(request)
    given = read_parameters(request.query_params, [FORMULA])["q"]
    if not given.strip():
        raise make_bad_request("q: a formula is required")
    shown = await server.queue.run(server.engine.preview, given)
    if shown.problem is not None:
        position = shown.problem.position
        raise WebError(400, "bad_formula", shown.problem.message, position if position >= 0 else None)
    return JsonResponse({"mathml": shown.mathml, "unknown": shown.unknown, "repaired": shown.repaired})


async def get_equation(request: Request) -> Response:
    """Return one equation."""
    server = get_state(request)
    return JsonResponse(await server.queue.run(find_or_404, server.engine.get_equation, request.path_params["id"]))


async def get_paper(request: Request) -> Response:
    """Return a paper and its equations by section."""
    server = get_state(request)
    return JsonResponse(await server.queue.run(find_or_404, server.engine.get_paper, read_paper_key(request)))


async def get_similar_papers(request: Request) -> Response:
    """Return papers related by their mathematics, with the pairs of equations that relate them."""
    server = get_state(request)
    k = read_parameters(request.query_params, [PAPER_COUNT])["k"]
    return JsonResponse(
        await server.queue.run(find_or_404, server.engine.find_similar_papers, read_paper_key(request), k)
    )


def read_paper_key(request: Request) -> str:
    """Return the key of the paper, from the path or from a parameter."""
    key = request.path_params.get("key") or read_parameters(request.query_params, [PAPER_KEY])["key"]
    if not key:
        raise make_bad_request("key: the paper's key is required")
    return str(key)


async def get_map(request: Request) -> Response:
    """Return the library's equations as points of a map."""
    server = get_state(request)
    limit = read_parameters(request.query_params, [POINT_LIMIT])["limit"]
    points = await server.queue.run(server.engine.build_map, limit)
    return JsonResponse(_to_columns(points))


def _to_columns(points: MapPoints) -> dict[str, Any]:
    """Convert a map to columns, with each field's name once."""
    names = sorted(set(points.fields))
    number = {name: i for i, name in enumerate(names)}
    return {
        "ids": points.ids,
        "names": names,
        "fields": [number[name] for name in points.fields],
        "x": points.coordinates[:, 0].astype(float).round(4).tolist(),
        "y": points.coordinates[:, 1].astype(float).round(4).tolist(),
    }


async def export(request: Request) -> Response:
    """Return a result list as a file."""
    server = get_state(request)
    form = read_parameters(request.query_params, [EXPORT_FORMAT])["format"]
    results = await server.queue.run(WebQuery.from_params(request.query_params, explain=False).run, server.engine)
    content, media_type, name = exported(results, form)
    return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'}, media_type=media_type)


async def get_health(request: Request) -> Response:
    """Report that the server is alive, which process answers, and its load; never waits for work."""
    queue, processes = get_state(request).queue, getattr(request.app.state, "processes", 1)
    return JsonResponse({"status": "ok", "under_way": queue.under_way, "process": os.getpid(), "processes": processes})


async def get_judgements(request: Request) -> Response:
    """Return all judgements as evaluation queries."""
    server = get_state(request)
    return JsonResponse({"queries": await server.queue.run(server.judgements.export)})


async def judge(request: Request) -> Response:
    """Store a judgement of a result."""
    server = get_state(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise WebError(415, "unsupported_media_type", "a judgement must be sent as application/json")
    try:
        async with asyncio.timeout(server.limits.web_seconds):
            judgement = _parse_judgement(await request.body())
    except TimeoutError:
        raise WebError(408, "request_timeout", "the body took too long", headers={"Connection": "close"}) from None

    def keep() -> Judgement:
        find_or_404(server.engine.get_equation, judgement.equation)
        return server.judgements.add(judgement)

    return JsonResponse(await server.queue.run(keep), 201)


def _parse_judgement(body: bytes) -> Judgement:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise make_bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise make_bad_request("the body is not a JSON object")
    texts = {name: given.get(name, "") for name in ("equation", "latex", "mathml", "words")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise make_bad_request(f"{name}: a string is required")
    keywords = given.get("keywords", [])
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        raise make_bad_request("keywords: a list of strings is required")
    if not isinstance(given.get("relevant"), bool):
        raise make_bad_request("relevant: true or false is required")
    words = tuple(word.strip()[:_MAX_KEYWORD_CHARS] for word in keywords if word.strip())
    return Judgement(relevant=given["relevant"], keywords=words, **texts)
