"""A result list as it is shown: the query, the hits, the facets, the ways to export it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import orjson

from eqkin.limits import LIMITS
from eqkin.markup import Content, Safe, tag
from eqkin.mathml.placeholders import wildcards_of
from eqkin.mathml.tree import parse_mathml
from eqkin.search.results import EquationRecord, Hit, Results
from eqkin.web import equations as shown
from eqkin.web.facet_view import active, facets
from eqkin.web.parameters import FORMATS
from eqkin.web.query import Query

_FORMAT_NAMES = {"json": "JSON", "csv": "CSV", "bibtex": "BibTeX", "ris": "RIS"}


def result_page(query: Query, results: Results, origin: EquationRecord | None) -> Safe:
    """The body of the page; `origin` is the equation whose kin was looked for."""
    hits = [_hit(query, hit, number) for number, hit in enumerate(results.hits, 1)]
    count = _count(results)
    head = tag("div", tag("p", count, id="count", role="status", aria_live="polite"), _menu(query), class_="list-head")
    body: Content = tag("ol", hits, class_="hits") if hits else _nothing(query)
    asked = _asked(query, results, origin)
    notes = [_missing(results), _nearest(results)]
    column = tag("div", asked, active(query), head, notes, body, _more(query, results), class_="list")
    return tag(
        "div", facets(query, results), column,
        id="results", class_="results",
        data_latex=results.latex, data_mathml="" if results.latex else results.mathml, data_words=results.text,
    )  # fmt: skip


def _count(results: Results) -> str:
    number = len(results.hits)
    seconds = sum(results.seconds.values())
    took = f" in {seconds * 1000:,.0f} ms" if seconds else ""
    return f"{number} result{'' if number == 1 else 's'}{took}" if number else "No results"


def _missing(results: Results) -> Safe | None:
    if not results.missing:
        return None
    command = tag("code", "eqkin index")
    return tag("p", f"{results.missing:,} new equations cannot be found yet: run ", command, ".", class_="quiet")


def of_no_form(results: Results) -> bool:
    """Whether the query has wildcards and no hit is of its form; known of explained hits alone."""
    if not any(hit.marked for hit in results.hits) or any(hit.bindings for hit in results.hits):
        return False
    return bool(wildcards_of(parse_mathml(results.mathml)))


def _nearest(results: Results) -> Safe | None:
    if not of_no_form(results):
        return None
    return tag("p", "No formula has this form. These come nearest:", class_="quiet")


def _asked(query: Query, results: Results, origin: EquationRecord | None) -> Safe | None:
    """What was looked for."""
    asked = results.marked or results.mathml
    if origin is not None:
        where = shown.paper_line(origin.paper, origin.section)
        heading = tag("h1", "Kin of this equation")
        return tag("section", heading, shown.formula(asked, origin.latex), shown.prose(origin), where, class_="asked")
    if not results.mathml:
        return tag("h1", f"Results for “{query.text}”", class_="hidden-text")
    return tag(
        "section",
        tag("h1", "Kin of this formula"),
        shown.formula(asked, results.latex),
        tag("p", "and words near it: ", tag("strong", query.text), class_="where") if query.text else None,
        class_="asked",
    )


def _hit(query: Query, hit: Hit, number: int) -> Safe:
    equation = hit.equation
    kin = tag("a", "Kin of this one", href=shown.kin_address(equation.id), class_="kin-link", data_swap=True)
    similarity = f"{max(0.0, hit.score):.2f}"
    score = tag(
        "span",
        tag("meter", similarity, min="0", max="1", value=similarity, aria_hidden="true"),
        " ",
        similarity,
        class_="score",
        title=f"score {hit.score:.3f}, cosine of the vectors {hit.similarity:.3f}",
    )
    actions = tag("div", score, kin, shown.copy_button(equation.latex), _judging(), class_="actions")
    return tag(
        "li",
        shown.formula(hit.marked or equation.mathml, equation.latex),
        _names(hit),
        shown.prose(equation),
        shown.paper_line(equation.paper, equation.section),
        actions,
        _same(hit),
        _others(query, hit),
        class_="hit",
        tabindex="-1",
        id=f"hit-{number}",
        data_id=equation.id,
        data_pairs=_pairs(hit),
        aria_label=f"Result {number}",
    )


def _names(hit: Hit) -> Safe | None:
    """What the query's letters are called here, or what its wildcards stand for."""
    read: list[Content] = [tag("li", tag("i", name), " reads as ", tag("i", other)) for name, other in hit.renaming]
    read += [tag("li", tag("i", name), " = ", Safe(part)) for name, part in hit.bindings]
    return tag("ul", read, class_="readings", aria_label="Names") if read else None


def _pairs(hit: Hit) -> str | None:
    """Which nodes of the query answer to which of the hit, for the page's script."""
    pairs = [[pairing.hit_node, pairing.query_node] for pairing in hit.pairings]
    return orjson.dumps(pairs).decode() if pairs else None


def _judging() -> Safe:
    """Buttons to say whether a hit is relevant; they need the page's script, which shows them."""
    yes = tag("button", "Relevant", type="button", class_="judge quiet-button", data_relevant="1", aria_pressed="false")
    no = tag("button", "Not", type="button", class_="judge quiet-button", data_relevant="0", aria_pressed="false")
    keywords = tag(
        "input", type="text", class_="keywords", placeholder="keywords, with commas (optional)",
        aria_label="Keywords", maxlength=500, hidden=True,
    )  # fmt: skip
    return tag("span", yes, no, keywords, tag("span", class_="judged", role="status"), class_="judging", hidden=True)


def _same(hit: Hit) -> Safe | None:
    if not hit.same:
        return None
    number = len(hit.same)
    items = [tag("li", tag("a", name, href=shown.kin_address(name)), data_equation=name) for name in hit.same]
    title = f"{number} near-identical formula{'' if number == 1 else 's'}"
    return tag("details", tag("summary", title), tag("ul", items), class_="same")


def _others(query: Query, hit: Hit) -> Safe | None:
    if not hit.more:
        return None
    key = hit.equation.paper.key
    address = replace(query, group=False).with_filters(papers=(key,)).address()
    link = tag("a", "show them in a list of their own", href=address, data_swap=True)
    title = f"{hit.more} more from this paper"
    return tag(
        "details", tag("summary", title), tag("div", link), class_="more", data_from=address, data_count=hit.more
    )


def _menu(query: Query) -> Safe:
    links = [
        tag("a", _FORMAT_NAMES[form], href=query.address("/export", format=form), download=True) for form in FORMATS
    ]
    links.append(tag("a", "This page as JSON", href=query.address("/search.json")))
    return tag("details", tag("summary", "Export"), tag("div", links), class_="menu")


def _more(query: Query, results: Results) -> Safe | None:
    if len(results.hits) < query.k or query.k >= LIMITS.web_hits:
        return None
    address = replace(query, k=min(2 * query.k, LIMITS.web_hits)).address()
    return tag("p", tag("a", "More results", href=address, class_="main-button", data_swap=True), class_="next")


def _nothing(query: Query) -> Safe:
    tips: list[Content] = [tag("li", "Take away a part of the formula, or search for its core.")]
    if query.text:
        tips.append(tag("li", tag("a", "Search without words", href=replace(query, text="").address())))
    plain = replace(query, filters=type(query.filters)())
    if plain != query:
        tips.append(tag("li", tag("a", "Search without filters", href=plain.address())))
    return tag("div", tag("p", "Nothing in this library fits."), tag("ul", tips), class_="nothing")


def search_address(latex: str) -> str:
    """The result page of a formula."""
    return "/search?" + urlencode({"q": latex})
