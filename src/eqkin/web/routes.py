"""The interface for programs, described once: what the application serves, and what its documentation says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from eqkin.web import api
from eqkin.web.parameters import EXPORT_FORMAT, FORMULA, PAPER_COUNT, POINT_LIMIT, SEARCH_PARAMETERS, Parameter

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ApiRoute:
    """One address programs may ask."""

    path: str
    endpoint: Endpoint
    summary: str
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"
    example: str = ""  # what follows the path in an example
    gives: str = "application/json"

    @property
    def path_parameters(self) -> list[str]:
        """Parameters that stand in the path."""
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


_EXAMPLE_QUERY = "?q=E%3Dmc%5E2"
API_ROUTES = (
    ApiRoute(
        "/api/search",
        api.search,
        "Equations related to a formula, best first.",
        SEARCH_PARAMETERS,
        example=_EXAMPLE_QUERY,
    ),
    ApiRoute(
        "/api/preview",
        api.get_preview,
        "A formula as MathML; or error 400 with the position of what is wrong in it.",
        (FORMULA,),
        example=_EXAMPLE_QUERY,
    ),
    ApiRoute("/api/equation/{id:path}", api.get_equation, "One equation: LaTeX, MathML, where it stands."),
    ApiRoute("/api/paper/{key:path}", api.get_paper, "A paper with its equations by section."),
    ApiRoute(
        "/api/similar-papers/{key:path}",
        api.get_similar_papers,
        "Papers related by their mathematics, with the pairs of equations that say so.",
        (PAPER_COUNT,),
    ),
    ApiRoute(
        "/api/facets",
        api.get_facets,
        "Fields and years with their counts: of a query's candidates, or without a query of the whole library.",
        SEARCH_PARAMETERS,
    ),
    ApiRoute("/api/map", api.get_map, "The library's equations on a plane.", (POINT_LIMIT,)),
    ApiRoute(
        "/export",
        api.export,
        "A result list as a file: the papers as BibTeX or RIS, the equations as CSV or JSON.",
        (EXPORT_FORMAT, *SEARCH_PARAMETERS),
        example=_EXAMPLE_QUERY + "&format=bibtex",
        gives="application/octet-stream",
    ),
    ApiRoute("/api/judgements", api.get_judgements, "What people said of results, as evaluation queries."),
    ApiRoute("/api/judgements", api.judge, "Say whether a result is relevant to a query.", method="POST"),
    ApiRoute("/health", api.get_health, "That the server is there; answers at once, however busy it is."),
)
