"""Requests and answers of the HTTP interface. OpenAPI is made from these and from the records of `eqkin.search`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlencode

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from eqkin.library.judgements import EvaluationQuery
from eqkin.limits import LIMITS
from eqkin.search.engine import SearchEngine
from eqkin.search.results import Filters, Results
from eqkin.web.errors import WebError, find_or_404

Text = Annotated[str, Field(max_length=LIMITS.web_query_chars), AfterValidator(lambda text: text.replace("\0", ""))]
Names = Annotated[tuple[Text, ...], Field(max_length=LIMITS.web_list)]
Year = Annotated[int | None, BeforeValidator(lambda year: None if year == "" else year), Field(ge=0, le=9999)]


class SearchParams(BaseModel):
    """A search, as the parameters of an address or the body of a request."""

    model_config = ConfigDict(frozen=True, validate_by_name=True)

    q: Text = Field("", description="A formula: LaTeX, with or without `$`, `\\[ \\]` or an environment, or MathML.")
    text: Text = Field("", description="Words in the section or paper of the equation.")
    like: Text = Field("", description="Instead of a formula: the id of an equation; related ones are found.")
    k: int = Field(20, ge=1, le=LIMITS.web_hits, description="Number of hits.")
    field: Names = Field((), description="Only papers of this subject area; repeatable.")
    from_year: Year = Field(None, alias="from", description="Only papers of this year or later.")
    to_year: Year = Field(None, alias="to", description="Only papers of this year or earlier.")
    author: Names = Field((), description="Only papers by an author whose name contains this; repeatable.")
    paper: Names = Field((), description="Only these papers, by key; repeatable.")
    without: Names = Field((), description="Leave out these papers, by key; repeatable.")
    group: bool = Field(True, description="Show at most two hits per paper, as long as there are others.")
    fold: bool = Field(True, description="Show near-identical formulas as one hit.")
    explain: bool = Field(False, description="Explain which parts of a hit match the query.")

    @property
    def is_given(self) -> bool:
        """True if there is anything to search for."""
        return bool(self.q.strip() or self.text.strip() or self.like)

    @property
    def filters(self) -> Filters:
        """The conditions that hits must meet."""
        return Filters(self.field, self.from_year, self.to_year, self.author, self.paper, self.without)

    def run(self, engine: SearchEngine) -> Results:
        """Search; raises `WebError` if the query is empty or names an unknown equation, and the engine's errors."""
        if not self.is_given:
            message = "nothing to search for: give a formula (q), words (text), or the id of an equation (like)"
            raise WebError(400, "bad_request", message)
        options: dict[str, Any] = {"k": self.k, "text": self.text, "filters": self.filters}
        options |= {"group": self.group, "fold": self.fold, "explain": self.explain}
        options["facets"] = isinstance(self, PageSearch)
        if not self.like:
            return engine.search(self.q, **options)
        find_or_404(engine.get_equation, self.like)
        return engine.find_similar(self.like, **options)

    def replace(self, **changes: Any) -> Self:
        """Return the search with other values."""
        return self.model_copy(update=changes)

    def to_url(self, path: str = "/search", /, **changes: Any) -> str:
        """Return the address of this search with other values; those that equal the default are left out."""
        values = self.replace(**changes).model_dump(by_alias=True, exclude_defaults=True)
        values |= {name: value for name, value in changes.items() if name not in type(self).model_fields}
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
        return f"{path}?{urlencode(plain, doseq=True)}" if plain else path


class PageSearch(SearchParams):
    """A search on the page."""

    explain: bool = True


class ExportParams(SearchParams):
    """A search whose results are exported."""

    format: Literal["json", "csv", "bibtex", "ris"] = Field("json", description="Format of the list.")


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    title: str
    status: int
    code: str = Field(description="For programs; stable.")
    detail: str = Field(description="For people.")
    position: int | None = Field(None, ge=1, description="Of the wrong character in the formula, counted from 1.")


@dataclass(frozen=True)
class FacetCounts:
    """Numbers of equations by field and by year."""

    fields: dict[str, int]
    years: dict[int, int]


@dataclass(frozen=True)
class Reading:
    """How a formula was read."""

    mathml: str
    unknown: tuple[str, ...]  # undefined commands
    repaired: bool  # a typing error was repaired


@dataclass(frozen=True)
class MapColumns:
    """Equations as points of a map, in columns."""

    ids: list[str]
    names: list[str]  # of the fields
    fields: list[int]  # of each point, an index of `names`
    x: list[float]  # in [-1, 1]
    y: list[float]


@dataclass(frozen=True)
class Health:
    """The state of a server process."""

    status: str
    under_way: int  # requests waiting and running
    process: int
    processes: int


@dataclass(frozen=True)
class Judgements:
    """All judgements, as evaluation queries."""

    queries: list[EvaluationQuery]


class NewJudgement(BaseModel):
    """A judgement of a result."""

    model_config = ConfigDict(strict=True, extra="forbid")

    equation: Text = Field(description="The id of the result.")
    relevant: bool
    latex: Text = Field("", description="The query's formula as LaTeX,")
    mathml: Text = Field("", description="or as MathML,")
    words: Text = Field("", description="and its words.")
    keywords: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=LIMITS.web_list)
