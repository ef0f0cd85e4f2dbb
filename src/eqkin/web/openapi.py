"""The HTTP interface described once: routes, `/openapi.json`, and the page `/api`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.limits import LIMITS
from eqkin.web import api
from eqkin.web.layout import render_page
from eqkin.web.markup import SafeHtml, join, tag
from eqkin.web.parameters import API_SEARCH_PARAMETERS, EXPORT_FORMAT, FORMULA, PAPER_COUNT, POINT_LIMIT, Parameter
from eqkin.web.service import JsonResponse

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ApiRoute:
    """A route of the HTTP interface."""

    path: str
    endpoint: Endpoint
    summary: str
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"
    example: str = ""  # query string of an example
    gives: str = "application/json"

    @property
    def path_parameters(self) -> list[str]:
        """Names of the parameters in the path."""
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


_EXAMPLE_QUERY = "?q=E%3Dmc%5E2"
API_ROUTES = (
    ApiRoute(
        "/api/search",
        api.search,
        "Equations related to a formula, best first.",
        API_SEARCH_PARAMETERS,
        example=_EXAMPLE_QUERY,
    ),
    ApiRoute(
        "/api/preview",
        api.get_preview,
        "A formula as MathML; or error 400 with the position of the mistake.",
        (FORMULA,),
        example=_EXAMPLE_QUERY,
    ),
    ApiRoute("/api/equation/{id:path}", api.get_equation, "One equation: LaTeX, MathML, paper and section."),
    ApiRoute("/api/paper/{key:path}", api.get_paper, "A paper with its equations by section."),
    ApiRoute(
        "/api/similar-papers/{key:path}",
        api.get_similar_papers,
        "Papers related by their mathematics, with the pairs of equations that relate them.",
        (PAPER_COUNT,),
    ),
    ApiRoute(
        "/api/facets",
        api.get_facets,
        "Fields and years with their counts: of a query's candidates, or without a query of the whole library.",
        API_SEARCH_PARAMETERS,
    ),
    ApiRoute("/api/map", api.get_map, "The library's equations as points of a map.", (POINT_LIMIT,)),
    ApiRoute(
        "/export",
        api.export,
        "A result list as a file: the papers as BibTeX or RIS, the equations as CSV or JSON.",
        (EXPORT_FORMAT, *API_SEARCH_PARAMETERS),
        example=_EXAMPLE_QUERY + "&format=bibtex",
        gives="application/octet-stream",
    ),
    ApiRoute("/api/judgements", api.get_judgements, "Judgements of results, as evaluation queries."),
    ApiRoute("/api/judgements", api.judge, "Say whether a result is relevant to a query.", method="POST"),
    ApiRoute("/health", api.get_health, "Whether the server is alive; answers at once, however busy it is."),
)


_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "For programs."},
                "message": {"type": "string", "description": "For people."},
                "position": {"type": "integer", "description": "Of the character in the formula, from 0."},
            },
        }
    },
}
_JUDGEMENT_SCHEMA = {
    "type": "object",
    "required": ["equation", "relevant"],
    "properties": {
        "equation": {"type": "string", "description": "The id of the result."},
        "relevant": {"type": "boolean"},
        "latex": {"type": "string", "description": "The query's formula as LaTeX,"},
        "mathml": {"type": "string", "description": "or as MathML,"},
        "words": {"type": "string", "description": "and its words."},
        "keywords": {"type": "array", "items": {"type": "string"}},
    },
}


def build_document() -> dict[str, Any]:
    """Build the OpenAPI document."""
    from eqkin.version import __version__

    paths: dict[str, Any] = {}
    for route in API_ROUTES:
        paths.setdefault(_strip_converter(route.path), {})[route.method.lower()] = _describe_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eqkin",
            "version": __version__,
            "description": "Search engine for equations: related equations, and the papers that contain them.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR_SCHEMA, "Judgement": _JUDGEMENT_SCHEMA}},
    }


def _strip_converter(path: str) -> str:
    return path.replace(":path}", "}")


def _describe_operation(route: ApiRoute) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.path_parameters
    ]
    done = "201" if route.method == "POST" else "200"
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}-{route.endpoint.__name__.removeprefix('get_')}",
        "parameters": in_path + [_describe_parameter(parameter) for parameter in route.parameters],
        "responses": {
            done: {"description": "Done.", "content": {route.gives: {}}},
            "4XX": {"description": "The request is wrong, or something does not exist.", "content": error},
            "503": {"description": "Overloaded; retry after the time in Retry-After.", "content": error},
        },
    }
    if route.method == "POST":
        schema = {"$ref": "#/components/schemas/Judgement"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema |= {"minimum": parameter.low, "maximum": parameter.high}
    elif parameter.kind == "string":
        schema["maxLength"] = LIMITS.web_query_chars
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.many:
        schema = {"type": "array", "items": schema, "maxItems": LIMITS.web_list}
    elif parameter.default not in ("", None):
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.meaning, "schema": schema}


async def get_openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JsonResponse(build_document())


async def show_api_page(request: Request) -> Response:
    """Show the documentation of the HTTP interface."""
    intro = tag(
        "p",
        "Everything the pages show is available to programs. Results, papers and the map also exist as JSON: append ",
        tag("code", ".json"),
        " to the path. All errors have one format, ",
        tag("code", '{"error": {"code", "message", "position"?}}'),
        ". For tools: ",
        tag("a", "openapi.json", href="/openapi.json"),
        ".",
    )
    body = tag(
        "div", tag("h1", "For programs"), intro, [_render_route(route) for route in API_ROUTES], class_="prose api"
    )
    return HTMLResponse(render_page("For programs", body))


def _render_route(route: ApiRoute) -> SafeHtml:
    rows = [
        tag(
            "tr",
            tag("td", tag("code", p.name)),
            tag("td", p.meaning, " ", tag("span", _describe_bounds(p), class_="quiet")),
        )
        for p in route.parameters
    ]
    example = tag("a", route.path + route.example, href=route.path + route.example) if route.example else None
    head = join([tag("span", route.method, class_="method"), " ", tag("code", _strip_converter(route.path))])
    folded = (
        tag("details", tag("summary", f"{len(rows)} parameter{'' if len(rows) == 1 else 's'}"), tag("table", rows))
        if rows
        else None
    )
    tried = tag("p", "Try: ", example) if example else None
    return tag("section", tag("h2", head), tag("p", route.summary), folded, tried)


def _describe_bounds(parameter: Parameter) -> str:
    if parameter.kind == "integer":
        standard = f", by default {parameter.default}" if parameter.default is not None else ""
        return f"({parameter.low} to {parameter.high}{standard})"
    return f"(by default {int(parameter.default)})" if parameter.kind == "boolean" else ""
