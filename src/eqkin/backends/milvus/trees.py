"""Trees from MathML that eqkin wrote itself: exactly as they were, and several times as fast as reading any MathML.

`eqkin.trees.mathml.to_mathml` writes every tag, attribute and text of a tree, and nothing else; so what a regular
expression takes apart is all there is. Elements come depth first; sorted by their depth they are breadth first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

import numpy as np

from eqkin.errors import CorruptData
from eqkin.trees import Forest, ForestBuilder

_ELEMENT = re.compile(r"<([^<>]*)>([^<]*)")
_ATTRIBUTE = re.compile(r'([a-z]+)="([^"]*)"')


class _Names:
    """Numbers of distinct strings, in the order in which they are first seen."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.attributes: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.opened: dict[str, tuple[int, int]] = {}  # tag and attributes of what stands between < and >
        self.written: dict[str, int] = {}  # text of what stands between > and <

    def element(self, inside: str) -> tuple[int, int]:
        known = self.opened.get(inside)
        if known is None:
            tag, _, rest = inside.partition(" ")
            joined = "\n".join(f"{name}={unescape(value)}" for name, value in sorted(_ATTRIBUTE.findall(rest)))
            known = (
                self.tags.setdefault(tag, len(self.tags)),
                self.attributes.setdefault(joined, len(self.attributes)),
            )
            self.opened[inside] = known
        return known

    def text(self, written: str) -> int:
        known = self.written.get(written)
        if known is None:
            known = self.written[written] = self.texts.setdefault(unescape(written), len(self.texts))
        return known


def forest_from(texts: Sequence[str]) -> Forest:
    """A forest of the trees that were written with `to_mathml`.

    Raises:
        CorruptData: a text is no such MathML.
    """
    names = _Names()
    columns: list[list[int]] = [[], [], [], []]
    depths: list[int] = []
    sizes = [_take_apart(text, names, columns, depths) for text in texts]
    arrays = [np.array(column, np.int64) for column in columns]
    order = np.lexsort((np.array(depths, np.int64), np.repeat(np.arange(len(sizes)), sizes)))
    builder = ForestBuilder()
    builder.add_columns(
        list(names.tags), list(names.attributes), list(names.texts), [column[order] for column in arrays], sizes
    )
    forest = builder.build()
    forest.validate()
    return forest


def _take_apart(text: str, names: _Names, columns: list[list[int]], depths: list[int]) -> int:
    """Add the elements of one tree, depth first: tag, attributes, text, number of children, depth. How many there are.

    The first element is `<math>`, which is no part of the tree.
    """
    tags, attributes, words, children = columns
    first = len(tags)
    elements = _ELEMENT.findall(text)
    if len(elements) < 4 or not elements[0][0].startswith("math") or elements[-1][0] != "/math":
        raise CorruptData(f"no MathML of eqkin's: {text[:80]!r}")
    above: list[int] = []
    for inside, written in elements[1:-1]:
        if inside[:1] == "/":
            if not above:
                raise CorruptData(f"MathML that closes what it never opened: {text[:80]!r}")
            above.pop()
            continue
        tag, attribute = names.element(inside)
        if above:
            children[above[-1]] += 1
        depths.append(len(above))
        above.append(len(tags))
        tags.append(tag)
        attributes.append(attribute)
        words.append(names.text(written))
        children.append(0)
    return len(tags) - first
