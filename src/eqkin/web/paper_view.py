"""A paper's page: its equations by section, and the papers related to it, with the pairs that say so."""

from __future__ import annotations

from eqkin.markup import Content, Safe, tag
from eqkin.search.results import EquationRecord, PaperHit, PaperPage
from eqkin.sources.arxiv_ids import parse_id
from eqkin.web import equations as shown
from eqkin.web.layout import listed

_PAIRS = 3


def paper_body(read: PaperPage, related: list[PaperHit]) -> Safe:
    """The body of the page."""
    number = sum(len(equations) for _, equations in read.sections)
    sections = [_section(f"s{i}", heading, equations) for i, (heading, equations) in enumerate(read.sections)]
    counted = tag("h2", f"{number} equation{'' if number == 1 else 's'}")
    left = tag("div", counted, sections, class_="equations")
    right = tag("aside", tag("h2", "Related papers"), _related(related), class_="related", aria_label="Related papers")
    return tag("article", _head(read), tag("div", left, right, class_="columns"), class_="paper")


def _head(read: PaperPage) -> Safe:
    paper = read.paper
    items: list[Safe] = []
    if paper.authors:
        items.append(tag("span", ", ".join(paper.authors)))
    if paper.year:
        items.append(tag("span", str(paper.year)))
    arxiv = parse_id(paper.key) if paper.key.startswith("arxiv:") else None
    if arxiv:
        link = f"https://arxiv.org/abs/{arxiv.base}"
        items.append(tag("a", paper.key, href=link, rel="noreferrer noopener"))
    else:
        items.append(tag("span", paper.key, class_="quiet"))
    abstract = tag("p", read.abstract, class_="abstract") if read.abstract else None
    line = tag("p", listed(items), " ", shown.field_tags(paper.fields), class_="where")
    return tag("header", tag("h1", paper.title or paper.key), line, abstract)


def _section(name: str, heading: str, equations: tuple[EquationRecord, ...]) -> Safe | None:
    if not equations:
        return None
    items = [_equation(equation) for equation in equations]
    return tag("section", tag("h3", heading or "Without a heading"), tag("ol", items), id=name)


def _equation(equation: EquationRecord) -> Safe:
    kin = (
        tag("a", "Kin of this one", href=shown.kin_address(equation.id), class_="kin-link") if equation.mathml else None
    )
    actions = tag("div", kin, shown.copy_button(equation.latex), class_="actions")
    content = (shown.formula(equation.mathml, equation.latex), shown.prose(equation), actions)
    return tag("li", *content, class_="hit", tabindex="-1", data_id=equation.id)


def _related(related: list[PaperHit]) -> Content:
    if not related:
        return tag("p", "None in this library.", class_="quiet")
    return tag("ol", [_related_paper(hit) for hit in related])


def _related_paper(hit: PaperHit) -> Safe:
    title = tag("a", hit.paper.title or hit.paper.key, href=shown.paper_address(hit.paper.key), class_="title")
    pairs = [_pair(ours, theirs, cosine) for ours, theirs, cosine in hit.pairs[:_PAIRS]]
    score = tag("span", f"{hit.score:.2f}", class_="quiet", title="how related, from 0 to 1")
    details = tag("details", tag("summary", "What relates them"), tag("ul", pairs)) if pairs else None
    return tag("li", tag("p", title, " ", score), details)


def _pair(ours: EquationRecord, theirs: EquationRecord, cosine: float) -> Safe:
    rows: list[Content] = []
    for who, equation in (("here", ours), ("there", theirs)):
        link = tag("a", who, href=shown.kin_address(equation.id))
        rows.append(tag("div", tag("span", link, class_="quiet"), shown.formula(equation.mathml, equation.latex)))
    return tag("li", rows, class_="pair", title=f"cosine {cosine:.3f}")
