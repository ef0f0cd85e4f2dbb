r"""HTML pages with MathML (arXiv's HTML, ar5iv, rendered KaTeX and MathJax) to LaTeX-like text.

Display equations stay MathML in `eqkinmathml` environments; inline math becomes `$...$` where the page has its LaTeX.
lxml (libxml2) reports the tags and the text of a page in order, closes every tag, and builds no tree: the time to read
a page grows with its length.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from eqkin.errors import BadInput
from eqkin.formulas.mathml import NOT_XML
from eqkin.latex.titles import find_doi, find_year, order_name, parse_arxiv_id
from eqkin.limits import LIMITS
from eqkin.sources.paper import Paper, clean_text, decode_text, escape_percent, format_display_math, format_heading

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_DROPPED_TAGS = frozenset(
    "script style pre code svg nav template noscript textarea select iframe footer button mjx-math".split()
)
_DROPPED_CLASSES = frozenset("katex-html mjx-chtml MathJax_Preview ltx_page_footer ltx_tag".split())
_BLOCK_TAGS = frozenset("p div li tr table section article br blockquote figure dd dt".split())
_METADATA_TAGS = frozenset("meta link base html a".split())
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([A-Za-z0-9_-]{2,20})""", re.IGNORECASE)
# Not UTF-16: a page whose declaration can be read as ASCII is not in UTF-16, and one in UTF-16 has a mark.
_ALLOWED_CODECS = frozenset(
    "ascii utf-8 gb2312 gbk gb18030 shift_jis cp932 euc_jp euc_kr cp949 big5 cp950 koi8-r koi8-u".split()
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp125{page}" for page in range(9)]
)
_SITE_NAME = re.compile(r"\s*(?:[|–—-]\s*)?(?:ar5iv|arXiv).{0,20}\Z|\A\[[^\]]{5,30}\]\s*")
_NAMESPACE_PREFIX = re.compile(r"\A(?:m|mml|mathml|html|h):")
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
# An end tag is compared with all open elements, so their number is bounded: browsers stop here, too.
_MAX_DEPTH = 512
_FIRST_TAG = re.compile(r"<[a-zA-Z]")
_XML_NAME = re.compile(r"[a-zA-Z_][\w.-]*\Z", re.ASCII)
_ANNOTATIONS = ("annotation", "annotation-xml")
_TEX_ENCODINGS = ("application/x-tex", "tex", "latex", "application/x-latex", "text/x-tex")
_MATHML_END = r"\end{eqkinmathml}"
# Kinds of elements whose text becomes a heading, a title or a name.
_CAPTURED = (*_HEADINGS, "title", "document", "person")
# Kinds of elements whose text is replaced at their end.
_REWRITTEN = (*_CAPTURED, "references", "equation", "display script", "inline script")


