"""The report as one page that needs nothing else: no request leaves it, and it works from a file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from eqkin.errors import EqkinError
from eqkin.evaluation.report.formatting import clean_text, make_slugs
from eqkin.evaluation.report.html_tables import data, table
from eqkin.evaluation.report.svg import inline
from eqkin.evaluation.report.verdict import verdict
from eqkin.evaluation.results import ExampleHit, ExperimentResult, Plot, WorkedExample
from eqkin.markup import SafeHtml, join, tag
from eqkin.trees.mathml import parse_mathml, to_mathml

_HOW_TO_READ = (
    "Figures in brackets are 95 % intervals; the line below a figure draws them, on one scale for a column. The best"
    " measured value of a column is bold. Rows marked “paper” or “published” are other people's figures, on their own"
    " data and without an interval: a hollow dot."
)


def page(results: Sequence[ExperimentResult], missing: Mapping[str, str]) -> str:
    """The whole page; `missing` are the experiments not run yet, with the command that runs each."""
    names = make_slugs([result.experiment for result in results], taken=("main", "summary"))
    style, script = (files(__package__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", "The paper's experiments, measured again · eqkin"),
        tag("style", SafeHtml(style)),
    )
    main = tag(
        "main",
        _summary(results, names, missing),
        [_section(result, name) for result, name in zip(results, names, strict=True)],
        id="main",
    )
    skip = tag("a", "Skip to the results", href="#main", class_="skip")
    frame = tag("div", _contents(results, names), main, class_="frame")
    body = tag("body", skip, _header(), frame, tag("script", SafeHtml(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only this page's own style and script count."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header() -> SafeHtml:
    brand = tag("p", tag("span", "≃", class_="mark", aria_hidden="true"), "eqkin", class_="brand")
    cited = tag(
        "p",
        "Pfahler and Morik, ",
        tag("cite", "Semantic Search in Millions of Equations"),
        ", KDD 2020: each of its tables, figures and protocols, repeated on other data beside its baselines and"
        " today's peers.",
        class_="lead",
    )
    return tag("header", brand, tag("h1", "The paper's experiments, measured again"), cited)


def _contents(results: Sequence[ExperimentResult], names: Sequence[str]) -> SafeHtml:
    titles = ["Summary", *(clean_text(result.title) for result in results)]
    links = [
        tag("li", tag("a", title, href=f"#{name}")) for title, name in zip(titles, ["summary", *names], strict=True)
    ]
    return tag("nav", tag("h2", "Contents"), tag("ol", links), aria_label="Contents", class_="contents")


def _summary(results: Sequence[ExperimentResult], names: Sequence[str], missing: Mapping[str, str]) -> SafeHtml:
    return tag(
        "section",
        tag("h2", "Summary", id="summary-title"),
        tag("p", _HOW_TO_READ, class_="reading"),
        tag("div", map(_claim, results, names), class_="claims"),
        _missing(missing),
        id="summary",
        aria_labelledby="summary-title",
    )


def _claim(result: ExperimentResult, name: str) -> SafeHtml:
    found = verdict(result)
    pill = tag("span", found.words, class_=f"pill {found.kind}") if found.words else None
    return tag(
        "article",
        tag("h3", tag("a", clean_text(result.title), href=f"#{name}"), pill),
        tag(
            "dl",
            tag("dt", "The paper"),
            tag("dd", clean_text(result.claim)),
            tag("dt", "Here"),
            tag("dd", found.finding),
        ),
    )


def _missing(missing: Mapping[str, str]) -> SafeHtml | None:
    if not missing:
        return None
    listed = [tag("li", name, " ", tag("code", command)) for name, command in missing.items()]
    return tag("div", tag("p", tag("b", "Not run yet:")), tag("ul", listed), class_="missing")


def _section(result: ExperimentResult, name: str) -> SafeHtml:
    parts = [
        tag("h2", clean_text(result.title), tag("a", "#", href=f"#{name}", class_="here", aria_label="Link to this section"),
            id=f"{name}-title"),
        tag("p", tag("b", "The paper: "), clean_text(result.claim), class_="claim"),
        tag("ul", [tag("li", clean_text(finding)) for finding in result.findings], class_="findings"),
    ]  # fmt: skip
    parts += [table(content, f"{name}-table-{number}") for number, content in enumerate(result.tables, 1)]
    parts += [_figure(plot, f"{name}-plot-{number}") for number, plot in enumerate(result.plots, 1)]
    if result.examples:
        parts.append(tag("h3", "Examples"))
        parts += [_example(example) for example in result.examples]
    if result.differences:
        listed = tag("ul", [tag("li", clean_text(difference)) for difference in result.differences])
        parts.append(tag("div", tag("h3", "What differs from the paper, and why"), listed, class_="differences"))
    if result.facts:
        parts.append(_facts(result.facts))
    return tag("section", parts, id=name, aria_labelledby=f"{name}-title")


def _figure(plot: Plot, name: str) -> SafeHtml:
    caption = tag(
        "figcaption",
        tag("b", clean_text(plot.title)),
        tag("span", clean_text(plot.caption), class_="caption") if plot.caption else None,
    )
    drawing = SafeHtml(inline(plot, name, clean_text(plot.title)))
    return tag("figure", caption, tag("div", drawing, class_="drawing", tabindex="0"), data(plot), id=name)


def _example(example: WorkedExample) -> SafeHtml:
    query = tag("div", tag("span", "Query", class_="rank"), formula(example.mathml, example.latex), class_="query")
    hits = tag("ol", [_hit(hit) for hit in example.hits], class_="hits")
    caption = tag("p", clean_text(example.caption), class_="caption") if example.caption else None
    return tag("article", tag("h4", clean_text(example.title)), caption, query, hits, class_="example")


def _hit(hit: ExampleHit) -> SafeHtml:
    where = tag("p", clean_text(hit.where), class_="where") if hit.where else None
    note = tag("p", clean_text(hit.note), class_="note") if hit.note else None
    shown = tag("div", formula(hit.mathml, hit.latex), where, note)
    return tag("li", tag("span", tag("span", "Rank ", class_="unseen"), str(hit.rank), class_="rank"), shown)


def formula(mathml: str, latex: str) -> SafeHtml:
    """A formula as MathML that was cleaned here, or its LaTeX where that cannot be read."""
    try:
        shown = SafeHtml(to_mathml(parse_mathml(mathml)))
    except EqkinError:
        shown = tag("code", clean_text(latex))
    return tag("div", shown, class_="formula", tabindex="0", title=clean_text(latex))


def _facts(facts: Mapping[str, str]) -> SafeHtml:
    listed = join(tag("div", tag("dt", clean_text(name)), tag("dd", _fact(name, text))) for name, text in facts.items())
    return tag("details", tag("summary", "Data and settings"), tag("dl", listed), class_="facts")


def _fact(name: str, text: str) -> SafeHtml | str:
    return tag("code", clean_text(text)) if "command" in name.lower() or "digest" in name.lower() else clean_text(text)
