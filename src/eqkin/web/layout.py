"""Parts that all pages share: head, header with the search form, footer, and equations with their context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from eqkin.limits import LIMITS
from eqkin.search.results import EquationRecord, PaperRecord
from eqkin.web.markup import Content, SafeHtml, join, tag
from eqkin.web.models import PageSearch

_STYLESHEETS = ("base", "form", "results", "pages")


def render_page(
    title: str, body: Content, *, query: PageSearch | None = None, script: str = "page", wide: bool = False
) -> str:
    """Render a page around its body; the form shows the query."""
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
    footer = tag("footer", "Everything here runs on this server; nothing is asked from anywhere else.")
    page = tag("body", skip, _render_header(query), content, footer, _render_help())
    return f"<!doctype html>{tag('html', head, page, lang='en')}"


def _render_header(query: PageSearch | None) -> SafeHtml:
    brand = tag(
        "a", tag("span", "≃", class_="mark", aria_hidden="true"), "eqkin", href="/", class_="brand", title="Home"
    )
    theme = tag("button", type="button", id="theme", class_="icon", title="Light or dark", aria_label="Light or dark")
    keys = tag("button", "?", type="button", id="keys", class_="icon", title="Keyboard", aria_label="Keyboard help")
    links = tag("nav", tag("a", "Map", href="/map"), tag("a", "API", href="/api"), keys, theme, aria_label="Site")
    return tag("header", tag("div", brand, links, class_="bar"), _render_form(query or PageSearch()))


def _render_form(query: PageSearch) -> SafeHtml:
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


def join_items(items: list[SafeHtml]) -> SafeHtml:
    """Join items in one line."""
    pieces: list[Content] = []
    for item in items:
        pieces += [tag("span", " · ", class_="quiet"), item] if pieces else [item]
    return join(pieces)


_MAX_CONTEXT_CHARS = 240
_MAX_AUTHORS = 4
_INLINE_MATH = re.compile(r"\$([^$]+)\$")


def render_formula(mathml: str, latex: str) -> SafeHtml:
    """Render a formula. The MathML is safe: our own writer made it, with known elements and attributes only."""
    content = SafeHtml(mathml) if mathml else tag("code", latex)
    return tag("div", content, class_="formula", tabindex="0", role="group", aria_label="Formula", title=latex)


def render_context(equation: EquationRecord) -> SafeHtml | None:
    """Render the text before and after an equation."""
    before, after = " ".join(equation.before.split()), " ".join(equation.after.split())
    if not before and not after:
        return None
    if len(before) > _MAX_CONTEXT_CHARS:
        before = "… " + before[-_MAX_CONTEXT_CHARS:].partition(" ")[2]
    if len(after) > _MAX_CONTEXT_CHARS:
        after = after[:_MAX_CONTEXT_CHARS].rpartition(" ")[0] + " …"
    here = tag("span", " ⟨formula⟩ ", class_="quiet", aria_hidden="true")
    return tag("p", _render_inline_math(before), here, _render_inline_math(after), class_="context")


def _render_inline_math(text: str) -> list[str]:
    """Render inline formulas of a text as code, without their dollar signs."""
    pieces = _INLINE_MATH.split(text)
    return [tag("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def get_paper_url(key: str) -> str:
    """Return the URL of a paper's page."""
    return "/paper?" + urlencode({"key": key})


def get_related_url(identifier: str) -> str:
    """Return the URL of the equations related to one."""
    return "/search?" + urlencode({"like": identifier})


def render_paper_line(paper: PaperRecord, section: str = "") -> SafeHtml:
    """Render title, section, authors, year and fields of a paper in one line."""
    items = [tag("a", paper.title or paper.key, href=get_paper_url(paper.key), class_="title")]
    if section:
        items.append(tag("span", section, class_="section"))
    if paper.authors:
        items.append(tag("span", join_authors(paper.authors), class_="authors"))
    if paper.year:
        items.append(tag("span", str(paper.year)))
    return tag("p", join_items(items), " ", render_field_tags(paper.fields), class_="where")


def join_authors(authors: Sequence[str]) -> str:
    """Join names; only the first ones if there are many."""
    return ", ".join(authors[:_MAX_AUTHORS]) + (" and others" if len(authors) > _MAX_AUTHORS else "")


def render_field_tags(fields: Sequence[str]) -> list[SafeHtml]:
    """Render subject areas as labels."""
    return [tag("span", field, class_="field") for field in fields]


def render_copy_button(latex: str) -> SafeHtml:
    """Render a button that copies the LaTeX."""
    return tag("button", "Copy LaTeX", type="button", class_="copy quiet-button", data_latex=latex)