def read_html(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in an HTML page; raise `BadInput` if it declares XML entities or is nested too deeply."""
    text = _decode_page(raw)
    first = _FIRST_TAG.search(text)
    prolog = text[: first.start()] if first else text
    # Only hostile pages declare entities.
    if re.search(r"<!ENTITY|<!DOCTYPE[^>\[]{0,1000}\[", prolog, re.IGNORECASE):
        raise BadInput(f"{origin}: declares XML entities; such files are refused")
    page = _PageConverter(Paper(key, "", origin, kind="html"), has_mathml="<math" in text or ":math" in text)
    parser = etree.HTMLParser(target=page, encoding="utf-8", huge_tree=True)
    try:
        etree.fromstring(text.encode(), parser)
    except etree.LxmlError as error:
        raise BadInput(f"{origin}: is not a page that can be read ({error})") from error
    return page.paper


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
    """Fills a paper from the tags and text of one page: a target of lxml, which closes every tag that it opens."""

    def __init__(self, paper: Paper, *, has_mathml: bool) -> None:
        self.paper = paper
        # Without MathML a dollar sign may be math for MathJax.
        self._escapes_dollars = has_mathml
        self._out: list[str] = []
        # The kind of each open element, the name of its tag, and where its text starts in `_out`.
        self._open: list[tuple[str, str, int]] = []
        self._counts: Counter[str] = Counter()
        self._formula: MathElement | None = None
        # The formulas of the equation that is open: an aligned one has several.
        self._equation: list[MathElement] = []
        self._heading_title = ""
        self._arxiv_id = ""
        self._persons: list[str] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle a start tag."""
        if len(self._open) >= _MAX_DEPTH:
            raise BadInput(f"{self.paper.origin}: more than {_MAX_DEPTH} elements are nested in each other")
        name = _NAMESPACE_PREFIX.sub("", tag)
        kind = ""
        if self._formula is not None:
            # Within a formula, all tags belong to it.
            self._formula.start(name, attributes)
        else:
            # Metadata counts wherever it stands, also in what is dropped.
            if name in _METADATA_TAGS:
                self._read_metadata(name, attributes)
            if name in _BLOCK_TAGS:
                self._out.append("\n")
            if not self._counts["dropped"]:
                kind = self._classify(name, attributes)
        self._counts[kind] += 1
        self._open.append((kind, name, len(self._out)))

    def _classify(self, name: str, attributes: Mapping[str, str]) -> str:
        """Return what the text of an element becomes; "" for one that is only text."""
        classes = set(attributes.get("class", "").split())
        if name == "math":
            self._formula = MathElement(attributes)
            return "math"
        if name == "script" and attributes.get("type", "").startswith("math/tex"):
            return "display script" if "mode=display" in attributes["type"] else "inline script"
        if name in _DROPPED_TAGS or classes & _DROPPED_CLASSES:
            return "dropped"
        if name in _HEADINGS or name == "title":
            # Within another heading it is only text.
            return "" if self._is_captured() else "document" if "ltx_title_document" in classes else name
        if self._counts["references"]:
            # Mark the start of an item of the bibliography, and keep addresses of arXiv papers in it.
            if "ltx_bibitem" in classes:
                self._out.append("\n\\bibitem{} ")
            elif name == "a" and (found := parse_arxiv_id(attributes.get("href", ""))):
                self._out.append(f" arXiv:{found.base} ")
            return ""
        if "ltx_bibliography" in classes:
            return "references"
        if "ltx_personname" in classes:
            return "" if self._is_captured() else "person"
        if "ltx_equationgroup" in classes:
            return "group"
        if "ltx_equation" in classes or (self._counts["group"] and name == "tbody" and "id" in attributes):
            return "" if self._counts["equation"] else "equation"
        return "display" if "katex-display" in classes or attributes.get("display") == "true" else ""

    def _is_captured(self) -> bool:
        return any(self._counts[kind] for kind in _CAPTURED)

    def data(self, text: str) -> None:
        """Handle text."""
        if self._formula is not None:
            self._formula.data(text)
            return
        if self._counts["dropped"]:
            return
        # LaTeX that stands for a formula stays as it is.
        if not any(self._counts[kind] for kind in ("equation", "display script", "inline script")):
            if self._escapes_dollars:
                text = text.replace("\\", r"\textbackslash{}").replace("$", r"\$")
            text = escape_percent(text)
        self._out.append(text)

    def end(self, tag: str) -> None:
        """Handle the end of the innermost element."""
        kind, name, start = self._open.pop()
        self._counts[kind] -= 1
        if kind == "math":
            self._end_math()
        elif self._formula is not None:
            self._formula.end(name)
        elif kind in _REWRITTEN:
            text = "".join(self._out[start:])
            del self._out[start:]
            self._end_text(kind, text)
        if self._formula is None and name in _BLOCK_TAGS and name != "br":
            self._out.append("\n")

    def _end_text(self, kind: str, text: str) -> None:
        """Do with the text of an element what its kind asks for."""
        words = " ".join(text.split())
        if kind == "display script":
            self._out.append(format_display_math(text))
        elif kind == "inline script":
            self._out.append(f"${text.strip()}$")
        elif kind == "references":
            self.paper.bibliography.append(clean_text(text))
        elif kind == "equation":
            self._end_equation(text.strip())
        elif kind == "title":
            self.paper.title = self.paper.title or _SITE_NAME.sub("", words)
        elif kind == "document":
            self._heading_title = words
        elif kind == "person":
            self._persons.append(words)
        elif words:
            if kind == "h1":
                self._heading_title = self._heading_title or words
            self._out.append(format_heading(_HEADINGS[kind] - 1 or 1, words))

    def _end_math(self) -> None:
        formula = self._formula
        self._formula = None
        if formula is None:
            return
        if formula.is_too_long:
            self.paper.notes.append(f"an equation of more than {LIMITS.mathml_chars:,} characters was left out")
        elif self._counts["equation"]:
            self._equation.append(formula)
        elif not self._is_captured() and (formula.is_block or self._counts["display"]):
            self._append_equation([formula])
        elif formula.latex:
            self._out.append(f"${' '.join(formula.latex.split())}$")

    def _end_equation(self, latex: str) -> None:
        """Append an equation: its MathML, or the LaTeX that pages without MathML have instead."""
        if self._equation:
            self._append_equation(self._equation)
        elif latex.startswith(("$$", r"\[", r"\begin{")):
            self._out.append(f"\n{latex}\n")
        self._equation = []

    def _append_equation(self, formulas: list[MathElement]) -> None:
        math = formulas[0].close() if len(formulas) == 1 else _join_formulas(formulas)
        # A formula cannot end its own environment.
        written = etree.tostring(math, encoding="unicode").replace(_MATHML_END, _MATHML_END.replace("\\", "&#92;"))
        self._out.append(f"\n\\begin{{eqkinmathml}}{written}\\end{{eqkinmathml}}\n")

    def _read_metadata(self, name: str, attributes: Mapping[str, str]) -> None:
        """Read language, title, authors and arXiv identifier from a tag."""
        paper = self.paper
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
        if name == "html":
            paper.lang = (attributes.get("lang") or attributes.get("xml:lang") or "")[:20]
        elif name == "link" and attributes.get("rel") == "canonical":
            paper.url = address if address.startswith(("http://", "https://")) else ""
        is_own = name == "base" or "canonical" in attributes.get("rel", "")
        is_own |= "ar5iv" in attributes.get("class", "").split()
        if is_own and not self._arxiv_id and (found := parse_arxiv_id(address)):
            self._arxiv_id = found.base

    def close(self) -> None:
        """Complete the paper after the last tag."""
        paper = self.paper
        arxiv_id = parse_arxiv_id(self._arxiv_id) if self._arxiv_id else None
        if arxiv_id:
            paper.group = arxiv_id.key
            paper.year = paper.year or arxiv_id.year
        paper.text = clean_text(re.sub(r"\n[ \t]*\n\s*", "\n\n", "".join(self._out)))
        paper.title = clean_text(self._heading_title or paper.title)
        paper.authors = paper.authors or self._persons


class MathElement:
    """One `<math>`: a small tree of what XML allows, without names that have a prefix, which would not be declared."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes
        self._size = 0
        self._builder = etree.TreeBuilder()
        self._builder.start("math", _select_attributes(attributes))
        self._tree: Any = None

    @property
    def is_too_long(self) -> bool:
        """Whether it is above the limit; no more than that is kept."""
        return self._size > LIMITS.mathml_chars

    @property
    def is_block(self) -> bool:
        """Whether it is a display equation."""
        return self.attributes.get("display") == "block" or self.attributes.get("mode") == "display"

    @property
    def latex(self) -> str:
        """Its LaTeX, from an annotation or `alttext`; "" if the page does not have it."""
        notes = [a for a in self.close().iter(*_ANNOTATIONS) if a.get("encoding", "").lower() in _TEX_ENCODINGS]
        written = "".join(text for note in notes for text in note.itertext()).strip()
        return written or self.attributes.get("alttext", "").strip()

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Add a start tag."""
        self._size += len(name) + sum(map(len, attributes.values()))
        if not self.is_too_long and _XML_NAME.match(name):
            self._builder.start(name, _select_attributes(attributes))

    def end(self, name: str) -> None:
        """Close the innermost element."""
        if not self.is_too_long and _XML_NAME.match(name):
            self._builder.end(name)

    def data(self, text: str) -> None:
        """Add text."""
        self._size += len(text)
        if not self.is_too_long:
            self._builder.data(NOT_XML.sub("", text))

    def close(self) -> Any:
        """Return the tree."""
        if self._tree is None:
            self._builder.end("math")
            self._tree = self._builder.close()
        return self._tree


def _select_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: NOT_XML.sub("", value) for name, value in attributes.items() if _XML_NAME.match(name)}


def _join_formulas(formulas: list[MathElement]) -> Any:
    """Return the parts of an aligned equation as one formula, without annotations: each has only those of its part."""
    latex = " ".join(formula.latex for formula in formulas)
    math = etree.Element("math", {"display": "block"} | ({"alttext": NOT_XML.sub("", latex)} if latex.strip() else {}))
    row = etree.SubElement(math, "mrow")
    row.extend([formula.close() for formula in formulas])
    etree.strip_elements(row, *_ANNOTATIONS, with_tail=False)
    etree.strip_tags(row, "math", "semantics")
    return math
