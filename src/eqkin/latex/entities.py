"""HTML entities in formulas, as dumps of web pages leave them: `a &lt; b`, `x &amp;= y`, `it&#39;s`."""

from __future__ import annotations

import html
import re
import unicodedata
from html.entities import html5

from eqkin.latex.rewriting import RewrittenText, rewrite_matches

_AMPERSAND = r"&(?:amp;)?"  # pages are escaped twice now and then
_ENTITY = re.compile(_AMPERSAND + r"(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def decode_entities(text: str) -> RewrittenText:
    """The text with entities as what they stand for; an ampersand that begins none stays.

    A space of any kind becomes a plain one, characters that cannot be seen are left out.
    """
    return rewrite_matches(_ENTITY, _decode_entity, text)


def _decode_entity(match: re.Match[str]) -> str:
    name = match[1]
    if not name.startswith("#") and name + ";" not in html5:
        return "&" + name + ";" if match[0] == f"&amp;{name};" else match[0]
    return "".join(_simplify_character(character) for character in html.unescape(f"&{name};"))


def _simplify_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Zs" or character in "\t\n\r":
        return " "
    return "" if category in ("Cc", "Cf", "Cs", "Co", "Cn") or character == "\ufffd" else character
