"""`eqkin search`, `show`, `open`, `similar-papers`, `rank`: search a library, and rank formulas of any collection."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.cli.console import emit, warn
from eqkin.cli.options import AsJson, Latex, SearchedCollection
from eqkin.errors import BadInput, EqkinError, LimitReached, strip_control_chars

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine
    from eqkin.search.reader import ReadQuery
    from eqkin.search.results import EquationRecord, Filters, Results, SearchOptions

# Subject areas that are shown if none is similar to the one asked for.
_MAX_SUGGESTED_FIELDS = 12
_FILE_NAME = re.compile(r"[^\\${}^\n]+\.[A-Za-z]+")
_YEAR_RANGE = re.compile(r"(\d{1,4})?(-)?(\d{1,4})?")

EquationId = Annotated[
    str, typer.Argument(metavar="ID", help="The equation's id, PAPER#NUMBER or PAPER#LABEL, as a search prints it.")
]


@dataclass(kw_only=True)
class QueryOptions:
    """Options of a search, whether by a query or by an equation of the library."""

    reading: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="words|formula",
            help="How to read the query.",
            show_default="as it looks",
            rich_help_panel="Query",
        ),
    ] = "auto"
    text: Annotated[
        str,
        typer.Option(
            "--text",
            "-t",
            metavar="WORDS",
            help="Words to find in the text around the equation.",
            rich_help_panel="Query",
        ),
    ] = ""
    field: Annotated[
        list[str], typer.Option(help="Subject area; repeatable, one must match.", rich_help_panel="Filters")
    ] = dataclasses.field(default_factory=list)
    year: Annotated[
        str,
        typer.Option(
            metavar="YEARS",
            help="Years of publication: 1995, 1990-2005, 1990- or -2005.",
            rich_help_panel="Filters",
        ),
    ] = ""
    lang: Annotated[
        list[str],
        typer.Option(help="Language, as in `en`; repeatable, one must match.", rich_help_panel="Filters"),
    ] = dataclasses.field(default_factory=list)
    author: Annotated[
        list[str],
        typer.Option(help="Part of an author's name; repeatable, all must match.", rich_help_panel="Filters"),
    ] = dataclasses.field(default_factory=list)
    paper: Annotated[
        list[str],
        typer.Option(metavar="KEY", help="Search only this paper; repeatable.", rich_help_panel="Filters"),
    ] = dataclasses.field(default_factory=list)
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of hits.", rich_help_panel="Output")] = 10
    offset: Annotated[
        int, typer.Option(min=0, help="Hits to skip: the next page of the same list.", rich_help_panel="Output")
    ] = 0
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show which parts of a hit match the query.", rich_help_panel="Output"),
    ] = False
    counts: Annotated[
        bool,
        typer.Option("--counts", help="Count equations of the same form by field.", rich_help_panel="Output"),
    ] = False
    every: Annotated[
        bool,
        typer.Option("--all", help="Show duplicates, and any number of hits per paper.", rich_help_panel="Output"),
    ] = False

    @property
    def filters(self) -> Filters:
        """The conditions that hits must meet."""
        from eqkin.search.results import Filters

        first_year, last_year = _parse_years(self.year)
        return Filters(
            fields=tuple(self.field),
            first_year=first_year,
            last_year=last_year,
            authors=tuple(self.author),
            papers=tuple(self.paper),
            languages=tuple(self.lang),
        )

    def to_search_options(self) -> SearchOptions:
        """Return the options as the engine takes them."""
        from eqkin.search.results import SearchOptions

        return SearchOptions(
            k=self.k,
            offset=self.offset,
            text=self.text,
            filters=self.filters,
            group=not self.every,
            fold=not self.every,
            explain=self.explain,
            facets=self.counts,
            reading=self.reading,
        )


@dataclass(kw_only=True)
class ListForm:
    """Options that say how hits are printed."""

    prose: Annotated[bool, typer.Option("--prose", help="Show the text around each hit.", rich_help_panel="Output")] = (
        False
    )
    weak: Annotated[bool, typer.Option("--weak", help="Show weak hits, too.", rich_help_panel="Output")] = False
    latex: Annotated[
        bool,
        typer.Option("--latex/--unicode", help="Show formulas in LaTeX or in Unicode.", rich_help_panel="Output"),
    ] = False
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.", rich_help_panel="Output")] = False
    bibtex: Annotated[
        bool, typer.Option("--bibtex", help="Print the papers of the hits as BibTeX.", rich_help_panel="Output")
    ] = False
    trec: Annotated[
        bool,
        typer.Option(
            "--trec", help="Print a TREC run; with `-`, lines may be id, tab, query.", rich_help_panel="Output"
        ),
    ] = False
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON for programs instead of text for people.", rich_help_panel="Output"),
    ] = False

    @property
    def file_format(self) -> str:
        """The format for other programs, "" for people; raises a usage error if several are asked for."""
        formats = {"csv": self.csv, "bibtex": self.bibtex, "trec": self.trec, "json": self.as_json}
        chosen = [name for name, is_chosen in formats.items() if is_chosen]
        if len(chosen) > 1:
            raise typer.BadParameter("choose one of --csv, --bibtex, --trec and --json")
        return chosen[0] if chosen else ""


def search(
    query: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]",
            help="A formula in any notation, a name, words, or words and a formula; or a file of a formula (.tex, .txt,"
            " .mml, .xml); `-` reads one query per line.",
            show_default=False,
        ),
    ] = "",
    like: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Find what is related to this equation of the library instead.",
            rich_help_panel="Query",
        ),
    ] = "",
    *,
    options: QueryOptions,
    form: ListForm,
    searched: SearchedCollection,
) -> None:
    r"""Find equations related to a formula, and the papers that contain them.

    A wildcard, `?x` or `\qvar{name}`, matches a whole operand.

    **Examples**

        eqkin search 'P(s|d) = \frac{P(d|s) P(s)}{P(d)}'

        eqkin search '\frac{?a}{?a + ?b}' --text 'neural network' --year 1980-1995 --explain

        eqkin search --like 'atlas:probability#bayes' --prose
    """
    if not (query.strip() or options.text.strip() or like):
        raise typer.BadParameter("give a query, --text WORDS, or both; or --like ID")
    if query.strip() and like:
        raise typer.BadParameter("give a query or --like ID, not both")
    file_format = form.file_format
    search_options = options.to_search_options()
    problems: list[EqkinError] = []
    answers = hits = 0
    with searched.open_engine() as engine:
        for topic, line in _iter_topics(form.trec) if query == "-" else [("1", _read_formula(query))]:
            try:
                results = engine.find_similar(like, search_options) if like else engine.search(line, search_options)
            except (BadInput, LimitReached) as error:
                if query != "-":
                    raise
                problems.append(error)
                typer.secho(f"eqkin: {line[:200]!r}: {error}", err=True, fg="red")
                continue
            _print_answer(results, form, file_format, topic=topic, is_first=not answers, is_batch=query == "-")
            answers += 1
            hits += len(results.hits)
        if not hits:
            _suggest_fields(options.field, engine)
    if problems:
        raise typer.Exit(4 if all(isinstance(problem, LimitReached) for problem in problems) else 3)
    raise typer.Exit(0 if hits else 1)


def _print_answer(
    results: Results, form: ListForm, file_format: str, *, topic: str, is_first: bool, is_batch: bool
) -> None:
    from eqkin.cli.output import format_results, print_results
    from eqkin.search.exports import SearchAnswer

    def render() -> None:
        if file_format:
            typer.echo(format_results(results, file_format, topic, header=is_first), nl=False)
            return
        if results.query is not None and not is_batch:
            _explain_reading(results.query)
        print_results(results, latex=form.latex, titled=is_batch or not results.hits, prose=form.prose, weak=form.weak)

    emit(SearchAnswer.from_results(results) if form.as_json else None, form.as_json, render)


def _explain_reading(query: ReadQuery) -> None:
    """Say how a query was read, unless it is LaTeX without a slip, MathML or words."""
    for repair in query.repairs:
        warn(repair)
    if query.kind == "name":
        formula = f", for which {query.latex} stands" if query.latex else ""
        warn(f"read as the name {query.name!r}{formula}; `--as words` searches for the words only")
    elif query.kind == "mixed":
        warn(f"read as the words {query.words!r} and the formula {query.latex}")
    elif query.kind in ("ascii", "unicode"):
        warn(f"read as {query.latex}")


def _suggest_fields(asked: list[str], engine: SearchEngine) -> None:
    """Name the existing subject areas if one that was asked for does not exist."""
    fields = engine.count_facets()[0] if asked else {}
    for name in asked:
        if name not in fields:
            near = get_close_matches(name.casefold(), fields, 3) or list(fields)[:_MAX_SUGGESTED_FIELDS]
            others = " and others" if len(near) < len(fields) else ""
            warn(f"no paper has the subject area {name!r}" + (f"; there are {', '.join(near)}{others}" if near else ""))


def _parse_years(text: str) -> tuple[int | None, int | None]:
    match = _YEAR_RANGE.fullmatch(text.replace(" ", "").replace("–", "-"))
    if match is None:
        raise typer.BadParameter(f"--year {text!r}: write 1995, 1990-2005, 1990- or -2005")
    first, dash, last = match.groups()
    begin = int(first) if first else None
    return begin, int(last) if last else None if dash else begin


def _read_formula(query: str) -> str:
    """Return the query, or the content of the file it names."""
    from eqkin.search.query import FORMULA_FILES, read_formula_file

    if len(query) < 1_000 and _FILE_NAME.fullmatch(query) and Path(query).suffix.lower() in FORMULA_FILES:
        return read_formula_file(Path(query).expanduser())
    return query


def _iter_topics(named: bool) -> Iterator[tuple[str, str]]:
    """Yield the queries of standard input, each with its number; `named`: an id and a tab may come before a query."""
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.decode("utf-8", "replace").strip()
        name, tab, query = line.partition("\t")
        if named and tab and len(name.split()) == 1:
            yield name, query.strip()
        elif line:
            yield str(number), line


def show(
    searched: SearchedCollection,
    equation: EquationId,
    as_json: AsJson = False,
) -> None:
    """Show one equation: its formula, LaTeX, name, number, paper, the text around it, and how many are of its form.

    **Example**

        eqkin show atlas:probability#bayes
    """
    from eqkin.cli.output import format_context, format_formula, format_place, format_same_form

    with searched.open_engine() as engine:
        record = engine.get_equation(equation)
        name = engine.get_name(record)
        kin = engine.find_similar(equation, k=1, facets=True) if record.tree >= 0 else None
    same = kin.same if kin is not None else None

    def render() -> None:
        typer.secho(format_formula(record), bold=True)
        typer.echo(strip_control_chars(" ".join(record.latex.split())))
        typer.secho(format_place(record, name), dim=True)
        typer.echo(strip_control_chars(find_address(record)))
        if text := format_context(record, chars=400):
            typer.echo(text)
        if kin is not None and same is not None:
            others = format_same_form(kin, "other equation")
            typer.echo(strip_control_chars(f"{others}; `eqkin search --like {record.id}` finds related ones"))

    emit({"equation": record, "name": name, "address": find_address(record), "same": same}, as_json, render)


def open_equation(
    searched: SearchedCollection,
    equation: EquationId,
    only_print: Annotated[bool, typer.Option("--print", help="Print the address instead of opening it.")] = False,
) -> None:
    """Open the paper of an equation where it comes from: at arXiv, by its DOI, or its file.

    **Example**

        eqkin open 'arxiv:1706.03762#0'
    """
    with searched.open_engine() as engine:
        record = engine.get_equation(equation)
    address = find_address(record)
    if only_print:
        typer.echo(address)
    elif not address.startswith(("http://", "https://")) and not Path(address).exists():
        raise BadInput(f"{record.paper.key} comes from {address}, which cannot be opened")
    elif typer.launch(address):
        raise BadInput(f"no program opens {address}; --print prints it")


def find_address(equation: EquationRecord) -> str:
    """Return the address of an equation's paper: on the web if it is known, else where it was read from."""
    from eqkin.search.exports import find_url

    return find_url(equation.paper) or equation.paper.origin


