"""The result list: the query, facets, hits, and links to export it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson

from eqkin.limits import LIMITS
from eqkin.search.results import EquationRecord, Hit, Results
from eqkin.web.layout import get_related_url, render_context, render_copy_button, render_formula, render_paper_line
from eqkin.web.markup import Content, SafeHtml, tag
from eqkin.web.models import PageSearch

_MAX_FIELDS = 12  # shown without unfolding
_MAX_YEARS = 12


def render_facets(query: PageSearch, results: Results) -> SafeHtml:
    """Render the column of facets."""
    parts: list[Content] = [
        _render_fields(query, {str(facet.value): facet.pool for facet in results.fields}),
        _render_years(query, {int(facet.value): facet.pool for facet in results.years}),
    ]
    items = [
        _render_item("Few hits per paper", None, query.to_url(group=not query.group), query.group),
        _render_item("Fold near-identical", None, query.to_url(fold=not query.fold), query.fold),
        _render_item("Mark what matches", None, query.to_url(explain=not query.explain), query.explain),
    ]
    switches = tag("div", tag("h2", "List"), tag("ul", items), class_="facet")
    summary = tag("summary", "Filters")
    return tag("aside", tag("details", summary, parts, switches, open=True), class_="facets", aria_label="Filters")


def _render_fields(query: PageSearch, counts: dict[str, int]) -> SafeHtml | None:
    chosen = query.filters.fields
    names = [*chosen, *(name for name in counts if name not in chosen)]
    if not names:
        return None
    items = []
    for name in names:
        rest = tuple(other for other in chosen if other != name)
        narrowed = query.replace(field=rest if name in chosen else (*chosen, name))
        items.append(_render_item(name, counts.get(name, 0), narrowed.to_url(), name in chosen))
    others = items[_MAX_FIELDS:]
    more = tag("details", tag("summary", f"{len(others)} more"), tag("ul", others)) if others else None
    return tag("div", tag("h2", "Field"), tag("ul", items[:_MAX_FIELDS]), more, class_="facet", id="facet-field")


def _render_years(query: PageSearch, counts: dict[int, int]) -> SafeHtml | None:
    first, last = query.filters.first_year, query.filters.last_year
    if not counts and first is None and last is None:
        return None
    items = []
    for year in sorted(counts, reverse=True)[:_MAX_YEARS]:
        only = first == last == year
        narrowed = query.replace(from_year=None if only else year, to_year=None if only else year)
        items.append(_render_item(str(year), counts[year], narrowed.to_url(), only))
    return tag("div", tag("h2", "Year"), tag("ul", items), _render_year_range(query), class_="facet", id="facet-year")


def _render_year_range(query: PageSearch) -> SafeHtml:
    """Render a form for a range of years; hidden fields keep the rest of the query."""
    rest = parse_qsl(urlsplit(query.replace(from_year=None, to_year=None).to_url()).query)
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in rest]
    boxes = [
        tag("input", type="number", name=name, value=value, min=0, max=9999, placeholder=name, aria_label=label)
        for name, value, label in (
            ("from", query.filters.first_year, "First year"),
            ("to", query.filters.last_year, "Last year"),
        )
    ]
    return tag("form", hidden, boxes, tag("button", "Go", class_="quiet-button"), action="/search", class_="span")


def _render_item(name: str, count: int | None, address: str, on: bool) -> SafeHtml:
    number = tag("span", f"{count:,}", class_="number") if count is not None else None
    box = tag("span", "✓" if on else "", class_="tick", aria_hidden="true")
    state = tag("span", " (chosen)", class_="hidden-text") if on else None
    link = tag(
        "a", box, tag("span", name, class_="name"), number, state,
        href=address, class_="on" if on else None, data_swap=True, rel="nofollow",
    )  # fmt: skip
    return tag("li", link)


def render_active_filters(query: PageSearch) -> SafeHtml | None:
    """Render the active filters, each with a link that removes it."""
    f = query.filters
    chips: list[Content] = []
    for kind, values in (("author", f.authors), ("paper", f.papers), ("without", f.without_papers)):
        for value in values:
            rest = tuple(other for other in values if other != value)
            name = ("not " if kind == "without" else "") + value
            chips.append(_render_chip(name, query.replace(**{kind: rest})))
    chips += [_render_chip(name, query.replace(field=tuple(o for o in f.fields if o != name))) for name in f.fields]
    if f.first_year is not None or f.last_year is not None:
        both = f.first_year == f.last_year
        years = str(f.first_year) if both else f"{f.first_year or '…'} to {f.last_year or '…'}"
        chips.append(_render_chip(years, query.replace(from_year=None, to_year=None)))
    return tag("p", "Only ", chips, class_="chips") if chips else None


def _render_chip(text: str, without: PageSearch) -> SafeHtml:
    close = tag("a", "✕", href=without.to_url(), aria_label=f"Take off the filter {text}", data_swap=True)
    return tag("span", text, " ", close, class_="chip")


_FORMAT_NAMES = {"json": "JSON", "csv": "CSV", "bibtex": "BibTeX", "ris": "RIS"}


def render_results(query: PageSearch, results: Results, origin: EquationRecord | None) -> SafeHtml:
    """Render the body of the page; `origin` is the equation of the query, if it is one of the library."""
    hits = [_render_hit(query, hit, number) for number, hit in enumerate(results.hits, 1)]
    seconds = sum(results.seconds.values())
    took = f" in {seconds * 1000:,.0f} ms" if seconds else ""
    count = f"{len(hits)} result{'' if len(hits) == 1 else 's'}{took}" if hits else "No results"
    shown = tag("p", count, id="count", role="status", aria_live="polite")
    head = tag("div", shown, _render_export_menu(query), class_="list-head")
    body: Content = tag("ol", hits, class_="hits") if hits else _render_no_hits(query)
    asked = _render_query(query, results, origin)
    notes = []
    if results.missing:
        message = f"{results.missing:,} new equations cannot be found yet: run "
        notes.append(tag("p", message, tag("code", "eqkin index"), ".", class_="quiet"))
    if results.lacks_form:
        notes.append(tag("p", "No formula of this form was found. These come nearest:", class_="quiet"))
    more = None
    if query.k <= len(hits) and query.k < LIMITS.web_hits:
        address = query.to_url(k=min(2 * query.k, LIMITS.web_hits))
        more = tag("p", tag("a", "More results", href=address, class_="main-button", data_swap=True), class_="next")
    column = tag("div", asked, render_active_filters(query), head, notes, body, more, class_="list")
    return tag(
        "div", render_facets(query, results), column,
        id="results", class_="results",
        data_latex=results.latex, data_mathml="" if results.latex else results.mathml, data_words=results.text,
    )  # fmt: skip


def _render_query(query: PageSearch, results: Results, origin: EquationRecord | None) -> SafeHtml | None:
    """Render the query."""
    asked = results.marked or results.mathml
    if origin is not None:
        parts = (render_formula(asked, origin.latex), render_context(origin))
        where = render_paper_line(origin.paper, origin.section)
        return tag("section", tag("h1", "Kin of this equation"), *parts, where, class_="asked")
    if not results.mathml:
        return tag("h1", f"Results for “{query.text}”", class_="hidden-text")
    return tag(
        "section",
        tag("h1", "Kin of this formula"),
        render_formula(asked, results.latex),
        tag("p", "and words near it: ", tag("strong", query.text), class_="where") if query.text else None,
        class_="asked",
    )


def _render_hit(query: PageSearch, hit: Hit, number: int) -> SafeHtml:
    equation = hit.equation
    kin = tag("a", "Kin of this one", href=get_related_url(equation.id), class_="kin-link", data_swap=True)
    similarity = f"{max(0.0, hit.score):.2f}"
    meter = tag("meter", similarity, min="0", max="1", value=similarity, aria_hidden="true")
    title = f"score {hit.score:.3f}, cosine of the vectors {hit.similarity:.3f}"
    score = tag("span", meter, " ", similarity, class_="score", title=title)
    pairs = [[pairing.hit_node, pairing.query_node] for pairing in hit.pairings]  # for the page's script
    actions = tag("div", score, kin, render_copy_button(equation.latex), _render_judgement_buttons(), class_="actions")
    return tag(
        "li",
        render_formula(hit.marked or equation.mathml, equation.latex),
        _render_names(hit),
        render_context(equation),
        render_paper_line(equation.paper, equation.section),
        actions,
        _render_duplicates(hit),
        _render_more_of_paper(query, hit),
        class_="hit",
        tabindex="-1",
        id=f"hit-{number}",
        data_id=equation.id,
        data_pairs=orjson.dumps(pairs).decode() if pairs else None,
        aria_label=f"Result {number}",
    )


def _render_names(hit: Hit) -> SafeHtml | None:
    """Render the names of the query's letters in the hit, or the values of its wildcards."""
    read: list[Content] = [tag("li", tag("i", name), " reads as ", tag("i", other)) for name, other in hit.renaming]
    read += [tag("li", tag("i", name), " = ", SafeHtml(part)) for name, part in hit.bindings]
    return tag("ul", read, class_="readings", aria_label="Names") if read else None


