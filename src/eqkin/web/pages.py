"""The pages for people: what the templates show."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import jinja2
import orjson
from fastapi import APIRouter, Query, UploadFile
from markupsafe import Markup
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eqkin.errors import BadInput
from eqkin.formulas.prose import render_passages, render_prose
from eqkin.limits import LIMITS
from eqkin.search.backend import Snapshot
from eqkin.search.results import BAND_TITLES, HIT_RELATIONS, EquationRecord, Pairing, PaperPage, PaperRecord, Results
from eqkin.web.api import refuse_if_read_only
from eqkin.web.keys import PublicEngine
from eqkin.web.models import PageSearch, ReadParams, Text
from eqkin.web.service import ServerSettings, ServerState, State, WebError, find_or_404

router = APIRouter(include_in_schema=False)
# Kind of input, what is typed.
EXAMPLES = (
    ("LaTeX", r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}"),
    ("Unicode", "iħ ∂ψ/∂t = Hψ"),
    ("plain text", "int_0^inf e^(-x) x^(z-1) dx"),
    ("a name or words", "law of total probability"),
    ("with wildcards", r"\frac{?a}{?a + ?b}"),
)
NO_FILTERS = {"field": (), "lang": (), "paper": (), "author": (), "from_year": None, "to_year": None}
# Equations of a paper that are shown at a time.
_PART_EQUATIONS = 40
_RELATED_PAPERS = 6
# Equations that search for related papers: the page of a long paper must not take seconds.
_COMPARED_EQUATIONS = 128
_STRIP_FIELDS = 8
_SENTENCE_CHARS = 300
_VARIANT = re.compile(r'(<m[ions][^>]*?) mathvariant="((?!normal|italic")[a-z-]+)"([^>]*>)([^<]*)')
_WIDE_ACCENT = re.compile(r'(<mo stretchy="true"[^>]*>)([\^~])(?=<)')
_WIDE_ACCENTS = {"^": "\u0302", "~": "\u0303"}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\\])")


def create_environment(settings: ServerSettings, *, takes_judgements: bool = True) -> jinja2.Environment:
    """Create the environment of the templates; everything they insert is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eqkin.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.undefined = jinja2.StrictUndefined
    environment.globals.update(root=settings.root_path, limits=LIMITS, read_only=settings.read_only)
    environment.globals.update(typed="", reading_mode="", takes_judgements=takes_judgements)
    environment.filters.update(
        segments=render_prose,
        pairs=_to_pairs,
        sentence=pick_sentence,
        number=get_number,
        label=format_label,
        math=render_math,
    )
    return environment


def get_number(name: str) -> int:
    """Return the number of an equation within its paper from its id, counted from one as on its page."""
    return int(name.rpartition("#")[2]) + 1


def format_label(value: object) -> str:
    """Return the code of a field or language as words."""
    return re.sub("[-_]+", " ", str(value))


def render_math(mathml: str) -> Markup:
    """Return MathML as browsers draw it: they know no `mathvariant` but normal, and stretch no fence by themselves.

    It is safe to insert: our own writer made it, of known elements and attributes.
    """
    mathml = _VARIANT.sub(lambda found: f"{found[1]}{found[3]}{apply_variant(found[4], found[2])}", mathml)
    mathml = _WIDE_ACCENT.sub(lambda found: found[1] + _WIDE_ACCENTS[found[2]], mathml)
    return Markup(mathml.replace('<mo fence="true"', '<mo fence="true" stretchy="true" lspace="0" rspace="0"'))


@lru_cache(maxsize=10_000)
def apply_variant(text: str, variant: str) -> str:
    """Return letters and digits in a style as Unicode's mathematical characters, as in 𝐱 and ℝ."""
    style = {"bold-sans-serif": "SANS-SERIF BOLD"}.get(variant, variant.upper().replace("BOLD-", "BOLD "))
    styled = []
    for character in html.unescape(text):
        name = re.sub("^(LATIN|GREEK) | LETTER", "", unicodedata.name(character, ""))
        for start in (f"MATHEMATICAL {style}", style, "BLACK-LETTER" if style == "FRAKTUR" else style):
            with suppress(KeyError):
                character = unicodedata.lookup(f"{start} {name}")
                break
        styled.append(character)
    return html.escape("".join(styled))


def _to_pairs(pairings: Iterable[Pairing]) -> str:
    """Return which node of a hit matches which node of the query, for the page's script."""
    return orjson.dumps([[pairing.hit_node, pairing.query_node] for pairing in pairings]).decode()


