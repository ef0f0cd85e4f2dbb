r"""HTML pages with MathML (arXiv's HTML, ar5iv, rendered KaTeX and MathJax) to LaTeX-like text.

Display equations stay MathML in `eqkinmathml` environments, inline math becomes `$...$` where the page has its LaTeX.
"""

from __future__ import annotations

import codecs
import re

from eqkin.limits import LIMITS
from eqkin.sources.arxiv_ids import parse_arxiv_id
from eqkin.sources.html_math import MathElement, join_elements
from eqkin.sources.html_tokens import HtmlTag, refuse_entities, tokenize_html
from eqkin.sources.paper import Paper
from eqkin.sources.text import clean_text, decode_text, escape_percent, format_display_math, format_heading

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_DROPPED_TAGS = frozenset(
    "script style pre code svg nav template noscript textarea select iframe footer button mjx-math".split()
)
_DROPPED_CLASSES = frozenset("katex-html mjx-chtml MathJax_Preview ltx_page_footer ltx_tag".split())
_BLOCK_TAGS = frozenset("p div li tr table section article br blockquote figure dd dt".split())
_VOID_TAGS = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([A-Za-z0-9_-]{2,20})""", re.IGNORECASE)
# UTF-16 is not among them: a page whose declaration can be read as ASCII is something else, others have a mark.
_ALLOWED_CODECS = frozenset(
    "ascii utf-8 gb2312 gbk gb18030 shift_jis cp932 euc_jp euc_kr cp949 big5 cp950 koi8-r koi8-u".split()
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp125{page}" for page in range(9)]
)
_SITE_NAME = re.compile(r"\s*(?:[|–—-]\s*)?(?:ar5iv|arXiv).{0,20}\Z|\A\[[^\]]{5,30}\]\s*")


def read_html(raw: bytes, key: str, origin: str) -> Paper:
    """The paper in an HTML page; raises `BadInput` if it declares XML entities."""
    text = _decode_page(raw)
    refuse_entities(text, origin)
    page = _PageConverter("<math" in text or ":math" in text)
    for token in tokenize_html(text):
        if isinstance(token, str):
            page.handle_text(token)
        elif token.closes:
            page.handle_end_tag(token.name)
        else:
            page.handle_start_tag(token)
    return page.build_paper(key, origin)


def _decode_page(raw: bytes) -> str:
    declared = _CHARSET.search(raw[:4096])
    codec = _find_codec(declared.group(1).decode("ascii")) if declared else None
    if codec:
        try:
            return clean_text(raw.decode(codec))
        except UnicodeError:
            pass
    return decode_text(raw)


def _find_codec(name: str) -> str | None:
    """The codec of a declared encoding; None for one that no page has, or unknown."""
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return codec if codec in _ALLOWED_CODECS else None


class _PageConverter:
    """State of one page while its tags and text come in."""

    def __init__(self, has_mathml: bool) -> None:
        self._escapes_dollars = has_mathml  # without MathML a dollar sign may be math for MathJax
        self._out: list[str] = []
        self._open: list[str] = []
        self._dropped_at = 0  # depth at which a dropped element was opened, 0 outside of one
        self._unit_at = 0  # the same for an element that is one equation
        self._unit: list[MathElement] = []
        self._unit_text: list[str] = []
        self._references_at = 0  # the same for the list of references
        self._references_start = 0
        self._references: list[str] = []
        self._groups: list[int] = []
        self._displays: list[int] = []
        self._math: MathElement | None = None
        self._caught: tuple[str, int, int] | None = None  # what is caught, depth, where its text starts
        self._script = ""
        self._title = self._heading_title = self._arxiv_id = self._lang = ""
        self._authors: list[str] = []
        self._persons: list[str] = []
        self._notes: list[str] = []

    def handle_start_tag(self, tag: HtmlTag) -> None:
        """Take a start tag."""
        if self._math is not None and tag.name != "math":
            self._math.add_tag(tag)
            return
        if tag.name in ("meta", "link", "base", "html", "a"):
            self._read_metadata(tag)
        if tag.name in _BLOCK_TAGS:
            self._out.append("\n")
        if tag.name in _VOID_TAGS:
            return
        if tag.name == "math":
            if not self._dropped_at and self._math is None:
                self._math = MathElement(tag, LIMITS.mathml_chars)
                if tag.empty:
                    self._end_math()
            return
        if tag.empty and tag.name in _BLOCK_TAGS | {"a", "span", "script"}:
            return
        self._open.append(tag.name)
        if not self._dropped_at:
            self._enter_element(tag, len(self._open))

    def _enter_element(self, tag: HtmlTag, depth: int) -> None:
        classes = tag.classes
        if tag.name == "script" and tag.attributes.get("type", "").startswith(("math/tex", "math/mml")):
            self._script = tag.attributes["type"]
        if tag.name in _DROPPED_TAGS or classes & _DROPPED_CLASSES:
            self._dropped_at = depth
        elif tag.name in _HEADINGS or tag.name == "title":
            self._begin_capture(tag.name if "ltx_title_document" not in classes else "document", depth)
        elif "ltx_bibliography" in classes and not self._references_at:
            self._references_at, self._references_start = depth, len(self._out)
        elif self._references_at:
            self._handle_reference(tag)
        elif "ltx_personname" in classes:
            self._begin_capture("person", depth)
        elif "ltx_equationgroup" in classes:
            self._groups.append(depth)
        elif not self._unit_at and ("ltx_equation" in classes or (self._groups and tag.name == "tbody")):
            if tag.name != "tbody" or "id" in tag.attributes or "ltx_equation" in classes:
                self._unit_at = depth
        elif "katex-display" in classes or tag.attributes.get("display") == "true":
            self._displays.append(depth)

    def _handle_reference(self, tag: HtmlTag) -> None:
        """Mark where an item of the bibliography starts, and keep addresses of arXiv papers in it."""
        if "ltx_bibitem" in tag.classes:
            self._out.append("\n\\bibitem{} ")
        elif tag.name == "a" and (found := parse_arxiv_id(tag.attributes.get("href", ""))):
            self._out.append(f" arXiv:{found.base} ")

    def handle_end_tag(self, name: str) -> None:
        """Take an end tag; one that closes nothing near is passed over."""
        if self._math is not None:
            if name == "math":
                self._end_math()
            else:
                self._math.add_tag(HtmlTag(name, closes=True))
            return
        if name not in self._open[-200:]:
            return
        while self._open:
            last = self._open.pop()
            self._leave_element(len(self._open) + 1)
            if last in _BLOCK_TAGS:
                self._out.append("\n")
            if last == name:
                return

    def _leave_element(self, depth: int) -> None:
        """Finish what was opened at `depth`."""
        if self._dropped_at >= depth:
            self._dropped_at = 0
            self._script = ""
        if self._unit_at >= depth:
            self._unit_at = 0
            self._end_equation()
        if self._groups and self._groups[-1] >= depth:
            self._groups.pop()
        if self._displays and self._displays[-1] >= depth:
            self._displays.pop()
        if self._caught and self._caught[1] >= depth:
            self._end_capture()
        if self._references_at >= depth:
            self._references_at = 0
            self._references.append(clean_text("".join(self._out[self._references_start :])))
            del self._out[self._references_start :]

    def handle_text(self, text: str) -> None:
        """Take text."""
        if self._math is not None:
            self._math.add_text(text)
        elif self._script:
            latex = text if self._script.startswith("math/tex") else ""
            self._out.append(
                format_display_math(latex) if "mode=display" in self._script else f"${latex.strip()}$" if latex else ""
            )
        elif self._unit_at and not self._dropped_at:
            self._unit_text.append(text)
        elif not self._dropped_at:
            self._out.append(self._escape_prose(text))

    def _escape_prose(self, text: str) -> str:
        if self._escapes_dollars:
            text = text.replace("\\", r"\textbackslash{}").replace("$", r"\$")
        return escape_percent(text)

    def _begin_capture(self, what: str, depth: int) -> None:
        if self._caught is None:
            self._caught = (what, depth, len(self._out))

    def _end_capture(self) -> None:
        """Make a heading, title or name of the text caught since its start tag."""
        if self._caught is None:
            return
        what, _, start = self._caught
        self._caught = None
        words = " ".join("".join(self._out[start:]).split())
        del self._out[start:]
        if what == "title":
            self._title = self._title or _SITE_NAME.sub("", words)
        elif what == "document":
            self._heading_title = words
        elif what == "person":
            self._persons.append(words)
        elif words:
            if what == "h1" and not self._heading_title:
                self._heading_title = words
            self._out.append(format_heading(_HEADINGS[what] - 1 or 1, words))

    def _end_math(self) -> None:
        math, self._math = self._math, None
        if math is None:
            return
        if math.too_long:
            self._notes.append(f"an equation of more than {LIMITS.mathml_chars:,} characters was left out")
        elif self._unit_at:
            self._unit.append(math)
        elif self._caught is None and (math.is_block or self._displays):
            self._put_equation([math])
        elif math.latex:
            self._out.append(f"${' '.join(math.latex.split())}$")

    def _end_equation(self) -> None:
        """Put an equation: its MathML, else the LaTeX that stands in its place on pages made without MathML."""
        unit, self._unit = self._unit, []
        latex, self._unit_text = "".join(self._unit_text).strip(), []
        if unit:
            self._put_equation(unit)
        elif latex.startswith(("$$", r"\[", r"\begin{")):
            self._out.append(f"\n{latex}\n")

    def _put_equation(self, elements: list[MathElement]) -> None:
        self._out.append(f"\n\\begin{{eqkinmathml}}{join_elements(elements)}\\end{{eqkinmathml}}\n")

    def _read_metadata(self, tag: HtmlTag) -> None:
        """What the page says about itself."""
        attributes = tag.attributes
        if tag.name == "html":
            self._lang = attributes.get("lang") or attributes.get("xml:lang") or ""
        name = attributes.get("name", "").lower()
        content = attributes.get("content", "").strip()
        if name == "citation_title" and content:
            self._title = content
        elif name in ("citation_author", "author") and content:
            self._authors.append(content)
        elif name == "citation_arxiv_id":
            self._arxiv_id = content
        if not self._arxiv_id and tag.name in ("base", "link", "a"):
            address = attributes.get("href", "")
            wanted = tag.name == "base" or "canonical" in attributes.get("rel", "") or "ar5iv" in tag.classes
            if wanted and (found := parse_arxiv_id(address)):
                self._arxiv_id = found.base

    def build_paper(self, key: str, origin: str) -> Paper:
        """The paper, once the page is at its end."""
        if self._math is not None:
            self._end_math()
        while self._open:
            self.handle_end_tag(self._open[-1])
        arxiv_id = parse_arxiv_id(self._arxiv_id) if self._arxiv_id else None
        return Paper(
            key=key,
            text=clean_text(re.sub(r"\n[ \t]*\n\s*", "\n\n", "".join(self._out))),
            origin=origin,
            kind="html",
            title=clean_text(self._heading_title or self._title),
            authors=self._authors or self._persons,
            year=arxiv_id.year if arxiv_id else None,
            lang=self._lang[:20],
            group=arxiv_id.key if arxiv_id else "",
            bibliography=self._references,
            notes=self._notes,
        )
