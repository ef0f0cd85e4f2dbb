"""A paper's page: its equations by section, and related papers with the pairs of equations that relate them."""

from __future__ import annotations

from eqkin.search.results import EquationRecord, PaperHit, PaperPage
from eqkin.sources.arxiv_ids import parse_arxiv_id
from eqkin.web.layout import (
    get_paper_url,
    get_related_url,
    join_items,
    render_context,
    render_copy_button,
    render_field_tags,
    render_formula,
)
from eqkin.web.markup import Content, SafeHtml, tag

_MAX_PAIRS = 3


def render_paper(read: PaperPage, related: list[PaperHit]) -> SafeHtml:
    """Render the body of the page."""
    number = sum(len(equations) for _, equations in read.sections)
    sections = [
        tag(
            "section",
            tag("h3", heading or "Without a heading"),
            tag("ol", map(_render_equation, equations)),
            id=f"s{i}",
        )
        for i, (heading, equations) in enumerate(read.sections)
        if equations
    ]
    counted = tag("h2", f"{number} equation{'' if number == 1 else 's'}")
    left = tag("div", counted, sections, class_="equations")
    none = tag("p", "None in this library.", class_="quiet")
    papers = tag("ol", map(_render_related_paper, related)) if related else none
    right = tag("aside", tag("h2", "Related papers"), papers, class_="related", aria_label="Related papers")
    return tag("article", _render_head(read), tag("div", left, right, class_="columns"), class_="paper")


def _render_head(read: PaperPage) -> SafeHtml:
    paper = read.paper
    items: list[SafeHtml] = []
    if paper.authors:
        items.append(tag("span", ", ".join(paper.authors)))
    if paper.year:
        items.append(tag("span", str(paper.year)))
    arxiv = parse_arxiv_id(paper.key) if paper.key.startswith("arxiv:") else None
    if arxiv:
        link = f"https://arxiv.org/abs/{arxiv.base}"
        items.append(tag("a", paper.key, href=link, rel="noreferrer noopener"))
    else:
        items.append(tag("span", paper.key, class_="quiet"))
    abstract = tag("p", read.abstract, class_="abstract") if read.abstract else None
    line = tag("p", join_items(items), " ", render_field_tags(paper.fields), class_="where")
    return tag("header", tag("h1", paper.title or paper.key), line, abstract)


def _render_equation(equation: EquationRecord) -> SafeHtml:
    kin = tag("a", "Kin of this one", href=get_related_url(equation.id), class_="kin-link") if equation.mathml else None
    actions = tag("div", kin, render_copy_button(equation.latex), class_="actions")
    content = (render_formula(equation.mathml, equation.latex), render_context(equation), actions)
    return tag("li", *content, class_="hit", tabindex="-1", data_id=equation.id)


def _render_related_paper(hit: PaperHit) -> SafeHtml:
    title = tag("a", hit.paper.title or hit.paper.key, href=get_paper_url(hit.paper.key), class_="title")
    pairs: list[Content] = []
    for ours, theirs, cosine in hit.pairs[:_MAX_PAIRS]:
        rows = []
        for who, equation in (("here", ours), ("there", theirs)):
            link = tag("a", who, href=get_related_url(equation.id))
            rows.append(tag("div", tag("span", link, class_="quiet"), render_formula(equation.mathml, equation.latex)))
        pairs.append(tag("li", rows, class_="pair", title=f"cosine {cosine:.3f}"))
    score = tag("span", f"{hit.score:.2f}", class_="quiet", title="how related, from 0 to 1")
    details = tag("details", tag("summary", "What relates them"), tag("ul", pairs)) if pairs else None
    return tag("li", tag("p", title, " ", score), details)
