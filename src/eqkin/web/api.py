"""The HTTP interface for programs: JSON in and out."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from eqkin.library.judgements import Judgement
from eqkin.limits import LIMITS
from eqkin.search.results import EquationRecord, MapPoints, PaperHit, PaperPage, Results
from eqkin.web.errors import WebError, find_or_404
from eqkin.web.exports import export_results
from eqkin.web.models import (
    ExportParams,
    FacetCounts,
    Health,
    Judgements,
    MapColumns,
    NewJudgement,
    PageSearch,
    Problem,
    Reading,
    SearchParams,
    Text,
)
from eqkin.web.service import JsonResponse, State


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse parameters that the route does not have, so that a misspelt one is noticed."""
    path = request.scope["route"].path_format
    operation = request.app.openapi()["paths"][path][request.method.lower().replace("head", "get")]
    known = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    if unknown := sorted(set(request.query_params) - known):
        choices = f"; it has {', '.join(sorted(known))}" if known else ""
        raise WebError(400, "bad_request", f"{unknown[0][:40]}: there is no such parameter here{choices}")


_PROBLEM: dict[str, Any] = {"model": Problem, "content": {"application/problem+json": {}}}
router = APIRouter(
    dependencies=[Depends(refuse_unknown_parameters)],
    responses={
        "4XX": {"description": "The request is wrong, or something does not exist."} | _PROBLEM,
        "503": {"description": "Overloaded; retry after the time in Retry-After."} | _PROBLEM,
    },
)
SearchQuery = Annotated[SearchParams, Query()]


@router.get("/api/search", response_model=Results)
async def search(params: SearchQuery, server: State) -> Response:
    """Find equations related to a formula, best first."""
    return JsonResponse(await server.queue.run(params.run, server.engine))


@router.get("/api/preview", response_model=Reading)
async def get_preview(server: State, q: Annotated[Text, Query(description="The formula.", min_length=1)]) -> Response:
    """Return a formula as MathML; or error 400 with the position of the mistake."""
    shown = await server.queue.run(server.engine.preview, q)
    if shown.problem is not None:
        position = shown.problem.position
        raise WebError(400, "bad_formula", shown.problem.message, position + 1 if position >= 0 else None)
    return JsonResponse(Reading(shown.mathml, shown.unknown, shown.repaired))


@router.get("/api/equation/{id:path}", response_model=EquationRecord)
async def get_equation(id: str, server: State) -> Response:
    """Return one equation: LaTeX, MathML, paper and section."""
    return JsonResponse(await server.queue.run(find_or_404, server.engine.get_equation, id))


@router.get("/api/paper/{key:path}", response_model=PaperPage)
async def get_paper(key: str, server: State) -> Response:
    """Return a paper with its equations by section."""
    return JsonResponse(await server.queue.run(find_or_404, server.engine.get_paper, key))


@router.get("/api/similar-papers/{key:path}", response_model=list[PaperHit])
async def get_similar_papers(
    key: str,
    server: State,
    k: Annotated[int, Query(ge=1, le=LIMITS.web_papers, description="Number of papers.")] = 10,
) -> Response:
    """Find papers related by their mathematics, with the pairs of equations that relate them."""
    return JsonResponse(await server.queue.run(find_or_404, server.engine.find_similar_papers, key, k))


@router.get("/api/facets", response_model=FacetCounts)
async def get_facets(params: SearchQuery, server: State) -> Response:
    """Count fields and years: of a query's candidates, or without a query of the whole library."""
    if not params.is_given:
        return JsonResponse(FacetCounts(*await server.queue.run(server.engine.count_facets)))
    results = await server.queue.run(PageSearch(**params.model_dump(exclude_defaults=True)).run, server.engine)
    fields = {str(facet.value): facet.pool for facet in results.fields}
    return JsonResponse(FacetCounts(fields, {int(facet.value): facet.pool for facet in results.years}))


@router.get("/api/map", response_model=MapColumns)
async def get_map(
    server: State,
    limit: Annotated[int, Query(ge=1, le=LIMITS.web_points, description="At most this many.")] = LIMITS.web_points,
) -> Response:
    """Return the library's equations as points of a map."""
    return JsonResponse(_to_columns(await server.queue.run(server.engine.build_map, limit)))


def _to_columns(points: MapPoints) -> MapColumns:
    """Convert a map to columns, with each field's name once."""
    names = sorted(set(points.fields))
    number = {name: i for i, name in enumerate(names)}
    x, y = points.coordinates.T.astype(float).round(4).tolist()
    return MapColumns(points.ids, names, [number[name] for name in points.fields], x, y)


@router.get("/export", response_class=Response)
async def export(params: Annotated[ExportParams, Query()], server: State) -> Response:
    """Return a result list as a file: the papers as BibTeX or RIS, the equations as CSV or JSON."""
    content, media_type, name = export_results(await server.queue.run(params.run, server.engine), params.format)
    return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'}, media_type=media_type)


@router.get("/api/judgements", response_model=Judgements)
async def get_judgements(server: State) -> Response:
    """Return all judgements of results, as evaluation queries."""
    return JsonResponse(Judgements(await server.queue.run(server.judgements.export)))


@router.post("/api/judgements", status_code=201, response_model=Judgement)
async def judge(given: NewJudgement, server: State) -> Response:
    """Say whether a result is relevant to a query."""
    values = given.model_dump() | {"keywords": tuple(word.strip() for word in given.keywords if word.strip())}

    def keep() -> Judgement:
        find_or_404(server.engine.get_equation, given.equation)
        return server.judgements.add(Judgement(**values))

    return JsonResponse(await server.queue.run(keep), 201)


@router.get("/healthz", response_model=Health)
async def get_health(server: State) -> Response:
    """Report that the server is alive, which process answers, and its load; never waits for work."""
    return JsonResponse(Health("ok", server.queue.under_way, os.getpid(), server.settings.processes))
