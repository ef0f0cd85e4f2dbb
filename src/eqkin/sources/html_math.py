"""One `<math>` element of a page on its way to well-formed MathML."""

from __future__ import annotations

import re
from collections import Counter
from xml.sax.saxutils import escape, quoteattr

from eqkin.sources.html_tokens import Tag

_XML_NAME = re.compile(r"[a-zA-Z_][\w.-]*\Z", re.ASCII)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ANNOTATIONS = ("annotation", "annotation-xml")
_TEX = ("application/x-tex", "tex", "latex", "application/x-latex", "text/x-tex")
END_MARK = r"\end{eqkinmathml}"


class MathElement:
    """Collects the tags and text of one `<math>`; tags left open are closed, attributes are written as XML.

    `latex` is its LaTeX, from an annotation or `alttext`, if the page has it.
    """

    def __init__(self, tag: Tag, limit: int) -> None:
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

    def tag(self, tag: Tag) -> None:
        """Take a tag within the element."""
        if not _XML_NAME.match(tag.name):
            return
        if tag.closes:
            self._close(tag.name)
            return
        written = tag.name + _attributes(tag.attributes)
        if tag.empty:
            self._put(f"<{written}/>", tag.name)
            return
        if tag.name in _ANNOTATIONS and not self._annotation:
            self._annotation = len(self._open) + 1
            self._is_tex = tag.attributes.get("encoding", "").lower() in _TEX
        self._put(f"<{written}>", tag.name)
        self._open.append(tag.name)
        self._counts[tag.name] += 1

    def _close(self, name: str) -> None:
        if not self._counts[name]:
            return
        while self._open:
            last = self._open[-1]
            self._put(f"</{last}>", last)
            self._open.pop()
            self._counts[last] -= 1
            if self._annotation > len(self._open):
                self._annotation = 0
            if last == name:
                return

    def text(self, text: str) -> None:
        """Take text within the element."""
        text = _NOT_XML.sub("", text)
        if self._annotation and self._is_tex:
            self._tex.append(text)
        self._put(escape(text).replace(END_MARK, END_MARK.replace("\\", "&#92;")))

    def _put(self, piece: str, name: str = "") -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self.too_long = True
            return
        self._whole.append(piece)
        if not self._annotation and name != "semantics":
            self._shown.append(piece)

    def finished(self) -> str:
        """The element as MathML."""
        self._close_all()
        return f"<math{_attributes(self.attributes)}>{''.join(self._whole)}</math>"

    def presentation(self) -> str:
        """What it shows, without the `<math>` around it and without annotations."""
        self._close_all()
        return "".join(self._shown)

    def _close_all(self) -> None:
        if self._open:
            self._close(self._open[0])
        while self._open:
            self._close(self._open[-1])


def joined(elements: list[MathElement]) -> str:
    """Several elements that make up one equation, as one."""
    if len(elements) == 1:
        return elements[0].finished()
    latex = " ".join(element.latex for element in elements)
    attributes = {"display": "block"} | ({"alttext": latex} if latex.strip() else {})
    return f"<math{_attributes(attributes)}><mrow>{''.join(e.presentation() for e in elements)}</mrow></math>"


def _attributes(attributes: dict[str, str]) -> str:
    """Attributes as XML; those with a prefix are dropped, their namespaces are not declared here."""
    written = []
    for name, value in attributes.items():
        if _XML_NAME.match(name):
            value = quoteattr(_NOT_XML.sub("", value)).replace(END_MARK, END_MARK.replace("\\", "&#92;"))
            written.append(f" {name}={value}")
    return "".join(written)
