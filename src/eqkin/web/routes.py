"""The interface for programs, described once: what the application serves, and what its documentation says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from eqkin.web import api
from eqkin.web.parameters import FORMAT, PAPERS, POINTS, SEARCH, Parameter, Q

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
    def names_in_path(self) -> list[str]:
        """Parameters that stand in the path."""
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


_FORMULA = "?q=E%3Dmc%5E2"
ROUTES = (
    ApiRoute("/api/search", api.search, "Equations related to a formula, best first.", SEARCH, example=_FORMULA),
    ApiRoute(
        "/api/preview",
        api.preview,
        "A formula as MathML; or error 400 with the position of what is wrong in it.",
        (Q,),
        example=_FORMULA,
    ),
    ApiRoute("/api/equation/{id:path}", api.equation, "One equation: LaTeX, MathML, where it stands."),
    ApiRoute("/api/paper/{key:path}", api.paper, "A paper with its equations by section."),
    ApiRoute(
        "/api/similar-papers/{key:path}",
        api.similar_papers,
        "Papers related by their mathematics, with the pairs of equations that say so.",
        (PAPERS,),
    ),
    ApiRoute(
        "/api/facets",
        api.facets,
        "Fields and years with their counts: of a query's candidates, or without a query of the whole library.",
        SEARCH,
    ),
    ApiRoute("/api/map", api.plane, "The library's equations on a plane.", (POINTS,)),
    ApiRoute(
        "/export",
        api.export,
        "A result list as a file: the papers as BibTeX or RIS, the equations as CSV or JSON.",
        (FORMAT, *SEARCH),
        example=_FORMULA + "&format=bibtex",
        gives="application/octet-stream",
    ),
    ApiRoute("/api/judgements", api.judgements, "What people said of results, as evaluation queries."),
    ApiRoute("/api/judgements", api.judge, "Say whether a result is relevant to a query.", method="POST"),
    ApiRoute("/health", api.health, "That the server is there; answers at once, however busy it is."),
)
