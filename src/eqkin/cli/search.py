"""`eqkin search`, `eqkin similar-papers`, `eqkin rank`: search a library, and rank formulas of any collection."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.cli.console import emit, warn
from eqkin.cli.options import AsJson, Collection, Latex, LibraryFolder, Milvus, Model, open_engine
from eqkin.cli.search_output import iter_csv_lines, iter_paper_lines, print_results
from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.search.results import Filters, Results

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine

_MAX_SUGGESTED_FIELDS = 12  # shown if none is similar to the one asked for
_FILE_NAME = re.compile(r"[^\\${}^\n]+\.[A-Za-z]+")
_YEAR_RANGE = re.compile(r"(\d{1,4})?(-)?(\d{1,4})?")


def search(
    context: typer.Context,
    library: LibraryFolder,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[LATEX]",
            help="LaTeX or MathML, or a file of it (.tex, .txt, .mml, .xml); `-` reads one query per line.",
            show_default=False,
        ),
    ] = "",
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of hits.")] = 10,
    text: Annotated[
        str, typer.Option("--text", "-t", metavar="WORDS", help="Words to find in the text around the equation.")
    ] = "",
    field: Annotated[list[str] | None, typer.Option(help="Subject area; repeatable, one must match.")] = None,
    year: Annotated[
        str, typer.Option(metavar="YEARS", help="Years of publication: 1995, 1990-2005, 1990- or -2005.")
    ] = "",
    author: Annotated[
        list[str] | None, typer.Option(help="Part of an author's name; repeatable, all must match.")
    ] = None,
    paper: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Search only this paper; repeatable.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show which parts of a hit match the query.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show duplicates, and any number of hits per paper.")] = False,
    latex: Latex = False,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
    as_json: AsJson = False,
) -> None:
    r"""Find equations related to a formula, and the papers that contain them.

    Finds the same formula in other letters or another notation, and larger formulas that contain it. Every hit says how
    it is related to the query: same, rewritten (another notation), renamed, contains it, part of it, similar, or weak.

    A wildcard, `?x` (one letter) or `\qvar{name}`, matches a whole operand; the same wildcard always matches the same,
    `?` alone may match something else each time.

    A query may also be words alone. In a query of a formula and words, the formula counts for three quarters. With `-`,
    an unreadable line is reported on standard error and skipped; JSON is one line per query. A formula that begins with
    a minus must come last, after `--`.

    Exit codes: 0 found, 1 nothing found, 2 wrong usage, 3 unreadable query or no index yet (`eqkin index`), 4 limit
    reached, 5 damaged library.

    **Examples**

        eqkin search 'P(s|d) = \frac{P(d|s) P(s)}{P(d)}'

        eqkin search '\sum_{i<j} J_{ij} s_i s_j' --text 'neural network' --year 1980-1995 --explain

        eqkin search '\frac{?a}{?a + ?b}'

        eqkin search --text 'harmonic oscillator' --csv > hits.csv

        eqkin search - --json < formulas.txt

        eqkin search 'E = mc^2' --milvus http://localhost:19530

        eqkin search -k 5 -- '-\frac{\partial H}{\partial q}'
    """
    if as_csv and as_json:
        raise typer.BadParameter("choose one of --csv and --json")
    if not query.strip() and not text.strip():
        raise typer.BadParameter("give a formula, --text WORDS, or both")
    first, last = _parse_years(year)
    filters = Filters(tuple(field or ()), first, last, tuple(author or ()), tuple(paper or ()))
    is_batch = query == "-"
    found, hits, missing, problems = 0, 0, 0, list[EqkinError]()

    def show(results: Results) -> None:
        if as_csv:
            for line in iter_csv_lines(results, header=found == 1):
                typer.echo(line, nl=False)
        else:
            titled = is_batch or not results.hits
            print_results(results, latex=latex, titled=titled, filtered=filters != Filters())

    with open_engine(context, library, milvus, collection, model) as engine:
        for line in _iter_stdin_lines() if is_batch else [_read_formula(query)]:
            try:
                results = engine.search(
                    line, k=k, text=text, filters=filters, group=not every, fold=not every, explain=explain
                )
            except (BadInput, LimitReached) as error:
                if not is_batch:
                    raise
                problems.append(error)
                typer.secho(f"eqkin: {line[:200]!r}: {error}", err=True, fg="red")
                continue
            found, hits, missing = found + 1, hits + len(results.hits), results.missing
            emit(results, as_json, lambda results=results: show(results))  # type: ignore[misc]
        if not hits:
            _suggest_fields(field or [], engine)
        if found and not missing and not getattr(engine.backend, "complete", True):
            warn("the structure of some equations is not indexed yet, so less is found; run `eqkin index`")
    if problems:
        raise typer.Exit(4 if all(isinstance(problem, LimitReached) for problem in problems) else 3)
    raise typer.Exit(0 if hits else 1)


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


def _iter_stdin_lines() -> Iterable[str]:
    for raw in sys.stdin.buffer:
        line = raw.decode("utf-8", "replace").strip()
        if line:
            yield line


def similar_papers(
    context: typer.Context,
    paper: Annotated[
        str, typer.Argument(metavar="PATH|KEY", help="A paper of the library, or anything `eqkin add` can read.")
    ],
    library: LibraryFolder,
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of papers.")] = 10,
    latex: Latex = False,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Find papers related by their mathematics to a paper of the library or to a draft, which is not added.

    Each equation searches for related ones; an equation that resembles hundreds of others counts little. The pairs of
    equations that relate two papers most are shown.

    Exit codes: 0 found, 1 nothing found, 2 wrong usage, 3 no such paper, or nothing in it can be read.

    **Examples**

        eqkin similar-papers draft.tex

        eqkin similar-papers arxiv:1706.03762 -k 5 --json
    """
    with open_engine(context, library, milvus, collection, model) as engine:
        find = engine.find_similar_papers if engine.has_paper(paper) else engine.find_papers_similar_to_draft
        hits = find(paper, k)

    def render() -> None:
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
    tag: Annotated[str, typer.Option(help="The run's name.")] = "eqkin",
) -> None:
    """Rank all formulas of a collection for each topic, as a TREC run: topic Q0 formula rank score tag.

    An unreadable formula is reported on standard error and ranked last (score -1).

    Exit codes: 0 written, 2 wrong usage, 3 unreadable file.

    **Example**

        eqkin rank --topics topics.tsv --formulas formulas.tsv --out run.txt
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.search.query import FormulaReader
    from eqkin.search.trec import encode_formulas, iter_run_lines, read_table
    from eqkin.storage import write_stream

    if len(tag.split()) != 1:
        raise typer.BadParameter("--tag must be one word")
    tables = read_table(topics), read_table(formulas)
    encoder, reader = Encoder.load(model), FormulaReader()
    try:
        queries = encode_formulas(tables[0], encoder, reader, wildcards=True)
        ranked = encode_formulas(tables[1], encoder, reader)
    finally:
        reader.close()
    for path, encoded in ((topics, queries), (formulas, ranked)):
        for name, problem in encoded.problems.items():
            typer.secho(f"eqkin: {path}, {name}: {problem}", err=True)
    write_stream(out, (line.encode() for line in iter_run_lines(queries, ranked, tag)))
    typer.echo(f"{len(queries.names):,} topics, {len(ranked.names):,} formulas ranked for each: {out}", err=True)
