"""Filters as expressions of Milvus.

Papers are named by their keys, which are numbers; other texts stand in double quotes with the escapes of JSON, which
Milvus reads. Parts of authors' names are looked for in texts of letters, digits and blanks alone: no quote, backslash
or wildcard is left in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from eqkin.backends.milvus.keys import hash_name
from eqkin.errors import BadInput
from eqkin.library.records import simplify_name
from eqkin.search.results import Filters

NO_YEAR = -1_000_000_000  # stands for an unknown year
MAX_FIELD_BYTES = 512  # of a field's name; a longer one is cut
AUTHOR_SEPARATOR = "|"  # stands between the names of authors
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def build_expression(filters: Filters, *, parts: bool = True) -> str:
    """What a hit has to be, for the collection of equations; empty for anything.

    Args:
        filters: what is wanted.
        parts: whether the server finds parts of texts; Milvus before 2.4 does not.

    Raises:
        BadInput: an author is asked for where the server cannot look for parts of names.
    """
    conditions = []
    if filters.fields:
        names = ", ".join(quote(clean_field_name(name)) for name in filters.fields)
        conditions.append(f"array_contains_any(fields, [{names}])")
    if filters.first_year is not None:
        conditions.append(f"year >= {int(filters.first_year)}")
    if filters.last_year is not None:
        conditions.append(f"year <= {int(filters.last_year)} and year > {NO_YEAR}")
    if filters.authors and not parts:
        raise BadInput("this Milvus cannot look for authors: it finds no parts of texts, Milvus 2.4 does")
    for author in map(clean_author_name, filters.authors):
        conditions.append(f'authors like "%{author}%"' if author else 'authors != ""')
    if filters.papers:
        conditions.append(f"paper_key in {format_list(map(hash_name, filters.papers))}")
    if filters.without_papers:
        conditions.append(f"paper_key not in {format_list(map(hash_name, filters.without_papers))}")
    return " and ".join(f"({condition})" for condition in conditions)


def quote(text: str) -> str:
    """A text as a literal."""
    return json.dumps(_CONTROL_CHARACTER.sub(" ", text), ensure_ascii=False)


def format_list(numbers: Iterable[int]) -> str:
    """Numbers as a list."""
    return f"[{', '.join(str(int(number)) for number in numbers)}]"


def clean_field_name(name: str) -> str:
    """A field's name as it is kept beside equations."""
    return truncate(_CONTROL_CHARACTER.sub(" ", name), MAX_FIELD_BYTES)


def clean_author_name(name: str) -> str:
    """A name, or a part of one, as it is kept beside equations: simplified, all else than letters and digits blank."""
    return "".join(letter if letter.isalnum() else " " for letter in simplify_name(name))


def join_author_names(names: Iterable[str]) -> str:
    """All authors of a paper in one text."""
    return AUTHOR_SEPARATOR.join(map(clean_author_name, names))


def truncate(text: str, most: int) -> str:
    """The beginning of a text, at most so many bytes of it."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")
