"""Parameters of requests: name, type, bounds and meaning of each, and a search as a URL states it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from eqkin.limits import LIMITS
from eqkin.search.engine import SearchEngine
from eqkin.search.results import Filters, Results
from eqkin.web.errors import find_or_404, make_bad_request

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,12}")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a request."""

    name: str
    meaning: str
    kind: str = "string"  # or "integer", "boolean"
    default: Any = ""
    low: int = 0  # bounds of an integer
    high: int = 0
    many: bool = False  # may be repeated; its value is a tuple
    choices: tuple[str, ...] = ()

    def parse(self, given: list[str]) -> Any:
        """Parse the value; raises `WebError` with the name of the parameter."""
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
                raise make_bad_request(f"{self.name}: 1 or 0 is required, not {value[:40]!r}")
            return _BOOLEANS[value.lower()]
        if len(value) > LIMITS.web_query_chars:
            raise make_bad_request(f"{self.name}: longer than {LIMITS.web_query_chars:,} characters")
        if self.choices and value not in self.choices:
            raise make_bad_request(f"{self.name}: one of {', '.join(self.choices)} is required")
        return value.replace("\0", "")

    def _parse_integer(self, value: str) -> int | None:
        if not value.strip() and self.default is None:
            return None
        if not _INTEGER.fullmatch(value.strip()) or not self.low <= int(value) <= self.high:
            raise make_bad_request(
                f"{self.name}: a whole number from {self.low} to {self.high} is required, not {value[:40]!r}"
            )
        return int(value)


FORMULA = Parameter("q", "The formula: LaTeX, with or without `$`, `\\[ \\]` or an environment, or MathML.")
HIT_COUNT = Parameter("k", "Number of hits.", "integer", 20, 1, LIMITS.web_hits)
SEARCH_PARAMETERS = (
    FORMULA,
    Parameter("text", "Words in the section or paper of the equation."),
    Parameter("like", "Instead of a formula: the id of an equation; related ones are found."),
    HIT_COUNT,
    Parameter("field", "Only papers of this subject area; repeatable.", default=(), many=True),
    Parameter("from", "Only papers of this year or later.", "integer", None, 0, 9999),
    Parameter("to", "Only papers of this year or earlier.", "integer", None, 0, 9999),
    Parameter("author", "Only papers by an author whose name contains this; repeatable.", default=(), many=True),
    Parameter("paper", "Only these papers, by key; repeatable.", default=(), many=True),
    Parameter("without", "Leave out these papers, by key; repeatable.", default=(), many=True),
    Parameter("group", "Show at most two hits per paper, as long as there are others.", "boolean", True),
    Parameter("fold", "Show near-identical formulas as one hit.", "boolean", True),
    Parameter("explain", "Explain which parts of a hit match the query.", "boolean", True),
)
# Explanations are on by default for pages, off for programs.
API_SEARCH_PARAMETERS = tuple(
    replace(parameter, default=False) if parameter.name == "explain" else parameter for parameter in SEARCH_PARAMETERS
)
FORMATS = ("json", "csv", "bibtex", "ris")
EXPORT_FORMAT = Parameter("format", "Format of the list: bibtex, ris, csv or json.", default="json", choices=FORMATS)
PAPER_COUNT = Parameter("k", "Number of papers.", "integer", 10, 1, LIMITS.web_papers)
POINT_LIMIT = Parameter("limit", "At most this many equations.", "integer", LIMITS.web_points, 1, LIMITS.web_points)
PAPER_KEY = Parameter("key", "The paper's key, as in `arxiv:1706.03762`.")


def read_parameters(given: QueryParams, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the values of a request's parameters; unknown ones are ignored."""
    return {parameter.name: parameter.parse(given.getlist(parameter.name)) for parameter in parameters}


def to_query_pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Convert the values of a search to pairs for a URL, without those that equal the default."""
    pairs: list[tuple[str, str]] = []
    for parameter in SEARCH_PARAMETERS:
        value = values.get(parameter.name, parameter.default)
        if value != parameter.default:
            items = value if parameter.many else [value]
            pairs += [(parameter.name, str(int(v)) if parameter.kind == "boolean" else str(v)) for v in items]
    return pairs


@dataclass(frozen=True)
class WebQuery:
    """A search as its URL states it."""

    q: str = ""
    text: str = ""
    like: str = ""
    k: int = 20
    filters: Filters = Filters()
    group: bool = True
    fold: bool = True
    explain: bool = True

    @classmethod
    def from_params(cls, given: QueryParams, *, explain: bool = True) -> WebQuery:
        """Read the query of a URL; `explain` is the default of that parameter. Raises `WebError`."""
        values = read_parameters(given, SEARCH_PARAMETERS)
        if "explain" not in given:
            values["explain"] = explain
        filters = Filters(
            fields=values.pop("field"),
            first_year=values.pop("from"),
            last_year=values.pop("to"),
            authors=values.pop("author"),
            papers=values.pop("paper"),
            without_papers=values.pop("without"),
        )
        return cls(filters=filters, **values)

    @property
    def is_given(self) -> bool:
        """True if there is anything to search for."""
        return bool(self.q.strip() or self.text.strip() or self.like)

    def run(self, engine: SearchEngine) -> Results:
        """Search; raises `WebError` if the query is empty, and the errors of the engine."""
        if not self.is_given:
            raise make_bad_request(
                "nothing to search for: give a formula (q), words (text), or the id of an equation (like)"
            )
        options: dict[str, Any] = {"k": self.k, "text": self.text, "filters": self.filters}
        options |= {"group": self.group, "fold": self.fold, "explain": self.explain}
        if not self.like:
            return engine.search(self.q, **options)
        find_or_404(engine.get_equation, self.like)
        return engine.find_similar(self.like, **options)

    def to_url(self, path: str = "/search", **extra: str) -> str:
        """Return the URL of a page for this query."""
        f = self.filters
        values = {"q": self.q, "text": self.text, "like": self.like, "k": self.k, "field": f.fields}
        values |= {"from": f.first_year, "to": f.last_year, "author": f.authors, "paper": f.papers}
        values |= {"without": f.without_papers, "group": self.group, "fold": self.fold, "explain": self.explain}
        pairs = to_query_pairs(values) + list(extra.items())
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def replace_filters(self, **changes: Any) -> WebQuery:
        """Return the query with other filters."""
        return replace(self, filters=replace(self.filters, **changes))
