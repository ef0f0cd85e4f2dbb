"""What a request may ask with: each parameter's name, kind, bounds and meaning, to read it and to document it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from eqkin.limits import LIMITS
from eqkin.web.errors import make_bad_request

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,12}")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a request."""

    name: str
    meaning: str
    kind: str = "string"  # or "integer", "boolean"
    default: Any = ""
    low: int = 0  # of an integer
    high: int = 0
    many: bool = False  # may be repeated; its value is a tuple
    choices: tuple[str, ...] = ()

    def parse(self, given: list[str]) -> Any:
        """The value; raises `WebError` naming the parameter."""
        if not self.many:
            return self._parse_one(given[-1]) if given else self.default
        if len(given) > LIMITS.web_list:
            raise make_bad_request(f"{self.name}: at most {LIMITS.web_list} may be given")
        return tuple(self._parse_one(value) for value in given if value)

    def _parse_one(self, value: str) -> Any:
        if self.kind == "integer":
            return self._parse_integer(value)
        if self.kind == "boolean":
            if value.lower() not in _BOOLEANS:
                raise make_bad_request(f"{self.name}: 1 or 0 is needed, not {value[:40]!r}")
            return _BOOLEANS[value.lower()]
        if len(value) > LIMITS.web_query_chars:
            raise make_bad_request(f"{self.name}: longer than {LIMITS.web_query_chars:,} characters")
        if self.choices and value not in self.choices:
            raise make_bad_request(f"{self.name}: one of {', '.join(self.choices)} is needed")
        return value.replace("\0", "")

    def _parse_integer(self, value: str) -> int | None:
        if not value.strip() and self.default is None:
            return None
        if not _INTEGER.fullmatch(value.strip()) or not self.low <= int(value) <= self.high:
            raise make_bad_request(
                f"{self.name}: a whole number from {self.low} to {self.high} is needed, not {value[:40]!r}"
            )
        return int(value)


FORMULA = Parameter("q", "The formula: LaTeX, with or without `$`, `\\[ \\]` or an environment, or MathML.")
HIT_COUNT = Parameter("k", "How many hits.", "integer", 20, 1, LIMITS.web_hits)
SEARCH_PARAMETERS = (
    FORMULA,
    Parameter("text", "Words the equation's section or paper should speak of."),
    Parameter("like", "Instead of a formula: the id of an equation whose kin is looked for."),
    HIT_COUNT,
    Parameter("field", "Only papers of this subject area; repeatable.", default=(), many=True),
    Parameter("from", "Only papers of this year or later.", "integer", None, 0, 9999),
    Parameter("to", "Only papers of this year or earlier.", "integer", None, 0, 9999),
    Parameter("author", "Only papers with a part of an author's name; repeatable.", default=(), many=True),
    Parameter("paper", "Only these papers, by key; repeatable.", default=(), many=True),
    Parameter("without", "None of these papers, by key; repeatable.", default=(), many=True),
    Parameter("group", "At most two hits of one paper, as long as there are others.", "boolean", True),
    Parameter("fold", "Near-identical formulas as one hit.", "boolean", True),
    Parameter(
        "explain", "Say which parts of a hit answer which parts of the query; off for programs.", "boolean", True
    ),
)
FORMATS = ("json", "csv", "bibtex", "ris")
EXPORT_FORMAT = Parameter("format", "How to write the list: bibtex, ris, csv or json.", default="json", choices=FORMATS)
PAPER_COUNT = Parameter("k", "How many papers.", "integer", 10, 1, LIMITS.web_papers)
POINT_LIMIT = Parameter("limit", "At most this many equations.", "integer", LIMITS.web_points, 1, LIMITS.web_points)
PAPER_KEY = Parameter("key", "The paper's key, as in `arxiv:1706.03762`.")


def read_parameters(given: QueryParams, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The values of a request's parameters; others are ignored."""
    return {parameter.name: parameter.parse(given.getlist(parameter.name)) for parameter in parameters}


def to_query_pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values of a search as they stand in an address: what is as by default is left out."""
    pairs: list[tuple[str, str]] = []
    for parameter in SEARCH_PARAMETERS:
        value = values.get(parameter.name, parameter.default)
        if value != parameter.default:
            items = value if parameter.many else [value]
            pairs += [(parameter.name, str(int(v)) if parameter.kind == "boolean" else str(v)) for v in items]
    return pairs
