"""Fields and years beside a result list: each a link that narrows the list, or widens it again."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

from eqkin.markup import Content, SafeHtml, tag
from eqkin.search.results import Results
from eqkin.web.query import WebQuery

_MAX_FIELDS = 12  # shown at once
_MAX_YEARS = 12


def render_facets(query: WebQuery, results: Results) -> SafeHtml:
    """The column of facets."""
    parts: list[Content] = [_render_fields(query, results.fields), _render_years(query, results.years)]
    switches = tag("div", tag("h2", "List"), tag("ul", _render_switches(query)), class_="facet")
    summary = tag("summary", "Filters")
    return tag("aside", tag("details", summary, parts, switches, open=True), class_="facets", aria_label="Filters")


def _render_fields(query: WebQuery, counts: dict[str, int]) -> SafeHtml | None:
    chosen = query.filters.fields
    names = [*chosen, *(name for name in counts if name not in chosen)]
    if not names:
        return None
    items = []
    for name in names:
        rest = tuple(other for other in chosen if other != name)
        narrowed = query.replace_filters(fields=rest if name in chosen else (*chosen, name))
        items.append(_render_item(name, counts.get(name, 0), narrowed.to_url(), name in chosen))
    others = items[_MAX_FIELDS:]
    more = tag("details", tag("summary", f"{len(others)} more"), tag("ul", others)) if others else None
    return tag("div", tag("h2", "Field"), tag("ul", items[:_MAX_FIELDS]), more, class_="facet", id="facet-field")


def _render_years(query: WebQuery, counts: dict[int, int]) -> SafeHtml | None:
    first, last = query.filters.first_year, query.filters.last_year
    if not counts and first is None and last is None:
        return None
    items = []
    for year in sorted(counts, reverse=True)[:_MAX_YEARS]:
        only = first == last == year
        narrowed = query.replace_filters(first_year=None if only else year, last_year=None if only else year)
        items.append(_render_item(str(year), counts[year], narrowed.to_url(), only))
    return tag("div", tag("h2", "Year"), tag("ul", items), _render_year_range(query), class_="facet", id="facet-year")


def _render_year_range(query: WebQuery) -> SafeHtml:
    """A form for a span of years; what else the query says goes along hidden."""
    rest = parse_qsl(urlsplit(query.replace_filters(first_year=None, last_year=None).to_url()).query)
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in rest]
    boxes = [
        tag("input", type="number", name=name, value=value, min=0, max=9999, placeholder=name, aria_label=label)
        for name, value, label in (
            ("from", query.filters.first_year, "First year"),
            ("to", query.filters.last_year, "Last year"),
        )
    ]
    return tag("form", hidden, boxes, tag("button", "Go", class_="quiet-button"), action="/search", class_="span")


def _render_switches(query: WebQuery) -> list[SafeHtml]:
    grouped = replace(query, group=not query.group).to_url()
    folded = replace(query, fold=not query.fold).to_url()
    marked = replace(query, explain=not query.explain).to_url()
    return [
        _render_item("Few hits a paper", None, grouped, query.group),
        _render_item("Fold near-identical", None, folded, query.fold),
        _render_item("Mark what matches", None, marked, query.explain),
    ]


def _render_item(name: str, count: int | None, address: str, on: bool) -> SafeHtml:
    number = tag("span", f"{count:,}", class_="number") if count is not None else None
    box = tag("span", "✓" if on else "", class_="tick", aria_hidden="true")
    state = tag("span", " (chosen)", class_="hidden-text") if on else None
    link = tag(
        "a", box, tag("span", name, class_="name"), number, state,
        href=address, class_="on" if on else None, data_swap=True, rel="nofollow",
    )  # fmt: skip
    return tag("li", link)


def render_active_filters(query: WebQuery) -> SafeHtml | None:
    """The filters that are on, each with a way to take it off."""
    f = query.filters
    chips: list[Content] = []
    for kind, values in (("authors", f.authors), ("papers", f.papers), ("without_papers", f.without_papers)):
        for value in values:
            rest = tuple(other for other in values if other != value)
            chips.append(
                _render_chip(
                    ("not " if kind == "without_papers" else "") + value, query.replace_filters(**{kind: rest})
                )
            )
    chips += [
        _render_chip(name, query.replace_filters(fields=tuple(o for o in f.fields if o != name))) for name in f.fields
    ]
    if f.first_year is not None or f.last_year is not None:
        both = f.first_year == f.last_year
        years = str(f.first_year) if both else f"{f.first_year or '…'} to {f.last_year or '…'}"
        chips.append(_render_chip(years, query.replace_filters(first_year=None, last_year=None)))
    return tag("p", "Only ", chips, class_="chips") if chips else None


def _render_chip(text: str, without: WebQuery) -> SafeHtml:
    close = tag("a", "✕", href=without.to_url(), aria_label=f"Take off the filter {text}", data_swap=True)
    return tag("span", text, " ", close, class_="chip")
