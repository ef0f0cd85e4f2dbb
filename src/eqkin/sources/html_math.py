"""One `<math>` element of a page on its way to well-formed MathML."""

from __future__ import annotations

import re
from collections import Counter
from xml.sax.saxutils import escape, quoteattr

from eqkin.sources.html_tokens import HtmlTag

_XML_NAME = re.compile(r"[a-zA-Z_][\w.-]*\Z", re.ASCII)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ANNOTATIONS = ("annotation", "annotation-xml")
_TEX_ENCODINGS = ("application/x-tex", "tex", "latex", "application/x-latex", "text/x-tex")
MATHML_END = r"\end{eqkinmathml}"


class MathElement:
    """Collects the tags and text of one `<math>`; tags left open are closed, attributes are written as XML.

    `latex` is its LaTeX, from an annotation or `alttext`, if the page has it.
    """

    def __init__(self, tag: HtmlTag, limit: int) -> None:
        self.attributes = tag.attributes
        self.too_long = False
        self._limit = limit
        self._size = 0
        self._whole: list[str] = []
        self._shown: list[str] = []  # without semantics and annotations, to be joined with others
        self._open: list[str] = []
        self._counts: Counter[str] = Counter()  # how often each name is open
        self._annotation = 0  # depth at which an annotation was opened, 0 outside of one
        self._is_tex = False
        self._tex: list[str] = []

    @property
    def latex(self) -> str:
        """LaTeX of this element, empty if the page does not tell."""
        return "".join(self._tex).strip() or self.attributes.get("alttext", "").strip()

    @property
    def is_block(self) -> bool:
        """Whether it says that it is a display equation."""
        return self.attributes.get("display") == "block" or self.attributes.get("mode") == "display"

    def add_tag(self, tag: HtmlTag) -> None:
        """Take a tag within the element."""
        if not _XML_NAME.match(tag.name):
            return
        if tag.closes:
            self._close_tag(tag.name)
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
        self._counts[tag.name] += 1

    def _close_tag(self, name: str) -> None:
        if not self._counts[name]:
            return
        while self._open:
            last = self._open[-1]
            self._append(f"</{last}>", last)
            self._open.pop()
            self._counts[last] -= 1
            if self._annotation > len(self._open):
                self._annotation = 0
            if last == name:
                return

    def add_text(self, text: str) -> None:
        """Take text within the element."""
        text = _NOT_XML.sub("", text)
        if self._annotation and self._is_tex:
            self._tex.append(text)
        self._append(escape(text).replace(MATHML_END, MATHML_END.replace("\\", "&#92;")))

    def _append(self, piece: str, name: str = "") -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self.too_long = True
            return
        self._whole.append(piece)
        if not self._annotation and name != "semantics":
            self._shown.append(piece)

    def to_mathml(self) -> str:
        """The element as MathML."""
        self._close_all()
        return f"<math{_format_attributes(self.attributes)}>{''.join(self._whole)}</math>"

    def to_presentation(self) -> str:
        """What it shows, without the `<math>` around it and without annotations."""
        self._close_all()
        return "".join(self._shown)

    def _close_all(self) -> None:
        if self._open:
            self._close_tag(self._open[0])
        while self._open:
            self._close_tag(self._open[-1])


def join_elements(elements: list[MathElement]) -> str:
    """Several elements that make up one equation, as one."""
    if len(elements) == 1:
        return elements[0].to_mathml()
    latex = " ".join(element.latex for element in elements)
    attributes = {"display": "block"} | ({"alttext": latex} if latex.strip() else {})
    return f"<math{_format_attributes(attributes)}><mrow>{''.join(e.to_presentation() for e in elements)}</mrow></math>"


def _format_attributes(attributes: dict[str, str]) -> str:
    """Attributes as XML; those with a prefix are dropped, their namespaces are not declared here."""
    written = []
    for name, value in attributes.items():
        if _XML_NAME.match(name):
            value = quoteattr(_NOT_XML.sub("", value)).replace(MATHML_END, MATHML_END.replace("\\", "&#92;"))
            written.append(f" {name}={value}")
    return "".join(written)