def pick_sentence(equation: EquationRecord) -> str:
    """Return the sentence that leads to an equation, or else the one that follows it."""
    before = " ".join(equation.before.split())
    after = " ".join(equation.after.split())
    sentence = _SENTENCE_END.split(before)[-1] or _SENTENCE_END.split(after)[0]
    if len(sentence) <= _SENTENCE_CHARS:
        return sentence
    cut = sentence[-_SENTENCE_CHARS:]
    # the text must not begin in the middle of a formula
    if cut.find(r"\)") >= 0 and not 0 <= cut.find(r"\(") < cut.find(r"\)"):
        cut = cut.partition(r"\)")[2]
    return "… " + cut.partition(" ")[2]


class Example(NamedTuple):
    """A query of the start page."""

    kind: str
    typed: str
    mathml: str


@router.get("/")
async def show_home(server: State) -> Response:
    """Show the start page: what the library holds, and how to ask."""

    def work() -> str:
        engine = server.engine.plain
        fields, years = engine.count_facets()
        with engine.backend.snapshot() as snapshot:
            facts = _describe_library(server.engine, snapshot, years)
        examples = [Example(kind, typed, engine.read(typed).mathml) for kind, typed in EXAMPLES]
        return server.render("home.html", examples=examples, fields=fields, facts=facts)

    return HTMLResponse(await server.queue.run(work))


def _describe_library(engine: PublicEngine, snapshot: Snapshot, years: dict[int, int]) -> list[str]:
    """Return what the library holds and since when, as short statements."""
    facts = [f"{len(snapshot):,} equations"] if len(snapshot) else []
    papers, changed = engine.describe_library(snapshot)
    if papers:
        facts.append(f"{papers:,} papers")
    if years:
        facts.append(f"from the years {min(years)} to {max(years)}" if len(years) > 1 else f"from {min(years)}")
    if changed:
        facts.append(f"last changed on {changed.day} {changed:%B %Y}")
    return facts


@router.get("/search")
async def show_search(params: Annotated[PageSearch, Query()], server: State) -> Response:
    """Show a result list in bands."""
    if not params.is_given:
        return await show_home(server)

    def work() -> str:
        origin = find_or_404(server.engine.get_equation, params.like) if params.like else None
        return server.render("results.html", **prepare_results(params, params.run(server.engine), origin))

    return HTMLResponse(await server.queue.run(work))


def prepare_results(params: PageSearch, results: Results, origin: EquationRecord | None = None) -> dict[str, Any]:
    """Return what the template of results shows; `origin` is the equation of the query, if it is one of the library."""
    shown = [hit.equation for hit in results.hits]
    titles = (*(equation.paper.title for equation in shown), *(count.title for count in results.papers))
    # one call of the converter, whose results the template finds cached
    render_passages((*titles, *map(pick_sentence, shown)))
    numbers = count(results.offset + 1)
    last = results.offset + len(results.hits)
    return {
        "params": params,
        "plain": params.replace(**NO_FILTERS, offset=0),
        "filters": sum(getattr(params, name, None) not in ((), None) for name in NO_FILTERS),
        "typed": origin.latex if origin else params.q,
        "reading_mode": params.reading,
        "origin": origin,
        "results": results,
        "bands": [(relation, [(next(numbers), hit) for hit in hits]) for relation, hits in results.bands],
        "meanings": HIT_RELATIONS,
        "titles": BAND_TITLES,
        "strip": [entry for entry in results.fields if entry.best][:_STRIP_FIELDS],
        "last": last,
        "more": params.to_url("/search", offset=last) if results.more and last < LIMITS.web_hits else "",
    }


class ShownSection(NamedTuple):
    """A section of a paper, and those of its display equations that are shown."""

    number: int
    heading: str
    # Number of all its display equations.
    total: int
    # The number of the first one.
    first: int
    equations: Sequence[EquationRecord]