def _render_judgement_buttons() -> SafeHtml:
    """Render buttons to judge a hit; hidden until the page's script shows them."""
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
    items = [tag("li", tag("a", name, href=get_related_url(name)), data_equation=name) for name in hit.same]
    title = f"{number} near-identical formula{'' if number == 1 else 's'}"
    return tag("details", tag("summary", title), tag("ul", items), class_="same")


def _render_more_of_paper(query: PageSearch, hit: Hit) -> SafeHtml | None:
    if not hit.more:
        return None
    key = hit.equation.paper.key
    address = query.to_url(group=False, paper=(key,))
    link = tag("a", "show them in a list of their own", href=address, data_swap=True)
    title = f"{hit.more} more from this paper"
    return tag(
        "details", tag("summary", title), tag("div", link), class_="more", data_from=address, data_count=hit.more
    )


def _render_export_menu(query: PageSearch) -> SafeHtml:
    links = [
        tag("a", _FORMAT_NAMES[form], href=query.to_url("/export", format=form), download=True)
        for form in _FORMAT_NAMES
    ]
    links.append(tag("a", "This page as JSON", href=query.to_url("/api/search")))
    return tag("details", tag("summary", "Export"), tag("div", links), class_="menu")


def _render_no_hits(query: PageSearch) -> SafeHtml:
    tips: list[Content] = [tag("li", "Take away a part of the formula, or search for its core.")]
    if query.text:
        tips.append(tag("li", tag("a", "Search without words", href=query.to_url(text=""))))
    plain = query.replace(field=(), from_year=None, to_year=None, author=(), paper=(), without=())
    if plain != query:
        tips.append(tag("li", tag("a", "Search without filters", href=plain.to_url())))
    return tag("div", tag("p", "Nothing in this library fits."), tag("ul", tips), class_="nothing")


def get_search_url(latex: str) -> str:
    """Return the URL of the results of a formula."""
    return "/search?" + urlencode({"q": latex})
