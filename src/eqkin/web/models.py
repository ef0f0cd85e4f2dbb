"""Requests and answers of the HTTP interface. OpenAPI is made from these and from the records of `eqkin.search`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlencode

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from eqkin.library.judgements import EvaluationQuery
from eqkin.limits import LIMITS
from eqkin.search.exports import SearchAnswer
from eqkin.search.query import UnreadableFormula
from eqkin.search.reader import ReadQuery
from eqkin.search.results import EquationRecord, Filters, PaperRecord, Results, SearchOptions
from eqkin.web.keys import PublicEngine
from eqkin.web.service import ProblemDetails, WebError, find_or_404

Text = Annotated[str, Field(max_length=LIMITS.web_query_chars), AfterValidator(lambda text: text.replace("\0", ""))]
Names = Annotated[tuple[Text, ...], Field(max_length=LIMITS.web_list)]
Year = Annotated[
    Annotated[int, Field(ge=0, le=9999)] | None, BeforeValidator(lambda year: None if year == "" else year)
]


class SearchParams(BaseModel):
    """A search, as the parameters of an address or the body of a request."""

    model_config = ConfigDict(frozen=True, validate_by_name=True)

    q: Text = Field("", description="LaTeX, MathML, Unicode or ASCII math, a name, words, or words and a formula.")
    reading: Literal["", "words", "formula"] = Field(
        "", alias="as", description="Read it as words or as a formula; by default the server decides."
    )
    text: Text = Field("", description="Words in the section or paper of the equation.")
    like: Text = Field("", description="Instead of a formula: the id of an equation; related ones are found.")
    k: int = Field(20, ge=1, le=LIMITS.web_hits, description="Number of hits.")
    offset: int = Field(0, ge=0, le=LIMITS.results, description="Hits of the list to leave out before them.")
    field: Names = Field((), description="Only papers of this subject area; repeatable.")
    from_year: Year = Field(None, alias="from", description="Only papers of this year or later.")
    to_year: Year = Field(None, alias="to", description="Only papers of this year or earlier.")
    lang: Names = Field((), description="Only papers in this language, as in `en`; repeatable.")
    author: Names = Field((), description="Only papers by an author whose name contains this; repeatable.")
    paper: Names = Field((), description="Only these papers, by key; repeatable.")
    without: Names = Field((), description="Leave out these papers, by key; repeatable.")
    group: bool = Field(True, description="Show at most two hits per paper, as long as there are others.")
    fold: bool = Field(True, description="Show near-identical formulas as one hit.")
    explain: bool = Field(False, description="Explain which parts of a hit match the query.")
    facets: bool = Field(False, description="Count equations by field, year, language and paper.")

    @property
    def is_given(self) -> bool:
        """True if there is anything to search for."""
        return bool(self.q.strip() or self.text.strip() or self.like)

    @property
    def filters(self) -> Filters:
        """The conditions that hits must meet."""
        return Filters(
            fields=self.field,
            first_year=self.from_year,
            last_year=self.to_year,
            authors=self.author,
            papers=self.paper,
            without_papers=self.without,
            languages=self.lang,
        )

    def run(self, engine: PublicEngine) -> Results:
        """Search; raises `WebError` if the query is empty or names an unknown equation, and the engine's errors."""
        if not self.is_given:
            message = "nothing to search for: give a formula (q), words (text), or the id of an equation (like)"
            raise WebError(400, "bad_request", message)
        options = SearchOptions(
            k=self.k,
            offset=self.offset,
            text=self.text,
            filters=self.filters,
            group=self.group,
            fold=self.fold,
            explain=self.explain,
            facets=self.facets,
            reading=self.reading or "auto",
        )
        if not self.like:
            return engine.search(self.q, options)
        find_or_404(engine.get_equation, self.like)
        return engine.find_similar(self.like, options)

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
    facets: bool = True


class ExportParams(SearchParams):
    """A search whose results are exported."""

    format: Literal["json", "csv", "bibtex", "ris"] = Field("json", description="Format of the list.")


class ReadParams(BaseModel):
    """A query to be read."""

    q: Text = Field(min_length=1, description="What was typed.")
    reading: Literal["", "words", "formula"] = Field("", alias="as", description="Read it as words or as a formula.")

    def run(self, engine: PublicEngine) -> ReadQuery:
        """Read it; raises `UnreadableFormula`."""
        found = engine.plain.read(self.q, as_words=self.reading == "words", as_formula=self.reading == "formula")
        if (problem := found.problem) is not None:
            raise UnreadableFormula(problem)
        return found


class StrictSearch(SearchParams):
    """A search as the body of a request."""

    model_config = ConfigDict(extra="forbid")


class SearchBatch(BaseModel):
    """Several searches."""

    model_config = ConfigDict(extra="forbid")

    queries: list[StrictSearch] = Field(min_length=1, max_length=LIMITS.web_list)


class FormulaList(BaseModel):
    """Formulas to be embedded."""

    model_config = ConfigDict(extra="forbid")

    formulas: list[Text] = Field(min_length=1, max_length=LIMITS.web_formulas, description="As LaTeX.")


@dataclass(frozen=True)
class BatchAnswer:
    """The answer to one of several searches."""

    results: SearchAnswer | None = None
    problem: ProblemDetails | None = None


@dataclass(frozen=True)
class Embeddings:
    """Vectors of formulas."""

    # Hash of the network; vectors of different ones cannot be compared.
    model: str
    dimensions: int
    vectors: list[list[float]]


@dataclass(frozen=True)
class PaperSection:
    """A section and its equations."""

    heading: str
    equations: tuple[EquationRecord, ...]


@dataclass(frozen=True)
class PaperPart:
    """A paper with some of its equations."""

    paper: PaperRecord
    abstract: str
    sections: list[PaperSection]
    # Equations left out before them.
    offset: int
    # Number of all equations of the paper.
    equations: int


@dataclass(frozen=True)
class LibraryCounts:
    """Numbers of equations of the whole library by field and by year."""

    fields: dict[str, int]
    years: dict[int, int]


@dataclass(frozen=True)
class Health:
    """The state of a server process."""

    status: str
    # Requests waiting and running.
    under_way: int
    process: int
    processes: int


@dataclass(frozen=True)
class Judgements:
    """All judgements, as evaluation queries."""

    queries: list[EvaluationQuery]


@dataclass(frozen=True)
class RemovedJudgements:
    """What was deleted."""

    removed: int


class JudgedResult(BaseModel):
    """A result of a query."""

    equation: Text = Field(description="The id of the result.")
    latex: Text = Field("", description="The query's formula as LaTeX,")
    mathml: Text = Field("", description="or as MathML,")
    words: Text = Field("", description="and its words.")


class NewJudgement(JudgedResult):
    """A judgement of a result."""

    model_config = ConfigDict(strict=True, extra="forbid")

    relevant: bool
    keywords: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=LIMITS.judgement_keywords)