@router.get("/paper")
async def show_paper(server: State, key: Annotated[Text, Query(min_length=1)], at: int | None = None) -> Response:
    """Show a paper around an equation: contents, equations with the text between them, related papers."""

    def work() -> str:
        page = find_or_404(server.engine.get_paper, key)
        try:
            related = server.engine.find_similar_papers(page.paper.key, _RELATED_PAPERS, equations=_COMPARED_EQUATIONS)
        except BadInput:
            # the paper has no equations to compare
            related = []
        places = _find_displays(page)
        if at and at not in places:
            places |= _find_display_of(server.engine, page, at)
        # the numbers of the displays, each once
        numbers = list(dict.fromkeys(places.values()))
        here = places.get(at or 0, 0)
        start = numbers.index(here) if here else 0
        start -= start % _PART_EQUATIONS
        end = start + _PART_EQUATIONS
        sections = _cut_sections(page, set(numbers[start:end]))
        texts = [page.paper.title, page.abstract, *(hit.paper.title for hit in related)]
        for section in sections:
            texts += [section.heading, *(text for each in section.equations for text in (each.before, each.after))]
        # one call of the converter, whose results the template finds cached
        render_passages(texts)
        return server.render(
            "paper.html",
            paper=page.paper,
            abstract=page.abstract,
            sections=sections,
            numbers=numbers,
            places=places,
            here=here,
            sources=_list_sources(page.paper),
            related=related,
            previous=numbers[start - 1] if start else None,
            following=numbers[end] if end < len(numbers) else None,
        )

    return HTMLResponse(await server.slow_queue.run(work))


def _find_display_of(engine: PublicEngine, page: PaperPage, at: int) -> dict[int, int]:
    """Return the display where a row or an inline formula is shown, which the page of a library does not list."""
    try:
        equation = engine.get_equation(f"{page.paper.key}#{at - 1}")
    except BadInput:
        return {}
    around = next((each for heading, each in page.sections if heading == equation.section), ())
    return _find_displays(replace(page, sections=((equation.section, (*around, equation)),)))


def _find_displays(page: PaperPage) -> dict[int, int]:
    """Return for each equation the display where it is shown: itself, that of a row, the first of its section."""
    found = {}
    for _, equations in page.sections:
        first = next((get_number(each.id) for each in equations if not each.inline and each.whole is None), 0)
        for equation in equations:
            place = first if equation.inline else get_number(equation.whole or equation.id)
            if place:
                found[get_number(equation.id)] = place
    return found


def _cut_sections(page: PaperPage, shown: set[int]) -> list[ShownSection]:
    """Return the sections with those of their displays that are shown."""
    sections = []
    for number, (heading, equations) in enumerate(page.sections, 1):
        displays = [equation for equation in equations if not equation.inline and equation.whole is None]
        if displays:
            part = [equation for equation in displays if get_number(equation.id) in shown]
            first = get_number(displays[0].id)
            sections.append(ShownSection(number, heading or "Without a heading", len(displays), first, part))
    return sections


def _list_sources(paper: PaperRecord) -> list[tuple[str, str]]:
    """Return where a paper can be read: names and addresses; for a file of the server only its name."""
    sources = [(paper.url.split("/")[2], paper.url)] if paper.url.startswith(("http://", "https://")) else []
    if paper.doi and paper.doi not in paper.url:
        sources.append((f"doi:{paper.doi}", f"https://doi.org/{quote(paper.doi)}"))
    return sources or [(paper.origin or paper.key, "")]


@router.get("/draft")
async def show_draft(server: State) -> Response:
    """Show the form for a draft."""
    refuse_if_read_only(server)
    return HTMLResponse(server.render("draft.html", name="", related=[]))


@router.post("/draft")
async def show_papers_similar_to_draft(server: State, file: UploadFile) -> Response:
    """Show the papers similar to a draft, which is not kept."""
    refuse_if_read_only(server)
    content = await file.read()
    name = file.filename or "draft.tex"
    related = await server.slow_queue.run(server.engine.find_papers_similar_to_draft, content, name)
    return HTMLResponse(server.render("draft.html", name=name, related=related))


@router.get("/reading")
async def show_reading(params: Annotated[ReadParams, Query()], server: State) -> Response:
    """Show how what was typed is read: a part of the page, for the box."""
    reading = await server.queue.run(params.run, server.engine)
    return HTMLResponse(server.render("reading.html", reading=reading))


@router.get("/equation")
async def show_equation(server: State, id: Text) -> Response:
    """Show an equation and where it stands: a part of a page, for folded lists."""
    equation = await server.queue.run(find_or_404, server.engine.get_equation, id)
    return HTMLResponse(server.render("equation.html", equation=equation))


@router.get("/api")
async def show_api(request: Request, server: State) -> Response:
    """Show the documentation of the HTTP interface."""
    return HTMLResponse(server.render("api.html", paths=request.app.openapi()["paths"]))


def render_error(request: Request, error: WebError) -> Response:
    """Render an error as a page; the box keeps what was typed."""
    try:
        typed = PageSearch.model_validate({"q": request.query_params.get("q", "")}).q
    except ValidationError:
        typed = ""
    server: ServerState = request.app.state.service
    body = server.render("error.html", typed=typed, error=error)
    return HTMLResponse(body, error.status_code, error.headers)
