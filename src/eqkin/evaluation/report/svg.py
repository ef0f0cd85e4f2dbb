"""Plots inside a page: SVG without styles of its own, with the page's colours and with ids that no other plot has."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from eqkin.evaluation.report.plots import GRID, INK, SERIES, SOFT, to_svg
from eqkin.evaluation.results import Plot

_COLOURS = {INK: "currentColor", SOFT: "var(--soft)", GRID: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)
}
_FONT = re.compile(r"(?:(\d+|bold) )?([\d.]+)px")
_DROPPED = frozenset({"metadata", "style", "title"})
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECLARED = ("xmlns", "version")


def inline(plot: Plot, name: str, title: str) -> str:
    """The plot as an `<svg>` element for a page, all its ids beginning with `name`.

    A strict page allows no `style` attributes, so these become attributes of their own. Colours become the page's
    custom properties: `--soft`, `--line`, `--series-1` ... and the text's colour, so that they follow light and dark.
    """
    root = ElementTree.fromstring(to_svg(plot, text=True))
    for element in root.iter():
        for child in [child for child in element if _local(child.tag) in _DROPPED]:
            element.remove(child)
        element.tag = _local(element.tag)
        element.text = element.text if element.tag in ("text", "tspan") else None
        element.tail = None
        attributes = {_local(key): value for key, value in element.attrib.items()}
        attributes |= _presentation(attributes.pop("style", ""))
        element.attrib.clear()
        element.attrib |= {key: _value(key, value, name) for key, value in attributes.items() if key not in _DECLARED}
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": title, "class": "plot"}
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _presentation(style: str) -> dict[str, str]:
    """What a style says, as attributes; the font's family is left to the page."""
    found: dict[str, str] = {}
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":
            font = _FONT.search(value)
            found |= {"font-size": f"{font[2]}px", "font-weight": font[1] or "400"} if font else {}
        elif key and key != "font-family":
            found[key] = value
    return found


def _value(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    return _COLOURS.get(value.lower(), _REFERENCE.sub(rf"url(#{name}-\1)", value))
