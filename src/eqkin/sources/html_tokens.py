"""HTML cut into tags and text in one pass: linear in its length, no recursion, no entities of the page's own."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from eqkin.errors import BadInput

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
_FIRST_TAG = re.compile(r"<[a-zA-Z]")


@dataclass(frozen=True)
class HtmlTag:
    """A start tag, or an end tag if `closes`; `empty` for `<x/>`."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    closes: bool = False
    empty: bool = False

    @property
    def classes(self) -> frozenset[str]:
        """Names in the class attribute."""
        return frozenset(self.attributes.get("class", "").split())


def refuse_entities(text: str, origin: str) -> None:
    """Raise `BadInput` if the page declares entities of its own: none that mean well do."""
    first = _FIRST_TAG.search(text)
    prolog = text[: first.start()] if first else text
    if re.search(r"<!ENTITY|<!DOCTYPE[^>\[]{0,1000}\[", prolog, re.IGNORECASE):
        raise BadInput(f"{origin}: declares XML entities; such files are refused")


def tokenize_html(text: str) -> Iterator[HtmlTag | str]:
    """Tags and the text between them, references resolved; comments and declarations are left out.

    The content of a script or style comes as the text behind its start tag.
    """
    position = 0
    while match := _TOKEN.search(text, position):
        if match.start() > position:
            yield html.unescape(text[position : match.start()])
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
        yield html.unescape(text[position:])


def _parse_tag(match: re.Match[str]) -> HtmlTag:
    name = _NAMESPACE_PREFIX.sub("", match["name"].lower())
    if match["close"]:
        return HtmlTag(name, closes=True)
    attributes: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(match["attributes"]):
        value = found.group(2) or found.group(3) or found.group(4) or ""
        attributes.setdefault(found.group(1).lower(), html.unescape(value))
    return HtmlTag(name, attributes, empty=match["attributes"].rstrip().endswith("/"))
