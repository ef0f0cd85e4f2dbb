r"""HTML pages with MathML (arXiv's HTML, ar5iv, rendered KaTeX and MathJax) to LaTeX-like text.

Display equations stay MathML in `eqkinmathml` environments; inline math becomes `$...$` where the page has its LaTeX.
The page is read in one pass: linear in its length, without recursion, without entities of its own.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from xml.sax.saxutils import escape, quoteattr

from eqkin.errors import BadInput
from eqkin.formulas.mathml import NOT_XML
from eqkin.latex.arxiv_ids import parse_arxiv_id
from eqkin.latex.titles import find_doi, find_year, order_name
from eqkin.limits import LIMITS
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
# Not UTF-16: a page whose declaration can be read as ASCII is not in UTF-16, and one in UTF-16 has a mark.
_ALLOWED_CODECS = frozenset(
    "ascii utf-8 gb2312 gbk gb18030 shift_jis cp932 euc_jp euc_kr cp949 big5 cp950 koi8-r koi8-u".split()
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp125{page}" for page in range(9)]
)
_SITE_NAME = re.compile(r"\s*(?:[|–—-]\s*)?(?:ar5iv|arXiv).{0,20}\Z|\A\[[^\]]{5,30}\]\s*")
_TOKEN = re.compile(
    r"""
      (?P<comment><!--)
    | (?P<cdata><!\[CDATA\[)
    | <[!?][^<>]{0,10000}>
    | <(?P<close>/?)(?P<name>[a-zA-Z][^\s/><]{0,100})(?P<attributes>(?:[^<>"']|"[^"]*+"|'[^']*+')*+)>
    """,
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]{1,200})(?:\s{0,50}=\s{0,50}(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+)))?""")
_NAMESPACE_PREFIX = re.compile(r"\A(?:m|mml|mathml|html|h):")
_RAW_TEXT_TAGS = ("script", "style", "textarea", "template", "noscript", "iframe", "xmp")
_META_NAMES = {
    "citation_title": "title",
    "dc.title": "title",
    "citation_author": "author",
    "author": "author",
    "dc.creator": "author",
    "citation_date": "date",
    "citation_publication_date": "date",
    "dc.date": "date",
    "date": "date",
    "citation_doi": "doi",
    "dc.identifier": "doi",
    "citation_arxiv_id": "arxiv",
}
# One end tag closes at most so many elements.
_MAX_UNCLOSED = 200
_FIRST_TAG = re.compile(r"<[a-zA-Z]")
_XML_NAME = re.compile(r"[a-zA-Z_][\w.-]*\Z", re.ASCII)
_ANNOTATIONS = ("annotation", "annotation-xml")
_TEX_ENCODINGS = ("application/x-tex", "tex", "latex", "application/x-latex", "text/x-tex")
_MATHML_END = r"\end{eqkinmathml}"


def read_html(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in an HTML page; raise `BadInput` if it declares XML entities."""
    text = _decode_page(raw)
    first = _FIRST_TAG.search(text)
    prolog = text[: first.start()] if first else text
    # Only hostile pages declare entities.
    if re.search(r"<!ENTITY|<!DOCTYPE[^>\[]{0,1000}\[", prolog, re.IGNORECASE):
        raise BadInput(f"{origin}: declares XML entities; such files are refused")
    page = _PageConverter(Paper(key, "", origin, kind="html"), has_mathml="<math" in text or ":math" in text)
    for token in _tokenize_html(text):
        if isinstance(token, str):
            page.handle_text(token)
        elif token.closes:
            page.handle_end_tag(token.name)
        else:
            page.handle_start_tag(token)
    return page.finish()


def _decode_page(raw: bytes) -> str:
    declared = _CHARSET.search(raw[:4096])
    if declared:
        # The declared encoding may be unknown, or not that of this page.
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(declared.group(1).decode("ascii")).name
            if codec in _ALLOWED_CODECS:
                return clean_text(raw.decode(codec))
    return decode_text(raw)


class _PageConverter:
    """Fills a paper from the tags and text of one page, given in order."""

    def __init__(self, paper: Paper, *, has_mathml: bool) -> None:
        self._paper = paper
        # Without MathML a dollar sign may be math for MathJax.
        self._escapes_dollars = has_mathml
        self._out: list[str] = []
        # The open elements, and what is done when each is closed.
        self._open: list[tuple[str, Callable[[], None] | None]] = []
        self._is_dropped = self._is_captured = self._is_reference = self._is_equation = False
        self._n_groups = self._n_displays = 0
        self._equation: list[MathElement] = []
        self._equation_text: list[str] = []
        self._math: MathElement | None = None
        self._script = ""
        self._heading_title = self._arxiv_id = ""
        self._persons: list[str] = []

    def handle_start_tag(self, tag: HtmlTag) -> None:
        """Handle a start tag."""
        # Within a formula, all tags belong to it.
        if self._math is not None and tag.name != "math":
            self._math.add_tag(tag)
            return
        # Metadata counts wherever it stands, also in what is dropped.
        if tag.name in ("meta", "link", "base", "html", "a"):
            self._read_metadata(tag)
        if tag.name in _BLOCK_TAGS:
            self._out.append("\n")
        if tag.name == "math":
            if not self._is_dropped and self._math is None:
                self._math = MathElement(tag)
                if tag.empty:
                    self._end_math()
        elif tag.name not in _VOID_TAGS and not (tag.empty and tag.name in _BLOCK_TAGS | {"a", "span", "script"}):
            self._open.append((tag.name, None if self._is_dropped else self._enter_element(tag)))

    def _enter_element(self, tag: HtmlTag) -> Callable[[], None] | None:
        """Note what an element means, and return what is to be done at its end."""
        classes = tag.classes
        if tag.name == "script" and tag.attributes.get("type", "").startswith(("math/tex", "math/mml")):
            self._script = tag.attributes["type"]
        if tag.name in _DROPPED_TAGS or classes & _DROPPED_CLASSES:
            self._is_dropped = True
            return self._end_dropped
        if tag.name in _HEADINGS or tag.name == "title":
            return self._capture(tag.name if "ltx_title_document" not in classes else "document")
        if "ltx_bibliography" in classes and not self._is_reference:
            self._is_reference = True
            return partial(self._end_references, len(self._out))
        if self._is_reference:
            self._handle_reference(tag)
        elif "ltx_personname" in classes:
            return self._capture("person")
        elif "ltx_equationgroup" in classes:
            self._n_groups += 1
            return self._end_group
        elif "ltx_equation" in classes or (self._n_groups and tag.name == "tbody" and "id" in tag.attributes):
            if not self._is_equation:
                self._is_equation = True
                return self._end_equation
        elif "katex-display" in classes or tag.attributes.get("display") == "true":
            self._n_displays += 1
            return self._end_display
        return None

    def _handle_reference(self, tag: HtmlTag) -> None:
        """Mark the start of an item of the bibliography, and keep addresses of arXiv papers in it."""
        if "ltx_bibitem" in tag.classes:
            self._out.append("\n\\bibitem{} ")
        elif tag.name == "a" and (found := parse_arxiv_id(tag.attributes.get("href", ""))):
            self._out.append(f" arXiv:{found.base} ")

    def handle_end_tag(self, name: str) -> None:
        """Handle an end tag; ignore one that closes no element nearby."""
        if self._math is not None:
            if name == "math":
                self._end_math()
            else:
                self._math.close(name)
        elif any(name == opened for opened, _ in self._open[-_MAX_UNCLOSED:]):
            while self._close_last() != name:
                pass

    def _close_last(self) -> str:
        """Close the innermost element and return its name."""
        name, end = self._open.pop()
        if end is not None:
            end()
        if name in _BLOCK_TAGS:
            self._out.append("\n")
        return name

    def handle_text(self, text: str) -> None:
        """Handle text."""
        if self._math is not None:
            self._math.add_text(text)
        elif self._script:
            latex = text if self._script.startswith("math/tex") else ""
            is_display = "mode=display" in self._script
            self._out.append(format_display_math(latex) if is_display else f"${latex.strip()}$" if latex else "")
        elif self._is_dropped:
            return
        elif self._is_equation:
            self._equation_text.append(text)
        else:
            if self._escapes_dollars:
                text = text.replace("\\", r"\textbackslash{}").replace("$", r"\$")
            self._out.append(escape_percent(text))

    def _end_dropped(self) -> None:
        self._is_dropped = False
        self._script = ""

    def _end_group(self) -> None:
        self._n_groups -= 1

    def _end_display(self) -> None:
        self._n_displays -= 1

    def _end_references(self, start: int) -> None:
        self._is_reference = False
        self._paper.bibliography.append(clean_text("".join(self._out[start:])))
        del self._out[start:]

    def _capture(self, what: str) -> Callable[[], None] | None:
        """Begin a heading, title or name; within another one it is only text."""
        if self._is_captured:
            return None
        self._is_captured = True
        return partial(self._end_capture, what, len(self._out))

    def _end_capture(self, what: str, start: int) -> None:
        """Make a heading, title or name of the text since its start tag."""
        self._is_captured = False
        words = " ".join("".join(self._out[start:]).split())
        del self._out[start:]
        if what == "title":
            self._paper.title = self._paper.title or _SITE_NAME.sub("", words)
        elif what == "document":
            self._heading_title = words
        elif what == "person":
            self._persons.append(words)
        elif words:
            if what == "h1":
                self._heading_title = self._heading_title or words
            self._out.append(format_heading(_HEADINGS[what] - 1 or 1, words))

    def _end_math(self) -> None:
        math = self._math
        self._math = None
        if math is None:
            return
        if math.too_long:
            self._paper.notes.append(f"an equation of more than {LIMITS.mathml_chars:,} characters was left out")
        elif self._is_equation:
            self._equation.append(math)
        elif not self._is_captured and (math.is_block or self._n_displays):
            self._append_equation([math])
        elif math.latex:
            self._out.append(f"${' '.join(math.latex.split())}$")

    def _end_equation(self) -> None:
        """Append an equation: its MathML, or the LaTeX that pages without MathML have instead."""
        self._is_equation = False
        latex = "".join(self._equation_text).strip()
        if self._equation:
            self._append_equation(self._equation)
        elif latex.startswith(("$$", r"\[", r"\begin{")):
            self._out.append(f"\n{latex}\n")
        self._equation = []
        self._equation_text = []

    def _append_equation(self, elements: list[MathElement]) -> None:
        if len(elements) == 1:
            mathml = elements[0].to_mathml()
        else:
            latex = " ".join(element.latex for element in elements)
            attributes = {"display": "block"} | ({"alttext": latex} if latex.strip() else {})
            row = "".join(element.to_presentation() for element in elements)
            mathml = f"<math{_format_attributes(attributes)}><mrow>{row}</mrow></math>"
        self._out.append(f"\n\\begin{{eqkinmathml}}{mathml}\\end{{eqkinmathml}}\n")

    def _read_metadata(self, tag: HtmlTag) -> None:
        """Read language, title, authors and arXiv identifier from a tag."""
        paper = self._paper
        attributes = tag.attributes
        kind = _META_NAMES.get(attributes.get("name", "").lower(), "")
        content = attributes.get("content", "").strip()
        address = attributes.get("href", "")
        if kind == "title":
            paper.title = content or paper.title
        elif kind == "author" and content:
            paper.authors.append(order_name(content))
        elif kind == "date":
            paper.year = paper.year or find_year(content)
        elif kind == "doi":
            paper.doi = paper.doi or find_doi(content)
        elif kind == "arxiv":
            self._arxiv_id = content
        if tag.name == "html":
            paper.lang = (attributes.get("lang") or attributes.get("xml:lang") or "")[:20]
        elif tag.name == "link" and attributes.get("rel") == "canonical":
            paper.url = address if address.startswith(("http://", "https://")) else ""
        is_own = tag.name == "base" or "canonical" in attributes.get("rel", "") or "ar5iv" in tag.classes
        if is_own and not self._arxiv_id and (found := parse_arxiv_id(address)):
            self._arxiv_id = found.base

    def finish(self) -> Paper:
        """Return the paper after the last token."""
        if self._math is not None:
            self._end_math()
        while self._open:
            self._close_last()
        paper = self._paper
        arxiv_id = parse_arxiv_id(self._arxiv_id) if self._arxiv_id else None
        if arxiv_id:
            paper.group = arxiv_id.key
            paper.year = paper.year or arxiv_id.year
        paper.text = clean_text(re.sub(r"\n[ \t]*\n\s*", "\n\n", "".join(self._out)))
        paper.title = clean_text(self._heading_title or paper.title)
        paper.authors = paper.authors or self._persons
        return paper


@dataclass(frozen=True)
class HtmlTag:
    """A start tag, or an end tag if `closes`; `empty` for `<x/>`."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    closes: bool = False
    empty: bool = False

    @property
    def classes(self) -> frozenset[str]:
        """The names in the class attribute."""
        return frozenset(self.attributes.get("class", "").split())


def _tokenize_html(text: str) -> Iterator[HtmlTag | str]:
    """Yield tags and the text between them, with character references resolved, without comments and declarations.

    The content of a script or style is the text after its start tag.
    """
    position = 0
    while match := _TOKEN.search(text, position):
        if match.start() > position:
            yield resolve_references(text[position : match.start()])
        position = match.end()
        if match["comment"]:
            end = text.find("-->", position)
            position = end + 3 if end >= 0 else len(text)
        elif match["cdata"]:
            end = text.find("]]>", position)
            yield text[position : end if end >= 0 else len(text)]
            position = end + 3 if end >= 0 else len(text)
        elif match["name"]:
            tag = _parse_tag(match)
            yield tag
            if tag.name in _RAW_TEXT_TAGS and not tag.closes and not tag.empty:
                closing = re.compile(rf"</{tag.name}\b", re.IGNORECASE).search(text, position)
                end = closing.start() if closing else len(text)
                yield text[position:end]
                position = end
    if position < len(text):
        yield resolve_references(text[position:])


def resolve_references(text: str) -> str:
    """Replace character references (`&lt;`, `&#60;`) by their characters."""
    try:
        return html.unescape(text)
    except ValueError:
        # Python refuses numbers of thousands of digits.
        return text


def _parse_tag(match: re.Match[str]) -> HtmlTag:
    name = _NAMESPACE_PREFIX.sub("", match["name"].lower())
    if match["close"]:
        return HtmlTag(name, closes=True)
    attributes: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(match["attributes"]):
        value = found.group(2) or found.group(3) or found.group(4) or ""
        attributes.setdefault(found.group(1).lower(), resolve_references(value))
    return HtmlTag(name, attributes, empty=match["attributes"].rstrip().endswith("/"))


class MathElement:
    """Collects the tags and text of one `<math>`; tags left open are closed, attributes are written as XML.

    `latex` is its LaTeX, from an annotation or `alttext`, if the page has it.
    """

    def __init__(self, tag: HtmlTag) -> None:
        self.attributes = tag.attributes
        self._size = 0
        self._whole: list[str] = []
        self._shown: list[str] = []  # without semantics and annotations, to be joined with others
        self._open: list[str] = []
        self._annotation = 0  # depth at which an annotation was opened, 0 outside of one
        self._is_tex = False
        self._tex: list[str] = []

    @property
    def too_long(self) -> bool:
        """True for one above the limit; no more than that is kept."""
        return self._size > LIMITS.mathml_chars

    @property
    def latex(self) -> str:
        """The LaTeX of this element, empty if the page does not have it."""
        return "".join(self._tex).strip() or self.attributes.get("alttext", "").strip()

    @property
    def is_block(self) -> bool:
        """True for a display equation."""
        return self.attributes.get("display") == "block" or self.attributes.get("mode") == "display"

    def add_tag(self, tag: HtmlTag) -> None:
        """Add a start tag within the element."""
        if not _XML_NAME.match(tag.name):
            return
        written = tag.name + _format_attributes(tag.attributes)
        if tag.empty:
            self._append(f"<{written}/>", tag.name)
            return
        if tag.name in _ANNOTATIONS and not self._annotation:
            self._annotation = len(self._open) + 1
            self._is_tex = tag.attributes.get("encoding", "").lower() in _TEX_ENCODINGS
        self._append(f"<{written}>", tag.name)
        self._open.append(tag.name)

    def close(self, name: str = "") -> None:
        """Close the innermost element of this name, if there is one nearby, and all within it; without a name all."""
        if name and name not in self._open[-_MAX_UNCLOSED:]:
            return
        while self._open:
            last = self._open[-1]
            self._append(f"</{last}>", last)
            self._open.pop()
            if self._annotation > len(self._open):
                self._annotation = 0
            if last == name:
                return

    def add_text(self, text: str) -> None:
        """Add text within the element."""
        text = NOT_XML.sub("", text)
        if self._annotation and self._is_tex:
            self._tex.append(text)
        self._append(escape(text).replace(_MATHML_END, _MATHML_END.replace("\\", "&#92;")))

    def _append(self, piece: str, name: str = "") -> None:
        self._size += len(piece)
        if self.too_long:
            return
        self._whole.append(piece)
        if not self._annotation and name != "semantics":
            self._shown.append(piece)

    def to_mathml(self) -> str:
        """Return the element as MathML."""
        self.close()
        return f"<math{_format_attributes(self.attributes)}>{''.join(self._whole)}</math>"

    def to_presentation(self) -> str:
        """Return its content without annotations and without the `<math>` around it."""
        self.close()
        return "".join(self._shown)


def _format_attributes(attributes: dict[str, str]) -> str:
    """Return attributes as XML, without those with a prefix: its namespace would not be declared."""
    written = []
    for name, value in attributes.items():
        if _XML_NAME.match(name):
            value = quoteattr(NOT_XML.sub("", value)).replace(_MATHML_END, _MATHML_END.replace("\\", "&#92;"))
            written.append(f" {name}={value}")
    return "".join(written)
