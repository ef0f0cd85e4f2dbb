"""An equation as it stands in a page: the formula, the prose around, the paper and section it is from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from eqkin.markup import SafeHtml, tag
from eqkin.search.results import EquationRecord, PaperRecord
from eqkin.web.layout import join_items

_MAX_CONTEXT_CHARS = 240
_MAX_AUTHORS = 4
_INLINE_MATH = re.compile(r"\$([^$]+)\$")


def render_formula(mathml: str, latex: str) -> SafeHtml:
    """The formula itself. The MathML is what our own writer made: known elements and attributes only."""
    content = SafeHtml(mathml) if mathml else tag("code", latex)
    return tag("div", content, class_="formula", tabindex="0", role="group", aria_label="Formula", title=latex)


def render_context(equation: EquationRecord) -> SafeHtml | None:
    """The words just before and after."""
    before, after = _shorten_start(equation.before), _shorten_end(equation.after)
    if not before and not after:
        return None
    here = tag("span", " ⟨formula⟩ ", class_="quiet", aria_hidden="true")
    return tag("p", _render_inline_math(before), here, _render_inline_math(after), class_="context")


def _render_inline_math(text: str) -> list[str]:
    """Prose with its inline formulas set apart, without their dollar signs."""
    pieces = _INLINE_MATH.split(text)
    return [tag("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def _shorten_start(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_CONTEXT_CHARS else "… " + text[-_MAX_CONTEXT_CHARS:].partition(" ")[2]


def _shorten_end(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_CONTEXT_CHARS else text[:_MAX_CONTEXT_CHARS].rpartition(" ")[0] + " …"


def get_paper_url(key: str) -> str:
    """The page of a paper."""
    return "/paper?" + urlencode({"key": key})


def get_related_url(identifier: str) -> str:
    """The page with the kin of an equation."""
    return "/search?" + urlencode({"like": identifier})


def render_paper_line(paper: PaperRecord, section: str = "") -> SafeHtml:
    """Title, authors, year, section, fields of a paper in one line."""
    items = [tag("a", paper.title or paper.key, href=get_paper_url(paper.key), class_="title")]
    if section:
        items.append(tag("span", section, class_="section"))
    if paper.authors:
        items.append(tag("span", join_authors(paper.authors), class_="authors"))
    if paper.year:
        items.append(tag("span", str(paper.year)))
    return tag("p", join_items(items), " ", render_field_tags(paper.fields), class_="where")


def join_authors(authors: Sequence[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(authors[:_MAX_AUTHORS]) + (" and others" if len(authors) > _MAX_AUTHORS else "")


def render_field_tags(fields: Sequence[str]) -> list[SafeHtml]:
    """Subject areas as small labels."""
    return [tag("span", field, class_="field") for field in fields]


def render_copy_button(latex: str) -> SafeHtml:
    """A button that copies the LaTeX."""
    return tag("button", "Copy LaTeX", type="button", class_="copy quiet-button", data_latex=latex)