def similar_papers(
    searched: SearchedCollection,
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PATH|KEY",
            help="A paper of the library, by its key or the id of an equation, or anything `eqkin add` can read.",
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of papers.")] = 10,
    latex: Latex = False,
    as_json: AsJson = False,
) -> None:
    """Find papers related by their mathematics to a paper of the library or to a draft, which is not added.

    Each equation searches for related ones; an equation that resembles hundreds of others counts little. The pairs of
    equations that relate two papers most are shown.

    **Examples**

        eqkin similar-papers draft.tex

        eqkin similar-papers arxiv:1706.03762 -k 5 --json
    """
    with searched.open_engine() as engine:
        key = next((key for key in (paper, paper.rpartition("#")[0]) if key and engine.has_paper(key)), "")
        if not key and not Path(paper).exists() and not paper.startswith(("arxiv:", "python:")):
            raise BadInput(f"{paper}: neither the key of a paper of the library, nor the id of an equation, nor a file")
        hits = engine.find_similar_papers(key, k) if key else engine.find_papers_similar_to_draft(paper, k)

    def render() -> None:
        from eqkin.cli.output import iter_paper_lines

        for line in iter_paper_lines(hits, latex=latex):
            typer.echo(line)

    emit(hits, as_json, render)
    if not hits:
        raise typer.Exit(1)


