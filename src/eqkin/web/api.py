"""The HTTP interface for programs: JSON in and out."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from html import escape
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Query, UploadFile
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from eqkin.errors import EqkinError
from eqkin.library.judgements import EvaluationQuery, Judgement, LocalJudgements
from eqkin.limits import LIMITS, check_cancelled
from eqkin.search.exports import EXPORT_TYPES, Reading, SearchAnswer, export_results, to_bibtex
from eqkin.search.names import Completion
from eqkin.search.results import EquationRecord, PaperHit
from eqkin.web.models import (
    BatchAnswer,
    Embeddings,
    ExportParams,
    FormulaList,
    Health,
    JudgedResult,
    Judgements,
    LibraryCounts,
    NewJudgement,
    PaperPart,
    PaperSection,
    ReadParams,
    RemovedJudgements,
    SearchBatch,
    SearchParams,
    StrictSearch,
    Text,
)
from eqkin.web.service import JsonResponse, ServerState, State, WebError, find_or_404, to_web_error


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse parameters that the route does not have, so that a misspelt one is noticed."""
    if not request.query_params:
        return
    known = _list_parameters(request.scope["route"].path_format, request.method.lower())
    if unknown := sorted(set(request.query_params) - known):
        choices = f"; it has {', '.join(sorted(known))}" if known else ""
        raise WebError(400, "bad_request", f"{unknown[0][:40]}: there is no such parameter here{choices}")


@cache
def _list_parameters(path: str, method: str) -> frozenset[str]:
    operation = get_openapi(title="eqkin", version="", routes=router.routes)["paths"].get(path, {}).get(method, {})
    return frozenset(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")


_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}}
router = APIRouter(
    dependencies=[Depends(refuse_unknown_parameters)],
    responses={
        "4XX": {"description": "The request is wrong, or something does not exist."} | _PROBLEM,
        "503": {"description": "Overloaded; retry after the time in Retry-After."} | _PROBLEM,
    },
)
SearchQuery = Annotated[SearchParams, Query()]
PaperCount = Annotated[int, Query(ge=1, le=LIMITS.web_papers, description="Number of papers.")]


@router.get("/api/search", response_model=SearchAnswer)
async def search(params: SearchQuery, server: State) -> Response:
    """Find equations related to a formula, best first."""
    return JsonResponse(SearchAnswer.from_results(await server.queue.run(params.run, server.engine)))


@router.post("/api/search", response_model=SearchAnswer)
async def search_long(params: StrictSearch, server: State) -> Response:
    """Find equations related to a formula that is too long for an address."""
    return JsonResponse(SearchAnswer.from_results(await server.queue.run(params.run, server.engine)))


@router.post("/api/search/many", response_model=list[BatchAnswer])
async def search_many(batch: SearchBatch, server: State) -> Response:
    """Answer several searches, in their order; one that fails does not stop the others."""

    def work() -> list[BatchAnswer]:
        answers = []
        for params in batch.queries:
            check_cancelled()
            try:
                answers.append(BatchAnswer(SearchAnswer.from_results(params.run(server.engine))))
            except (EqkinError, WebError) as error:
                answers.append(BatchAnswer(problem=to_web_error(error).problem))
        return answers

    return JsonResponse(await server.slow_queue.run(work))


@router.get("/api/read", response_model=Reading)
async def read(params: Annotated[ReadParams, Query()], server: State) -> Response:
    """Say how a query is read; or error 400 with the position of the mistake."""
    given = await server.queue.run(params.run, server.engine)
    return JsonResponse(Reading.from_query(given))


@router.get("/api/complete", response_model=list[Completion])
async def complete(
    server: State,
    q: Annotated[Text, Query(description="The beginning of a name, or of a word in it.")],
    k: Annotated[int, Query(ge=1, le=LIMITS.web_list, description="Number of names.")] = 8,
) -> Response:
    """Return names of equations that begin with a text, or have a word that does."""
    return JsonResponse(await server.queue.run(server.engine.plain.complete, q, k))


@router.get("/api/equation/{id:path}", response_model=EquationRecord)
async def get_equation(id: str, server: State) -> Response:
    """Return one equation: LaTeX, MathML, paper and section."""
    return JsonResponse(await server.queue.run(find_or_404, server.engine.get_equation, id))


@router.get("/api/paper/{key:path}", response_model=PaperPart)
async def get_paper(
    key: str,
    server: State,
    offset: Annotated[
        int, Query(ge=0, le=LIMITS.equations_per_paper, description="Leave out this many equations.")
    ] = 0,
    limit: Annotated[
        int, Query(ge=1, le=LIMITS.equations_per_paper, description="At most this many.")
    ] = LIMITS.equations_per_paper,
) -> Response:
    """Return a paper with its equations by section, all of them or a part."""
    page = await server.slow_queue.run(find_or_404, server.engine.get_paper, key)
    sections = []
    total = 0
    for heading, equations in page.sections:
        part = equations[max(0, offset - total) : max(0, offset + limit - total)]
        total += len(equations)
        sections += [PaperSection(heading, part)] if part else []
    return JsonResponse(PaperPart(page.paper, page.abstract, sections, offset, total))


@router.get("/api/bibtex/{key:path}", response_class=PlainTextResponse)
async def get_bibtex(key: str, server: State) -> Response:
    """Return the BibTeX entry of a paper."""
    page = await server.slow_queue.run(find_or_404, server.engine.get_paper, key)
    return PlainTextResponse(to_bibtex([page.paper]))


@router.get("/api/similar-papers/{key:path}", response_model=list[PaperHit])
async def get_similar_papers(
    key: str,
    server: State,
    k: PaperCount = 10,
) -> Response:
    """Find papers related by their mathematics, with the pairs of equations that relate them."""
    return JsonResponse(await server.slow_queue.run(find_or_404, server.engine.find_similar_papers, key, k))


