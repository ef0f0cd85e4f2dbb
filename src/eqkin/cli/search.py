"""`eqkin search`, `eqkin similar-papers`, `eqkin rank`: asking a library, and ranking formulas of any collection."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from eqkin.cli.options import AsJson, Collection, LibraryFolder, Milvus, Model, guard_output, open_engine, uses_milvus
from eqkin.cli.search_output import iter_csv_lines, iter_paper_lines, print_results
from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.search.results import Filters, Results

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine

_JSON_OPTIONS = orjson.OPT_NON_STR_KEYS
_MAX_SUGGESTED_FIELDS = 12  # that are named where none is like the one asked for
_FILE_NAME = re.compile(r"[^\\${}^\n]+\.[A-Za-z]+")
_YEAR_RANGE = re.compile(r"(\d{1,4})?(-)?(\d{1,4})?")


def register(app: typer.Typer) -> None:
    """Put the commands into the app."""
    app.command()(search)
    app.command("similar-papers", no_args_is_help=True)(similar_papers)
    app.command()(rank)


def search(
    context: typer.Context,
    library: LibraryFolder,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[LATEX]",
            help="LaTeX or MathML, or a file of it (.tex, .txt, .mml, .xml); `-`: one query a line of standard input.",
            show_default=False,
        ),
    ] = "",
    k: Annotated[int, typer.Option("-k", min=1, help="Most hits.")] = 10,
    text: Annotated[str, typer.Option("--text", "-t", metavar="WORDS", help="Words around the equation.")] = "",
    field: Annotated[list[str] | None, typer.Option(help="Subject area; repeatable, one is enough.")] = None,
    year: Annotated[str, typer.Option(metavar="YEARS", help="1995, 1990-2005, 1990- or -2005.")] = "",
    author: Annotated[list[str] | None, typer.Option(help="Part of an author's name; repeatable, all needed.")] = None,
    paper: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Only in this paper; repeatable.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show which parts answer which of the query.")] = False,
    every: Annotated[bool, typer.Option("--all", help="No folding of same formulas, no limit a paper.")] = False,
    latex: Annotated[bool, typer.Option("--latex/--unicode", help="Formulas in LaTeX or in Unicode.")] = False,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
    as_json: AsJson = False,
) -> None:
    r"""Find the kin of a formula: related equations of a library, and the papers they stand in.

    A formula finds itself in other letters, formulas that share its structure or meaning, and wholes it is a part of. A
    wildcard, `?x` (one letter) or `\qvar{name}`, stands for any part, the same wildcard for the same part.

    Words alone are a query too. With formula and words, the formula counts three quarters. With `-`, an unreadable
    line is told on standard error and the others go on; JSON is then one line a query. A formula that begins with a
    minus stands last, after `--`.

    Exit codes: 0 found, 1 nothing found, 2 wrong usage, 3 a query that cannot be read or no vectors yet (`eqkin
    index`), 4 limit reached, 5 damaged library.

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
    asked = uses_milvus(context, milvus, model)
    first, last = _parse_years(year)
    filters = Filters(tuple(field or ()), first, last, tuple(author or ()), tuple(paper or ()))
    lines = _iter_stdin_lines() if query == "-" else [_read_formula(query)]
    with open_engine(library, milvus if asked else "", collection, model) as engine, guard_output():
        found, problems = _ResultPrinter(titled=query == "-", filtered=filters != Filters()), list[EqkinError]()
        for line in lines:
            try:
                results = engine.search(
                    line, k=k, text=text, filters=filters, group=not every, fold=not every, explain=explain
                )
            except (BadInput, LimitReached) as error:
                if query != "-":
                    raise
                problems.append(error)
                typer.secho(f"eqkin: {line[:200]!r}: {error}", err=True, fg="red")
                continue
            found.print(results, as_csv=as_csv, as_json=as_json, latex=latex)
        if not found.hits and field:
            _suggest_fields(field, engine)
        if found.queries and not found.missing and not getattr(engine.backend, "complete", True):
            note = "the structure of some equations was not taken in yet, so less is found; run `eqkin index`"
            typer.secho(note, err=True, fg="yellow")
    if problems:
        raise typer.Exit(4 if all(isinstance(problem, LimitReached) for problem in problems) else 3)
    if not found.hits:
        raise typer.Exit(1)