def rank(
    topics: Annotated[
        Path, typer.Option(metavar="FILE", help="Queries: id, tab, LaTeX on each line.", show_default=False)
    ],
    formulas: Annotated[
        Path, typer.Option(metavar="FILE", help="The formulas to rank, in the same form.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.", show_default=False)],
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the network.", show_default="the bundled one")
    ] = None,
) -> None:
    """Rank all formulas of a collection for each topic, as a TREC run: topic Q0 formula rank score tag.

    An unreadable formula is reported on standard error and ranked last (score -1).

    **Example**

        eqkin rank --topics topics.tsv --formulas formulas.tsv --out run.txt
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.files import write_stream
    from eqkin.search.query import FormulaReader
    from eqkin.search.trec import encode_formulas, iter_run_lines, read_table

    tables = read_table(topics), read_table(formulas)
    encoder = Encoder.load(model)
    reader = FormulaReader()
    queries = encode_formulas(tables[0], encoder, reader, wildcards=True)
    ranked = encode_formulas(tables[1], encoder, reader)
    for path, encoded in ((topics, queries), (formulas, ranked)):
        for name, problem in encoded.problems.items():
            typer.secho(strip_control_chars(f"eqkin: {path}, {name}: {problem}", lines=True), err=True)
    write_stream(out, (line.encode() for line in iter_run_lines(queries, ranked, "eqkin")))
    typer.echo(f"{len(queries.names):,} topics, {len(ranked.names):,} formulas ranked for each: {out}", err=True)