@router.post("/api/similar-papers", response_model=list[PaperHit])
async def find_papers_similar_to_draft(
    server: State,
    file: Annotated[UploadFile | None, File(description="The draft: LaTeX, Markdown, HTML, a notebook, a zip.")] = None,
    text: Annotated[str, Form(description="Or its text, as LaTeX or Markdown.")] = "",
    k: PaperCount = 10,
) -> Response:
    """Find papers related to a draft by its mathematics; the draft is not kept."""
    refuse_if_read_only(server)
    content = await file.read() if file else text.encode("utf-8", "replace")
    name = (file.filename if file else None) or "draft.tex"
    return JsonResponse(await server.slow_queue.run(server.engine.find_papers_similar_to_draft, content, name, k))


@router.post("/api/embed", response_model=Embeddings)
async def embed(given: FormulaList, server: State) -> Response:
    """Return the vectors of formulas: unit vectors whose dot product is the similarity."""
    encoder = server.engine.plain.encoder
    vectors = await server.slow_queue.run(encoder.encode, given.formulas)
    return JsonResponse({"model": encoder.digest, "dimensions": encoder.dimensions, "vectors": vectors})


@router.get("/api/facets", response_model=LibraryCounts)
async def get_facets(server: State) -> Response:
    """Count the equations of the whole library by field and year; for those of a query, search with `facets`."""
    return JsonResponse(LibraryCounts(*await server.queue.run(server.engine.plain.count_facets)))


@router.get("/export", response_class=Response, responses={200: {"content": {kind: {} for kind in EXPORT_TYPES}}})
async def export(params: Annotated[ExportParams, Query()], server: State) -> Response:
    """Return a result list as a file: the papers as BibTeX or RIS, the equations as CSV or JSON."""
    results = await server.slow_queue.run(params.run, server.engine)
    content, media_type, name = export_results(results, params.format)
    return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'}, media_type=media_type)


@router.get("/api/judgements", response_model=Judgements)
async def get_judgements(server: State) -> Response:
    """Return all judgements of results, as evaluation queries."""

    def read() -> list[EvaluationQuery]:
        queries = server.judgements.export() if server.judgements else []
        for query in queries:
            query.relevant = list(map(server.engine.show_id, query.relevant))
            query.irrelevant = list(map(server.engine.show_id, query.irrelevant))
        return queries

    return JsonResponse(Judgements(await server.slow_queue.run(read)))


@router.post("/api/judgements", status_code=201, response_model=Judgement)
async def judge(given: NewJudgement, server: State) -> Response:
    """Say whether a result is relevant to a query."""
    judgements = get_judgements_to_change(server)
    values = given.model_dump() | {"keywords": tuple(word.strip() for word in given.keywords if word.strip())}

    def keep() -> Judgement:
        find_or_404(server.engine.get_equation, given.equation)
        stored = judgements.add(Judgement(**values | {"equation": server.engine.resolve_id(given.equation)}))
        return replace(stored, equation=given.equation)

    return JsonResponse(await server.slow_queue.run(keep), 201)


@router.delete("/api/judgements", response_model=RemovedJudgements)
async def remove_judgements(params: Annotated[JudgedResult, Query()], server: State) -> Response:
    """Delete the judgements of a result of a query."""
    judgements = get_judgements_to_change(server)

    def remove() -> int:
        values = params.model_dump() | {"equation": server.engine.resolve_id(params.equation)}
        return judgements.remove(**values)

    return JsonResponse(RemovedJudgements(await server.slow_queue.run(remove)))


def refuse_if_read_only(server: ServerState) -> None:
    """Raise `WebError` if the server takes nothing but searches."""
    if server.settings.read_only:
        raise WebError(403, "read_only", "this server takes no judgements and no drafts")


def get_judgements_to_change(server: ServerState) -> LocalJudgements:
    """Return where judgements are kept; raises `WebError` if this server takes none."""
    refuse_if_read_only(server)
    if server.judgements is None:
        raise WebError(403, "read_only", "this server takes no judgements")
    return server.judgements


@router.get("/robots.txt", include_in_schema=False)
async def get_robots(server: State) -> Response:
    """Ask crawlers to leave searches alone."""
    paths = ("/search", "/draft", "/export", "/api/")
    lines = ["User-agent: *", *(f"Disallow: {server.settings.root_path}{path}" for path in paths)]
    return PlainTextResponse("\n".join([*lines, ""]))


@router.get("/opensearch.xml", include_in_schema=False)
async def get_opensearch(request: Request) -> Response:
    """Describe the search to browsers, so that their address bar can use it."""
    base = escape(str(request.base_url))
    content = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<OpenSearchDescription xmlns="http://a9.com/-/spec/opensearch/1.1/">'
        "<ShortName>eqkin</ShortName><Description>Find related equations</Description>"
        f'<InputEncoding>UTF-8</InputEncoding><Image type="image/svg+xml">{base}static/icon.svg</Image>'
        f'<Url type="text/html" template="{base}search?q={{searchTerms}}"/>'
        f'<Url type="application/json" template="{base}api/search?q={{searchTerms}}"/></OpenSearchDescription>\n'
    )
    return Response(content, media_type="application/opensearchdescription+xml")


@router.get("/healthz", response_model=Health)
async def get_health(server: State) -> Response:
    """Report that the server is alive, which process answers, and its load; never waits for work."""
    under_way = server.queue.under_way + server.slow_queue.under_way
    return JsonResponse(Health("ok", under_way, os.getpid(), server.settings.workers))
