"""A search as a page's address says it: parsed, carried out, and written as an address again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from eqkin.search.engine import SearchEngine
from eqkin.search.results import Filters, Results
from eqkin.web.errors import find_or_404, make_bad_request
from eqkin.web.parameters import SEARCH_PARAMETERS, read_parameters, to_query_pairs


@dataclass(frozen=True)
class WebQuery:
    """Everything that decides what a result list shows."""

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
        """The query of an address, explained if that is not said; raises `WebError`."""
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
        """Whether there is anything to look for."""
        return bool(self.q.strip() or self.text.strip() or self.like)

    def run(self, engine: SearchEngine) -> Results:
        """Search; raises what the engine raises, or `WebError` if nothing is asked."""
        if not self.is_given:
            raise make_bad_request(
                "nothing to look for: give a formula (q), words (text), or the id of an equation (like)"
            )
        options: dict[str, Any] = {"k": self.k, "text": self.text, "filters": self.filters}
        options |= {"group": self.group, "fold": self.fold, "explain": self.explain}
        if not self.like:
            return engine.search(self.q, **options)
        find_or_404(engine.get_equation, self.like)
        return engine.find_similar(self.like, **options)

    def to_url(self, path: str = "/search", **extra: str) -> str:
        """The address of a page for this query."""
        f = self.filters
        values = {"q": self.q, "text": self.text, "like": self.like, "k": self.k, "field": f.fields}
        values |= {"from": f.first_year, "to": f.last_year, "author": f.authors, "paper": f.papers}
        values |= {"without": f.without_papers, "group": self.group, "fold": self.fold, "explain": self.explain}
        pairs = to_query_pairs(values) + list(extra.items())
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def replace_filters(self, **changes: Any) -> WebQuery:
        """The same with other filters."""
        return replace(self, filters=replace(self.filters, **changes))
