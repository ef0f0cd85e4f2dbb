"""How results look in a terminal and in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from eqkin.cli.unicode import unicode_of
from eqkin.mathml.tree import Node, parse_mathml, to_mathml
from eqkin.search.results import EquationRecord, Hit, PaperHit, PaperRecord, Results
from eqkin.web.exports import cell
from eqkin.web.result_view import of_no_form

_COLUMNS = (
    "rank", "score", "similarity", "words", "id", "latex", "section", "paper", "title", "authors", "year", "fields",
    "same", "more", "query",
)  # fmt: skip
_PARTS = 6  # of an explanation that are shown
_LEAST_RUN = 3  # members of a row, if all of them are single symbols
_ROWS = frozenset(("math", "mrow", "mstyle", "mpadded", "mtd", "msqrt"))  # tags whose members stand side by side
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # what can take over a terminal, or turn text round


def csv_lines(results: Results, *, header: bool) -> Iterator[str]:
    """Results as CSV; a cell that a spreadsheet would take for a formula of its own is escaped."""
    if header:
        yield _csv_line(_COLUMNS)
    for rank, hit in enumerate(results.hits, 1):
        equation, paper = hit.equation, hit.equation.paper
        yield _csv_line(
            (
                rank, f"{hit.score:.4f}", f"{hit.similarity:.4f}", f"{hit.words:.4f}", cell(equation.id),
                cell(equation.latex), cell(equation.section), cell(paper.key), cell(paper.title),
                cell("; ".join(paper.authors)), paper.year or "", cell("; ".join(paper.fields)),
                cell("; ".join(hit.same)), hit.more, cell(_asked(results)),
            )
        )  # fmt: skip


def _csv_line(cells: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def harmless(text: str) -> str:
    """Text of a paper for a terminal: what would steer the terminal is shown as a mark."""
    return _CONTROL.sub("\ufffd", text)


def _asked(results: Results) -> str:
    return " ".join(filter(None, (results.latex or unicode_of(results.mathml), results.text)))


def print_results(results: Results, *, latex: bool, titled: bool, filtered: bool = False) -> None:
    """Results as a readable list: score and formula, then paper and section."""
    console = Console(highlight=False, markup=False, emoji=False)
    if titled:
        asked = harmless(_asked(results))
        nothing = f"nothing found for {asked}" + (" with these filters" if filtered else "")
        console.print(f"\n{asked}" if results.hits else nothing, style="bold")
    if of_no_form(results):
        Console(stderr=True).print("no formula has this form; these come nearest", style="yellow")
    width = max(len(str(len(results.hits))), 2)
    for rank, hit in enumerate(results.hits, 1):
        indent = " " * (width + 8)
        formula = Text(f"{rank:>{width}}  {hit.score:.3f} ", style="cyan")
        formula.append(_formula(hit.equation, latex), style="default")
        console.print(formula, soft_wrap=True)
        console.print(f"{indent}{_where(hit)}", style="dim", soft_wrap=True)
        for line in _explanation(results, hit):
            console.print(f"{indent}{line}", style="green", soft_wrap=True)
    if results.missing:
        Console(stderr=True).print(
            f"{results.missing:,} equations have no vectors yet and were not searched; run `eqkin index`",
            style="yellow",
        )


def _formula(equation: EquationRecord, latex: bool) -> str:
    if not latex:
        shown = unicode_of(equation.mathml)
        if shown:
            return harmless(shown)
    return harmless(" ".join(equation.latex.split()))


def _where(hit: Hit) -> str:
    parts = [paper_name(hit.equation.paper), hit.equation.section, hit.equation.id]
    if hit.same:
        parts.append(f"the same in {len(hit.same)} more")
    if hit.more:
        parts.append(f"{hit.more} more of this paper")
    return harmless(" · ".join(part for part in parts if part))


def paper_name(paper: PaperRecord) -> str:
    """A paper in a few words: authors (year), title."""
    authors = ", ".join(paper.authors[:2]) + (" et al." if len(paper.authors) > 2 else "")
    year = f"({paper.year})" if paper.year is not None else ""
    name = " ".join(filter(None, (authors, year)))
    title = textwrap.shorten(paper.title, 80, placeholder=" ...")
    return ", ".join(filter(None, (name, title))) or paper.origin


def _explanation(results: Results, hit: Hit) -> Iterator[str]:
    """The largest parts of the hit that answer parts of the query, side by side; then letters with other names."""
    if not hit.pairings:
        return
    if hit.bindings:
        yield harmless(", ".join(f"{name} = {unicode_of(part)}" for name, part in hit.bindings))
        return
    ours, theirs = _nodes(results.mathml), _nodes(hit.equation.mathml)
    answers = {id(ours[pair.query_node]): (theirs[pair.hit_node], pair.similarity) for pair in hit.pairings}
    shown: dict[tuple[str, str], float] = {}
    for part in _parts(ours, theirs, {node: other for node, (other, _) in answers.items()}):
        others, similarities = zip(*(answers[id(node)] for node in part), strict=True)
        shown.setdefault((_row_text(part), _row_text(others)), sum(similarities) / len(similarities))
    for (mine_text, other_text), similarity in list(shown.items())[:_PARTS]:
        yield harmless(f"{mine_text}  ~  {other_text}  ({similarity:.2f})")
    if hit.renaming:
        yield harmless(", ".join(f"{name} reads as {other}" for name, other in hit.renaming))


def _parts(ours: list[Node], theirs: list[Node], answers: dict[int, Node]) -> Iterator[list[Node]]:
    """The largest parts of the query that the hit has too, none inside another: single nodes, or some side by side."""
    places = {id(child): (row, at) for row in theirs for at, child in enumerate(row.children)}
    inside: set[int] = set()
    for node in ours:
        if id(node) in inside:
            continue
        whole = node is not ours[0] and id(node) in answers and node.children and answers[id(node)].children
        for part in [[node]] if whole else _runs(node, places, answers) if node.tag in _ROWS else []:
            inside.update(id(below) for member in part for below in _below(member))
            yield part


def _runs(row: Node, places: dict[int, tuple[Node, int]], answers: dict[int, Node]) -> Iterator[list[Node]]:
    """Members of a row that stand side by side in the hit too; not all of both rows, which need no words."""
    runs: list[list[Node]] = []
    before: tuple[Node, int] | None = None
    for node in row.children:
        place = places.get(id(answers[id(node)])) if id(node) in answers else None
        if place and before and place[0] is before[0] and place[0].tag in _ROWS and place[1] == before[1] + 1:
            runs[-1].append(node)
        elif place:
            runs.append([node])
        before = place
    for run in runs:
        other, _ = places[id(answers[id(run[0])])]
        if len(run) < max(len(row.children), len(other.children)) and (
            len(run) >= _LEAST_RUN or (len(run) > 1 and any(node.children for node in run))
        ):
            yield run


def _row_text(nodes: Sequence[Node]) -> str:
    return unicode_of(to_mathml(Node("mrow", children=list(nodes))))


def _nodes(mathml: str) -> list[Node]:
    """A tree's nodes, breadth first."""
    return _below(parse_mathml(mathml))


def _below(root: Node) -> list[Node]:
    """A node and all nodes below it, breadth first."""
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return nodes


def paper_lines(hits: Iterable[PaperHit], *, latex: bool) -> Iterator[str]:
    """Related papers, each with the pairs of equations that say so."""
    for rank, hit in enumerate(hits, 1):
        yield harmless(f"{rank:>2}  {hit.score:.3f} {paper_name(hit.paper)} · {hit.paper.key}")
        for ours, theirs, cosine in hit.pairs:
            yield f"          {cosine:.3f}  {_formula(ours, latex)}"
            yield f"              ~  {_formula(theirs, latex)}"
