"""What all pages share: head, header with the search form, foot."""

from __future__ import annotations

from eqkin.limits import LIMITS
from eqkin.markup import Content, SafeHtml, join, tag
from eqkin.web.query import WebQuery

_STYLESHEETS = ("base", "form", "results", "pages")


def render_page(
    title: str, body: Content, *, query: WebQuery | None = None, script: str = "page", wide: bool = False
) -> str:
    """A whole page around its body; the form shows the query."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · eqkin" if title else "eqkin: find the kin of an equation"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        [tag("link", rel="stylesheet", href=f"/static/{name}.css") for name in _STYLESHEETS],
        tag("script", src="/static/theme.js"),
        tag("script", src=f"/static/{script}.js", type="module"),
    )
    content = tag("main", body, id="main", class_="wide" if wide else None, tabindex="-1")
    skip = tag("a", "Skip to the results", href="#main", class_="skip")
    return f"<!doctype html>{tag('html', head, tag('body', skip, _render_header(query), content, _render_footer(), _render_help()), lang='en')}"


def _render_header(query: WebQuery | None) -> SafeHtml:
    brand = tag(
        "a", tag("span", "≃", class_="mark", aria_hidden="true"), "eqkin", href="/", class_="brand", title="Home"
    )
    theme = tag("button", type="button", id="theme", class_="icon", title="Light or dark", aria_label="Light or dark")
    keys = tag("button", "?", type="button", id="keys", class_="icon", title="Keyboard", aria_label="Keyboard help")
    links = tag("nav", tag("a", "Map", href="/map"), tag("a", "API", href="/api"), keys, theme, aria_label="Site")
    return tag("header", tag("div", brand, links, class_="bar"), _render_form(query or WebQuery()))


def _render_form(query: WebQuery) -> SafeHtml:
    formula = tag(
        "textarea",
        query.q,
        id="q",
        name="q",
        rows=1,
        maxlength=LIMITS.web_query_chars,
        placeholder="LaTeX, such as  a^2 + b^2 = c^2",
        spellcheck="false",
        autocapitalize="off",
        autocomplete="off",
        aria_describedby="preview",
    )
    box = tag("div", tag("div", id="echo", aria_hidden="true"), formula, class_="box")
    words = tag(
        "input",
        id="text",
        name="text",
        value=query.text,
        maxlength=500,
        placeholder="and words (optional)",
        type="text",
    )
    palette = tag(
        "button", "∑", type="button", id="palette-button", class_="icon", title="Symbols and templates",
        aria_label="Symbols and templates", aria_expanded="false", aria_controls="palette",
    )  # fmt: skip
    row = tag(
        "div",
        tag("label", "Formula, as LaTeX or MathML", for_="q", class_="hidden-text"),
        box,
        tag("label", "Words", for_="text", class_="hidden-text"),
        words,
        palette,
        tag("button", "Search", type="submit", class_="main-button"),
        class_="row",
    )
    panel = tag("div", id="palette", hidden=True)
    preview = tag("div", id="preview", aria_live="polite", hidden=True)
    return tag("form", row, panel, preview, action="/search", role="search", id="form")


def _render_footer() -> SafeHtml:
    return tag("footer", "Everything here runs on this server; nothing is asked from anywhere else.")


def _render_help() -> SafeHtml:
    keys = [
        ("/", "to the formula"),
        ("Enter", "search (Shift + Enter: new line)"),
        ("Tab", "in a template: next empty place"),
        ("j k ↓ ↑", "next, previous result"),
        ("o", "open the result's paper"),
        ("f", "find kin of the result"),
        ("r n", "relevant, not relevant"),
        ("?", "this list"),
    ]
    rows = [tag("tr", tag("td", tag("kbd", name)), tag("td", meaning)) for name, meaning in keys]
    close = tag("form", tag("button", "Close", class_="main-button"), method="dialog")
    heading = tag("h2", "Keyboard", id="help-title")
    return tag("dialog", heading, tag("table", rows), close, id="help", aria_labelledby="help-title")


def join_items(items: list[SafeHtml], separator: str = " · ") -> SafeHtml:
    """Items in one line."""
    pieces: list[Content] = []
    for item in items:
        pieces += [tag("span", separator, class_="quiet"), item] if pieces else [item]
    return join(pieces)
