"""HTML without injection: every string is escaped unless it is `SafeHtml`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID_TAGS = frozenset("input link meta br hr img".split())


class SafeHtml(str):
    """Markup made by this program, which is not escaped again."""

    __slots__ = ()


Content: TypeAlias = "str | int | None | Iterable[Content]"  # a `SafeHtml` is a `str` that is not escaped
Attribute: TypeAlias = "str | int | bool | None"


def tag(name: str, /, *content: Content, **attributes: Attribute) -> SafeHtml:
    """Return an element. A trailing underscore is dropped (`class_`), others are hyphens; None and False omit one."""
    written = "".join(_format_attribute(key, value) for key, value in attributes.items())
    if name in _VOID_TAGS:
        return SafeHtml(f"<{name}{written}>")
    return SafeHtml(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Iterable[Content]) -> SafeHtml:
    """Join pieces of content."""
    return SafeHtml("".join(_escape_content(piece) for piece in content))


def _escape_content(piece: Content) -> str:
    if piece is None:
        return ""
    if isinstance(piece, SafeHtml):
        return str(piece)
    if isinstance(piece, str | int):
        return escape(str(piece))
    return join(piece)


def _format_attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
