"""An equation as it stands in a page: the formula, the prose around, the paper and section it is from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from eqkin.markup import Safe, tag
from eqkin.search.results import EquationRecord, PaperRecord
from eqkin.web.layout import listed

_PROSE_CHARS = 240
_AUTHORS = 4
_DOLLARS = re.compile(r"\$([^$]+)\$")


def formula(mathml: str, latex: str) -> Safe:
    """The formula itself. The MathML is what our own writer made: known elements and attributes only."""
    content = Safe(mathml) if mathml else tag("code", latex)
    return tag("div", content, class_="formula", tabindex="0", role="group", aria_label="Formula", title=latex)


def prose(equation: EquationRecord) -> Safe | None:
    """The words just before and after."""
    before, after = _last(equation.before), _first(equation.after)
    if not before and not after:
        return None
    here = tag("span", " ⟨formula⟩ ", class_="quiet", aria_hidden="true")
    return tag("p", _inline(before), here, _inline(after), class_="context")


def _inline(text: str) -> list[str]:
    """Prose with its inline formulas set apart, without their dollar signs."""
    pieces = _DOLLARS.split(text)
    return [tag("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def _last(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _PROSE_CHARS else "… " + text[-_PROSE_CHARS:].partition(" ")[2]


def _first(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _PROSE_CHARS else text[:_PROSE_CHARS].rpartition(" ")[0] + " …"


def paper_address(key: str) -> str:
    """The page of a paper."""
    return "/paper?" + urlencode({"key": key})


def kin_address(identifier: str) -> str:
    """The page with the kin of an equation."""
    return "/search?" + urlencode({"like": identifier})


def paper_line(paper: PaperRecord, section: str = "") -> Safe:
    """Title, authors, year, section, fields of a paper in one line."""
    items = [tag("a", paper.title or paper.key, href=paper_address(paper.key), class_="title")]
    if section:
        items.append(tag("span", section, class_="section"))
    if paper.authors:
        items.append(tag("span", short_authors(paper.authors), class_="authors"))
    if paper.year:
        items.append(tag("span", str(paper.year)))
    return tag("p", listed(items), " ", field_tags(paper.fields), class_="where")


def short_authors(authors: Sequence[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(authors[:_AUTHORS]) + (" and others" if len(authors) > _AUTHORS else "")


def field_tags(fields: Sequence[str]) -> list[Safe]:
    """Subject areas as small labels."""
    return [tag("span", field, class_="field") for field in fields]


def copy_button(latex: str) -> Safe:
    """A button that copies the LaTeX."""
    return tag("button", "Copy LaTeX", type="button", class_="copy quiet-button", data_latex=latex)
