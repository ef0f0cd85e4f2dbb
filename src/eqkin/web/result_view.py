"""A result list as it is shown: the query, the hits, the facets, the ways to export it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import orjson

from eqkin.limits import LIMITS
from eqkin.markup import Content, SafeHtml, tag
from eqkin.search.results import EquationRecord, Hit, Results
from eqkin.web import equations as shown
from eqkin.web.facet_view import render_active_filters, render_facets
from eqkin.web.parameters import FORMATS
from eqkin.web.query import WebQuery

_FORMAT_NAMES = {"json": "JSON", "csv": "CSV", "bibtex": "BibTeX", "ris": "RIS"}


def render_results(query: WebQuery, results: Results, origin: EquationRecord | None) -> SafeHtml:
    """The body of the page; `origin` is the equation whose kin was looked for."""
    hits = [_render_hit(query, hit, number) for number, hit in enumerate(results.hits, 1)]
    count = _describe_count(results)
    head = tag(
        "div",
        tag("p", count, id="count", role="status", aria_live="polite"),
        _render_export_menu(query),
        class_="list-head",
    )
    body: Content = tag("ol", hits, class_="hits") if hits else _render_no_hits(query)
    asked = _render_query(query, results, origin)
    notes = [_render_missing(results), _render_no_match(results)]
    column = tag(
        "div", asked, render_active_filters(query), head, notes, body, _render_more_link(query, results), class_="list"
    )
    return tag(
        "div", render_facets(query, results), column,
        id="results", class_="results",
        data_latex=results.latex, data_mathml="" if results.latex else results.mathml, data_words=results.text,
    )  # fmt: skip


def _describe_count(results: Results) -> str:
    number = len(results.hits)
    seconds = sum(results.seconds.values())
    took = f" in {seconds * 1000:,.0f} ms" if seconds else ""
    return f"{number} result{'' if number == 1 else 's'}{took}" if number else "No results"


def _render_missing(results: Results) -> SafeHtml | None:
    if not results.missing:
        return None
    command = tag("code", "eqkin index")
    return tag("p", f"{results.missing:,} new equations cannot be found yet: run ", command, ".", class_="quiet")


def _render_no_match(results: Results) -> SafeHtml | None:
    if not results.lacks_form:
        return None
    return tag("p", "No formula has this form. These come nearest:", class_="quiet")


def _render_query(query: WebQuery, results: Results, origin: EquationRecord | None) -> SafeHtml | None:
    """What was looked for."""
    asked = results.marked or results.mathml
    if origin is not None:
        where = shown.render_paper_line(origin.paper, origin.section)
        heading = tag("h1", "Kin of this equation")
        return tag(
            "section",
            heading,
            shown.render_formula(asked, origin.latex),
            shown.render_context(origin),
            where,
            class_="asked",
        )
    if not results.mathml:
        return tag("h1", f"Results for “{query.text}”", class_="hidden-text")
    return tag(
        "section",
        tag("h1", "Kin of this formula"),
        shown.render_formula(asked, results.latex),
        tag("p", "and words near it: ", tag("strong", query.text), class_="where") if query.text else None,
        class_="asked",
    )


def _render_hit(query: WebQuery, hit: Hit, number: int) -> SafeHtml:
    equation = hit.equation
    kin = tag("a", "Kin of this one", href=shown.get_related_url(equation.id), class_="kin-link", data_swap=True)
    similarity = f"{max(0.0, hit.score):.2f}"
    score = tag(
        "span",
        tag("meter", similarity, min="0", max="1", value=similarity, aria_hidden="true"),
        " ",
        similarity,
        class_="score",
        title=f"score {hit.score:.3f}, cosine of the vectors {hit.similarity:.3f}",
    )
    actions = tag(
        "div", score, kin, shown.render_copy_button(equation.latex), _render_judgement_buttons(), class_="actions"
    )
    return tag(
        "li",
        shown.render_formula(hit.marked or equation.mathml, equation.latex),
        _render_names(hit),
        shown.render_context(equation),
        shown.render_paper_line(equation.paper, equation.section),
        actions,
        _render_duplicates(hit),
        _render_more_of_paper(query, hit),
        class_="hit",
        tabindex="-1",
        id=f"hit-{number}",
        data_id=equation.id,
        data_pairs=_encode_pairs(hit),
        aria_label=f"Result {number}",
    )


def _render_names(hit: Hit) -> SafeHtml | None:
    """What the query's letters are called here, or what its wildcards stand for."""
    read: list[Content] = [tag("li", tag("i", name), " reads as ", tag("i", other)) for name, other in hit.renaming]
    read += [tag("li", tag("i", name), " = ", SafeHtml(part)) for name, part in hit.bindings]
    return tag("ul", read, class_="readings", aria_label="Names") if read else None


