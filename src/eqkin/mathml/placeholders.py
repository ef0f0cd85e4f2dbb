r"""Wildcards of a query, `?x` and `\qvar{x}`, as signs that the converter takes for letters.

A sign is a character that is not in the formula; `named` gives the leaves of the tree their names back.

    ?x          a question mark and a letter, unless the mark ends a question: after a word, or before a word and after
                a digit or a closing bracket
    \qvar{x}    anywhere
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eqkin.latex.typed import RewrittenText, rewrite_matches
from eqkin.trees.mathml import Node, list_nodes

_SIGN_CODES = range(0xA000, 0xA48D)  # Yi syllables; the converter refuses characters of private use
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
    """A formula with signs for its wildcards."""

    formula: RewrittenText
    names: dict[str, str]  # of each sign, in the order of the formula: "?x"


def insert_placeholders(text: str) -> Placeholders:
    """The formula with a sign for each wildcard, the same for the same name."""
    if "?" not in text and "\\qvar" not in text:
        return Placeholders(RewrittenText(text), {})
    free = (sign for code in _SIGN_CODES if (sign := chr(code)) not in text)
    signs: dict[str, str] = {}
    word = ""  # what stands just before and could be asked about

    def replacement(match: re.Match[str]) -> str:
        nonlocal word
        before, word = word, ""
        name = re.sub(r"[\W_]", "", match["braced"] or "")
        if match["letter"]:
            asked = len(before) > 1 or (before and not before.isalpha() and match["more"])
            name = "" if asked else match["letter"]
            word = "" if name else match["letter"]
        elif match["other"]:
            word = _extend_word(before, match["other"])
        if not name:
            return match[0]
        if name not in signs:
            signs[name] = next(free, "")
        return rf"{{\mathord{{{signs[name]}}}}}" if signs[name] else match[0]

    formula = rewrite_matches(_TOKEN, replacement, text)
    return Placeholders(formula, {sign: f"?{name}" for name, sign in signs.items() if sign})


def _extend_word(word: str, character: str) -> str:
    """What the next question mark would end: a word, a number or something in brackets; "" if nothing."""
    if character.isalpha():
        return (word if word.isalpha() else "") + character
    return character if character.isdigit() or character in ")]" else ""


def label_wildcards(root: Node, names: dict[str, str]) -> None:
    """Give signs in a tree their names: a leaf that is one becomes a slanted identifier."""
    for node in list_nodes(root):
        if node.text in names:
            node.tag, node.attributes = "mi", {"mathvariant": "italic"}
        node.text = restore_names(node.text, names)


def restore_names(text: str, names: dict[str, str]) -> str:
    """A text with names instead of signs."""
    return "".join(names.get(character, character) for character in text)


def is_wildcard(node: Node) -> bool:
    """Whether a leaf of a query's tree is a wildcard."""
    return node.tag == "mi" and _WILDCARD_NAME.fullmatch(node.text) is not None


def find_wildcards(root: Node) -> tuple[str, ...]:
    """The wildcards of a query's tree, as its leaves say them (`?x`), in the order in which they are written."""
    found: dict[str, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if is_wildcard(node):
            found[node.text] = None
        stack.extend(reversed(node.children))
    return tuple(found)
