"""The pages for people, rendered by the server, and their JSON."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.errors import BadInput
from eqkin.search.engine import SearchEngine
from eqkin.search.results import EquationRecord, PaperHit, PaperPage, Results
from eqkin.web import api
from eqkin.web.errors import WebError, find_or_404
from eqkin.web.layout import join_items, render_page
from eqkin.web.markup import SafeHtml, tag
from eqkin.web.paper_view import render_paper
from eqkin.web.parameters import WebQuery
from eqkin.web.result_view import get_search_url, render_results
from eqkin.web.service import JsonResponse, ServerState, get_state

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


class SearchPage(NamedTuple):
    """The content of a result page."""

    results: Results
    origin: EquationRecord | None  # the equation of the query, if it is one of the library


class PaperView(NamedTuple):
    """The content of a paper's page."""

    page: PaperPage
    related: list[PaperHit]


async def show_home(request: Request) -> Response:
    """Show the start page: what this is, and some formulas to begin with."""
    server = get_state(request)

    def work() -> str:
        cards = server.compute_once("examples", lambda: render_example_cards(server.engine))
        return render_page("", render_home(server.engine, cards))

    return HTMLResponse(await server.queue.run(work))


async def show_search(request: Request) -> Response:
    """Show a result list."""
    server = get_state(request)
    query = WebQuery.from_params(request.query_params)
    if not query.is_given:
        return await show_home(request)

    def work() -> str:
        shown = _find_results(server, query)
        asked = shown.origin.latex if shown.origin else query.q
        title = asked if 0 < len(asked) < 60 else query.text or "Results"
        return render_page(title, render_results(query, shown.results, shown.origin), query=query)

    return HTMLResponse(await server.queue.run(work))


def _find_results(server: ServerState, query: WebQuery) -> SearchPage:
    origin = find_or_404(server.engine.get_equation, query.like) if query.like else None
    return SearchPage(query.run(server.engine), origin)


async def show_paper(request: Request) -> Response:
    """Show a paper: its equations by section, and related papers."""
    server, key = get_state(request), api.read_paper_key(request)

    def work() -> str:
        read = _load_paper(server, key)
        return render_page(read.page.paper.title or key, render_paper(read.page, read.related))

    return HTMLResponse(await server.queue.run(work))


async def get_paper_json(request: Request) -> Response:
    """Return the content of a paper's page as JSON."""
    server, key = get_state(request), api.read_paper_key(request)
    read = await server.queue.run(_load_paper, server, key)
    return JsonResponse({"paper": read.page, "related": read.related})


def _load_paper(server: ServerState, key: str) -> PaperView:
    shown = find_or_404(server.engine.get_paper, key)
    return PaperView(shown, _find_related(server, shown))


def _find_related(server: ServerState, shown: PaperPage) -> list[PaperHit]:
    try:
        return server.engine.find_similar_papers(shown.paper.key, _RELATED_PAPERS)
    except BadInput:  # it has no equations to compare
        return []


async def show_map(request: Request) -> Response:
    """Show the map: the library's equations as points, related ones near each other."""
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
    return HTMLResponse(render_page("Map", body, script="map", wide=True))


def render_error(request: Request, error: WebError) -> Response:
    """Render an error as a page; the form still shows the query."""
    try:
        query = WebQuery.from_params(request.query_params)
    except WebError:
        query = WebQuery()
    where = (
        tag("pre", _mark_position(query.q, error.position), class_="pointed") if error.position is not None else None
    )
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
    return HTMLResponse(render_page(title, body, query=query), error.status, error.headers)


def _mark_position(formula: str, position: int) -> list[str]:
    start = max(0, position - 60)
    return [formula[start:position], tag("mark", formula[position : position + 1] or " "), formula[position + 1 :][:60]]
