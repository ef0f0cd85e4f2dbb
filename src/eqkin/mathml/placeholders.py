r"""Wildcards of a query, `?x` and `\qvar{x}`, replaced by placeholders that the converter takes for letters.

A placeholder is a character that is not in the formula. `label_wildcards` restores the names in the tree.

    ?x          a question mark and a letter, unless the mark ends a question: after a word, or before a word and after
                a digit or a closing bracket
    \qvar{x}    anywhere
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eqkin.latex.typed import RewrittenText, rewrite_matches
from eqkin.trees.mathml import Node, list_nodes

_PLACEHOLDER_CODES = range(0xA000, 0xA48D)  # Yi syllables; the converter refuses characters of private use
_TOKEN = re.compile(
    r"\\qvar\s*\{\s*(?P<braced>[^{}]*?)\s*\}"
    r"|(?P<text>\\(?:text[a-z]*|[mhf]box|tag\*?|label|ref)\s*\{[^{}]*\})"
    r"|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|\?(?P<letter>[^\W\d_])(?=(?P<more>[^\W\d_])?)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_WILDCARD_NAME = re.compile(r"\?\w+")


@dataclass(frozen=True)
class Placeholders:
    """A formula with placeholders for its wildcards."""

    formula: RewrittenText
    names: dict[str, str]  # "?x" for each placeholder, in the order of the formula


def insert_placeholders(text: str) -> Placeholders:
    """Replace each wildcard of a formula by a placeholder, the same for the same name."""
    if "?" not in text and "\\qvar" not in text:
        return Placeholders(RewrittenText(text), {})
    free = (character for code in _PLACEHOLDER_CODES if (character := chr(code)) not in text)
    signs: dict[str, str] = {}
    word = ""  # just before the match: a question mark after it may end a question

    def replace(match: re.Match[str]) -> str:
        nonlocal word
        before, word = word, ""
        name = re.sub(r"[\W_]", "", match["braced"] or "")
        if match["letter"]:
            asked = len(before) > 1 or (before and not before.isalpha() and match["more"])
            name = "" if asked else match["letter"]
            word = "" if name else match["letter"]
        elif character := match["other"]:
            if character.isalpha():
                word = (before if before.isalpha() else "") + character
            elif character.isdigit() or character in ")]":
                word = character
        if not name:
            return match[0]
        if name not in signs:
            signs[name] = next(free, "")
        return rf"{{\mathord{{{signs[name]}}}}}" if signs[name] else match[0]

    formula = rewrite_matches(_TOKEN, replace, text)
    return Placeholders(formula, {sign: f"?{name}" for name, sign in signs.items() if sign})


def label_wildcards(root: Node, names: dict[str, str]) -> None:
    """Restore the names in a tree: a leaf that is a placeholder becomes an italic identifier."""
    for node in list_nodes(root):
        if node.text in names:
            node.tag, node.attributes = "mi", {"mathvariant": "italic"}
        node.text = restore_names(node.text, names)


def restore_names(text: str, names: dict[str, str]) -> str:
    """Return the text with names instead of placeholders."""
    return "".join(names.get(character, character) for character in text)


def is_wildcard(node: Node) -> bool:
    """Return whether a leaf of a query's tree is a wildcard."""
    return node.tag == "mi" and _WILDCARD_NAME.fullmatch(node.text) is not None


def find_wildcards(root: Node) -> tuple[str, ...]:
    """Return the names of the wildcards in a query's tree (`?x`), in reading order."""
    found: dict[str, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if is_wildcard(node):
            found[node.text] = None
        stack.extend(reversed(node.children))
    return tuple(found)
