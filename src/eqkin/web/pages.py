"""The pages for people, rendered by the server, and their JSON."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import jinja2
from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.errors import BadInput
from eqkin.search.engine import SearchEngine
from eqkin.web.errors import WebError, find_or_404
from eqkin.web.layout import join_items, render_page
from eqkin.web.markup import SafeHtml, tag
from eqkin.web.models import PageSearch, Text
from eqkin.web.paper_view import render_paper
from eqkin.web.result_view import get_search_url, render_results
from eqkin.web.service import ServerSettings, State

_UNQUOTED_CHARS = "!*'()"  # encodeURIComponent does not quote these, nor letters and digits
EXAMPLES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
    "Heat equation": r"\frac{\partial u}{\partial t} = \alpha \nabla^2 u",
    "Entropy": r"H = -\sum_i p_i \log p_i",
    "Fourier transform": r"\hat f(\omega) = \int_{-\infty}^{\infty} f(t)\, e^{-i\omega t}\, dt",
    "Boltzmann weights": r"p_i = \frac{e^{-E_i/kT}}{\sum_j e^{-E_j/kT}}",
    "Logistic growth": r"\frac{dN}{dt} = r N \left(1 - \frac{N}{K}\right)",
    "Gradient descent": r"x_{t+1} = x_t - \eta \nabla f(x_t)",
    "Euler-Lagrange equation": r"\frac{d}{dt} \frac{\partial L}{\partial \dot q} = \frac{\partial L}{\partial q}",
    "Cauchy-Schwarz inequality": r"|\langle x, y \rangle|^2 \le \langle x, x \rangle \langle y, y \rangle",
    "Commutator": r"[\hat x, \hat p] = i \hbar",
    "With wildcards": r"\frac{?a}{?a + ?b}",
}


def render_example_cards(engine: SearchEngine) -> list[SafeHtml]:
    """Render the examples, each a link to its results."""
    cards = []
    for name, latex in EXAMPLES.items():
        mathml = engine.preview(latex).mathml
        link = tag("a", tag("span", name, class_="name"), SafeHtml(mathml), href=get_search_url(latex), data_swap=True)
        cards.append(tag("li", link))
    return cards


def render_home(engine: SearchEngine, cards: list[SafeHtml]) -> SafeHtml:
    """Render the start page."""
    fields, _ = engine.count_facets()
    chips = [
        tag("a", name, tag("span", f" {count:,}", class_="quiet"), href="/map#" + quote(name, safe=_UNQUOTED_CHARS))
        for name, count in fields.items()
    ]
    lead = tag(
        "p",
        "Enter a formula: eqkin finds related ones, in any notation or field, and the papers that contain them.",
        class_="lead",
    )
    by_field = tag("section", tag("h2", "In this library"), tag("p", join_items(chips[:40])), class_="library")
    return tag(
        "div",
        tag("h1", "Find the kin of an equation"),
        lead,
        tag("h2", "Try one of these"),
        tag("ul", cards, class_="examples"),
        by_field if chips else tag("p", "This library is empty: add papers with ", tag("code", "eqkin add PATH"), "."),
        class_="home",
    )


_RELATED_PAPERS = 6
router = APIRouter(include_in_schema=False)


def create_environment(settings: ServerSettings) -> jinja2.Environment:
    """Create the environment of the templates; everything they insert is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eqkin.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.undefined = jinja2.StrictUndefined
    environment.globals["root"] = settings.root_path
    return environment


@router.get("/")
async def show_home(server: State) -> Response:
    """Show the start page: what this is, and some formulas to begin with."""

    def work() -> str:
        cards = server.compute_once("examples", lambda: render_example_cards(server.engine))
        return render_page("", render_home(server.engine, cards))

    return HTMLResponse(await server.queue.run(work))


@router.get("/search")
async def show_search(query: Annotated[PageSearch, Query()], server: State) -> Response:
    """Show a result list."""
    if not query.is_given:
        return await show_home(server)

    def work() -> str:
        origin = find_or_404(server.engine.get_equation, query.like) if query.like else None
        asked = origin.latex if origin else query.q
        title = asked if 0 < len(asked) < 60 else query.text or "Results"
        return render_page(title, render_results(query, query.run(server.engine), origin), query=query)

    return HTMLResponse(await server.queue.run(work))


@router.get("/paper")
async def show_paper(server: State, key: Annotated[Text, Query(min_length=1)]) -> Response:
    """Show a paper: its equations by section, and related papers."""

    def work() -> str:
        page = find_or_404(server.engine.get_paper, key)
        try:
            related = server.engine.find_similar_papers(page.paper.key, _RELATED_PAPERS)
        except BadInput:  # it has no equations to compare
            related = []
        return render_page(page.paper.title or key, render_paper(page, related))

    return HTMLResponse(await server.queue.run(work))


@router.get("/map")
async def show_map() -> Response:
    """Show the map: the library's equations as points, related ones near each other."""
    canvas = tag("canvas", id="map", tabindex="0", role="img", aria_label="Map of the library's equations")
    zoom = [
        tag("button", sign, type="button", class_="icon", id=name, aria_label=label, title=label)
        for sign, name, label in (("+", "zoom-in", "Closer"), ("−", "zoom-out", "Farther"), ("⌂", "zoom-all", "All"))
    ]
    status_line = tag("div", id="point", role="status", aria_live="polite", hidden=True)
    hint = tag(
        "p", "Each point is an equation; related ones lie near each other. Click one to open it.", class_="quiet"
    )
    legend = tag("div", id="legend", aria_label="Fields")
    stage = tag("div", canvas, tag("div", zoom, class_="zoom"), status_line, class_="stage")
    body = tag("div", tag("div", tag("h1", "Map"), hint, class_="map-head"), stage, legend, class_="map")
    return HTMLResponse(render_page("Map", body, script="map", wide=True))


@router.get("/api")
async def show_api(request: Request, server: State) -> Response:
    """Show the documentation of the HTTP interface."""
    body = server.render("api.html", paths=request.app.openapi()["paths"])
    return HTMLResponse(render_page("For programs", SafeHtml(body)))


def render_error(request: Request, error: WebError) -> Response:
    """Render an error as a page; the form still shows the query."""
    try:
        query = PageSearch.model_validate({"q": request.query_params.get("q", "")})
    except ValidationError:
        query = PageSearch()
    where = None
    if error.position is not None:
        position = error.position - 1
        mark = tag("mark", query.q[position : position + 1] or " ")
        before, after = query.q[max(0, position - 60) : position], query.q[position + 1 :][:60]
        where = tag("pre", before, mark, after, class_="pointed")
    body = tag(
        "div",
        tag("h1", "Not found" if error.status_code == 404 else "That did not work"),
        tag("p", error.detail, f" (character {error.position})" if error.position is not None else None),
        where,
        tag("p", tag("a", "Start a new search", href="/")),
        class_="prose problem",
        role="alert",
        data_position=None if error.position is None else error.position - 1,
    )
    title = "Not found" if error.status_code == 404 else "Error"
    return HTMLResponse(render_page(title, body, query=query), error.status_code, error.headers)