def _encode_pairs(hit: Hit) -> str | None:
    """Which nodes of the query answer to which of the hit, for the page's script."""
    pairs = [[pairing.hit_node, pairing.query_node] for pairing in hit.pairings]
    return orjson.dumps(pairs).decode() if pairs else None


def _render_judgement_buttons() -> SafeHtml:
    """Buttons to say whether a hit is relevant; they need the page's script, which shows them."""
    yes = tag("button", "Relevant", type="button", class_="judge quiet-button", data_relevant="1", aria_pressed="false")
    no = tag("button", "Not", type="button", class_="judge quiet-button", data_relevant="0", aria_pressed="false")
    keywords = tag(
        "input", type="text", class_="keywords", placeholder="keywords, with commas (optional)",
        aria_label="Keywords", maxlength=500, hidden=True,
    )  # fmt: skip
    return tag("span", yes, no, keywords, tag("span", class_="judged", role="status"), class_="judging", hidden=True)


def _render_duplicates(hit: Hit) -> SafeHtml | None:
    if not hit.same:
        return None
    number = len(hit.same)
    items = [tag("li", tag("a", name, href=shown.get_related_url(name)), data_equation=name) for name in hit.same]
    title = f"{number} near-identical formula{'' if number == 1 else 's'}"
    return tag("details", tag("summary", title), tag("ul", items), class_="same")


def _render_more_of_paper(query: WebQuery, hit: Hit) -> SafeHtml | None:
    if not hit.more:
        return None
    key = hit.equation.paper.key
    address = replace(query, group=False).replace_filters(papers=(key,)).to_url()
    link = tag("a", "show them in a list of their own", href=address, data_swap=True)
    title = f"{hit.more} more from this paper"
    return tag(
        "details", tag("summary", title), tag("div", link), class_="more", data_from=address, data_count=hit.more
    )


def _render_export_menu(query: WebQuery) -> SafeHtml:
    links = [
        tag("a", _FORMAT_NAMES[form], href=query.to_url("/export", format=form), download=True) for form in FORMATS
    ]
    links.append(tag("a", "This page as JSON", href=query.to_url("/search.json")))
    return tag("details", tag("summary", "Export"), tag("div", links), class_="menu")


def _render_more_link(query: WebQuery, results: Results) -> SafeHtml | None:
    if len(results.hits) < query.k or query.k >= LIMITS.web_hits:
        return None
    address = replace(query, k=min(2 * query.k, LIMITS.web_hits)).to_url()
    return tag("p", tag("a", "More results", href=address, class_="main-button", data_swap=True), class_="next")


def _render_no_hits(query: WebQuery) -> SafeHtml:
    tips: list[Content] = [tag("li", "Take away a part of the formula, or search for its core.")]
    if query.text:
        tips.append(tag("li", tag("a", "Search without words", href=replace(query, text="").to_url())))
    plain = replace(query, filters=type(query.filters)())
    if plain != query:
        tips.append(tag("li", tag("a", "Search without filters", href=plain.to_url())))
    return tag("div", tag("p", "Nothing in this library fits."), tag("ul", tips), class_="nothing")


def get_search_url(latex: str) -> str:
    """The result page of a formula."""
    return "/search?" + urlencode({"q": latex})
