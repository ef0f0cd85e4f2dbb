"""`/openapi.json` and `/api`: the interface for programs, told to programs and to people."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.limits import LIMITS
from eqkin.markup import SafeHtml, join, tag
from eqkin.web.layout import render_page
from eqkin.web.parameters import Parameter
from eqkin.web.routes import API_ROUTES, ApiRoute
from eqkin.web.service import JsonResponse

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
    """The OpenAPI description."""
    from eqkin.version import __version__

    paths: dict[str, Any] = {}
    for route in API_ROUTES:
        paths.setdefault(_strip_converter(route.path), {})[route.method.lower()] = _describe_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eqkin",
            "version": __version__,
            "description": "Finds the kin of an equation: related equations, and the papers they stand in.",
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
        "operationId": f"{route.method.lower()}-{route.endpoint.__name__}",
        "parameters": in_path + [_describe_parameter(parameter) for parameter in route.parameters],
        "responses": {
            done: {"description": "Done.", "content": {route.gives: {}}},
            "4XX": {"description": "The request is wrong, or names what is not there.", "content": error},
            "503": {"description": "Too busy; Retry-After says when to come again.", "content": error},
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
    """The description for programs."""
    return JsonResponse(build_document())


async def show_api_page(request: Request) -> Response:
    """The description for people."""
    intro = tag(
        "p",
        "Everything the pages show can be asked for by programs. Results, papers and the map are also JSON: put ",
        tag("code", ".json"),
        " behind the path. What goes wrong is told in one shape, ",
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