def _suggest_fields(asked: list[str], engine: SearchEngine) -> None:
    """Say which subject areas there are, if one that was asked for is not among them."""
    fields, _ = engine.count_facets()
    for name in asked:
        if name not in fields:
            near = get_close_matches(name.casefold(), fields, 3) or list(fields)[:_MAX_SUGGESTED_FIELDS]
            others = " and others" if len(near) < len(fields) else ""
            there = f"; there are {', '.join(near)}{others}" if near else ""
            typer.secho(f"eqkin: no paper is of the subject area {name!r}{there}", err=True, fg="yellow")


class _ResultPrinter:
    """Prints the results of one query after another."""

    def __init__(self, *, titled: bool, filtered: bool) -> None:
        self.hits = self.queries = self.missing = 0
        self._titled, self._filtered = titled, filtered

    def print(self, results: Results, *, as_csv: bool, as_json: bool, latex: bool) -> None:
        self.queries += 1
        self.hits += len(results.hits)
        self.missing = results.missing
        if as_json:
            typer.echo(orjson.dumps(results, option=_JSON_OPTIONS).decode())
        elif as_csv:
            for line in iter_csv_lines(results, header=self.queries == 1):
                typer.echo(line, nl=False)
        else:
            titled = self._titled or not results.hits
            print_results(results, latex=latex, titled=titled, filtered=self._filtered)


def _parse_years(text: str) -> tuple[int | None, int | None]:
    match = _YEAR_RANGE.fullmatch(text.replace(" ", "").replace("–", "-"))
    if match is None:
        raise typer.BadParameter(f"--year {text!r}: write 1995, 1990-2005, 1990- or -2005")
    first, dash, last = match.groups()
    begin = int(first) if first else None
    return begin, int(last) if last else None if dash else begin


def _read_formula(query: str) -> str:
    """The query, or what stands in the file it names."""
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
    k: Annotated[int, typer.Option("-k", min=1, help="Most papers.")] = 10,
    latex: Annotated[bool, typer.Option("--latex/--unicode", help="Formulas in LaTeX or in Unicode.")] = False,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Find papers related by their mathematics to a paper of the library or to a draft, which is not added.

    Every equation looks for its kin; one that looks like hundreds of others says little. The pairs of equations that
    say most are shown.

    Exit codes: 0 found, 1 nothing found, 2 wrong usage, 3 no such paper or nothing in it that can be read.

    **Examples**

        eqkin similar-papers draft.tex

        eqkin similar-papers arxiv:1706.03762 -k 5 --json
    """
    asked = uses_milvus(context, milvus, model)
    with open_engine(library, milvus if asked else "", collection, model) as engine, guard_output():
        hits = (
            engine.find_similar_papers(paper, k)
            if engine.has_paper(paper)
            else engine.find_papers_similar_to_draft(paper, k)
        )
        if as_json:
            typer.echo(orjson.dumps(hits).decode())
        else:
            for line in iter_paper_lines(hits, latex=latex):
                typer.echo(line)
    if not hits:
        raise typer.Exit(1)


def rank(
    topics: Annotated[Path, typer.Option(metavar="FILE", help="Queries: id, tab, LaTeX a line.", show_default=False)],
    formulas: Annotated[
        Path, typer.Option(metavar="FILE", help="What is ranked, in the same form.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write.", show_default=False)],
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model's folder.", show_default="the bundled one")
    ] = None,
    tag: Annotated[str, typer.Option(help="The run's name.")] = "eqkin",
) -> None:
    """Rank all formulas of a collection for each topic, as a TREC run: topic Q0 formula rank score tag.

    A formula that cannot be read is told on standard error and ranked last (score -1).

    Exit codes: 0 written, 2 wrong usage, 3 a file that cannot be read.

    **Example**

        eqkin rank --topics topics.tsv --formulas formulas.tsv --out run.txt
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.search.query import FormulaReader
    from eqkin.search.trec import encode_formulas, iter_run_lines, read_table
    from eqkin.storage import write_stream

    if len(tag.split()) != 1:
        raise typer.BadParameter("--tag has to be one word")
    tables = read_table(topics), read_table(formulas)
    encoder, reader = Encoder.load(model), FormulaReader()
    try:
        asked = encode_formulas(tables[0], encoder, reader, wildcards=True)
        ranked = encode_formulas(tables[1], encoder, reader)
    finally:
        reader.close()
    for path, read in ((topics, asked), (formulas, ranked)):
        for name, problem in read.problems.items():
            typer.secho(f"eqkin: {path}, {name}: {problem}", err=True)
    write_stream(out, (line.encode() for line in iter_run_lines(asked, ranked, tag)))
    typer.echo(f"{len(asked.names):,} topics, {len(ranked.names):,} formulas ranked for each: {out}", err=True)
