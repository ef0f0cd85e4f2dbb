"""Search results for people, spreadsheets and evaluation tools."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import accumulate, count

import typer

from eqkin.cli.console import count_noun, warn
from eqkin.errors import strip_control_chars
from eqkin.formulas.mathml import list_nodes, parse_mathml, to_mathml
from eqkin.formulas.prose import format_prose, to_unicode
from eqkin.search.exports import describe_query, list_papers, to_bibtex, to_csv
from eqkin.search.results import BAND_TITLES, EquationRecord, Hit, PaperHit, PaperRecord, Results

_MAX_EXPLAINED_PARTS = 6
_MAX_SHOWN_FIELDS = 8
# Characters of prose on each side of an equation.
_PROSE_CHARS = 100


def format_results(results: Results, form: str, topic: str = "1", *, header: bool = True) -> str:
    """Format results as "csv", "trec" (a run) or "bibtex" (their papers).

    Args:
        results: What was found.
        form: The format.
        topic: Id of the query in a run.
        header: Whether CSV begins with the names of its columns.
    """
    if form == "bibtex":
        return to_bibtex(list_papers(results.hits))
    if form == "csv":
        return to_csv(results, header=header)
    names = [re.sub(r"\s", "%20", hit.equation.id) for hit in results.hits]
    # scores never rise along the list: tools sort by them
    scores = list(accumulate((hit.score for hit in reversed(results.hits)), max))[::-1]
    ranked = enumerate(zip(names, scores, strict=True), results.offset + 1)
    return "".join(f"{topic} Q0 {name} {rank} {score:.6f} eqkin\n" for rank, (name, score) in ranked)


def print_results(results: Results, *, latex: bool, titled: bool, prose: bool = False, weak: bool = False) -> None:
    """Print results in bands: formula, then name, paper and section.

    Args:
        results: What was found.
        latex: Show formulas in LaTeX rather than Unicode.
        titled: Print the query first.
        prose: Show the text around each equation.
        weak: Show weak hits rather than their number.
    """
    if titled:
        asked = strip_control_chars(describe_query(results))
        typer.secho(f"\n{asked}" if results.hits else f"nothing found for {asked}", bold=True)
    if results.lacks_form:
        warn("no formula of this form was found; these are the nearest")
    _print_counts(results)
    numbers = count(results.offset + 1)
    for relation, hits in results.bands:
        if relation == "weak":
            typer.secho(f"nothing {'close' if results.nothing_close else 'closer'} in this library", bold=True)
            if not weak:
                typer.echo(f"{count_noun(len(hits), 'weaker hit')}: --weak shows {'them' if len(hits) > 1 else 'it'}")
                continue
        elif relation:
            typer.secho(BAND_TITLES[relation], bold=True)
        for hit in hits:
            _print_hit(results, hit, next(numbers), latex=latex, prose=prose)
    if results.missing:
        warn(f"{results.missing:,} equations have no vectors yet and were not searched; run `eqkin index`")


def _print_counts(results: Results) -> None:
    """Print how many equations of the query's form each field has, if they were counted."""
    if results.same is not None:
        typer.echo(format_same_form(results, "equation", fields=_MAX_SHOWN_FIELDS))
    elif results.fields:
        fields = [f"{facet.value} {facet.pool:,}" for facet in results.fields[:_MAX_SHOWN_FIELDS] if facet.pool]
        typer.echo(strip_control_chars(f"among the best candidates: {', '.join(fields)}"))


def format_same_form(results: Results, noun: str, *, fields: int | None = None) -> str:
    """Format how many equations have the query's form, in the whole library and in its first `fields`."""
    counts = [f"{facet.value} {facet.same:,}" for facet in results.fields[:fields] if facet.same]
    listed = f": {', '.join(counts)}" if counts else ""
    return strip_control_chars(f"{count_noun(results.same or 0, noun)} of this form{listed}")


def _print_hit(results: Results, hit: Hit, number: int, *, latex: bool, prose: bool) -> None:
    equation = hit.equation
    indent = " " * 10
    typer.echo(typer.style(f"{number:>2}  {hit.score:.3f} ", fg="cyan") + format_formula(equation, latex))
    parts = [format_place(equation, hit.name)]
    parts += [f"the same in {len(hit.duplicates)} more"] if hit.duplicates else []
    parts += [f"{hit.hidden} more from this paper"] if hit.hidden else []
    typer.secho(indent + " · ".join(parts), dim=True)
    if prose and (text := format_context(equation, latex)):
        typer.echo(indent + text)
    for line in _iter_explanation(results, hit):
        typer.secho(indent + line, fg="green")


def format_formula(equation: EquationRecord, latex: bool = False) -> str:
    """Format an equation in one line of Unicode, or as LaTeX."""
    text = "" if latex else to_unicode(equation.mathml)
    return strip_control_chars(text or " ".join(equation.latex.split()))


def format_context(equation: EquationRecord, latex: bool = False, chars: int = _PROSE_CHARS) -> str:
    """Format an equation within the text around it, in one line."""
    before = " ".join(format_prose(equation.before).split())
    after = " ".join(format_prose(equation.after).split())
    if len(before) > chars:
        before = "…" + before[-chars:].partition(" ")[2]
    if len(after) > chars:
        after = after[:chars].rpartition(" ")[0] + "…"
    text = f"{before} [{format_formula(equation, latex)}] {after}".strip() if before or after else ""
    return strip_control_chars(text)


def format_place(equation: EquationRecord, name: str | None = None) -> str:
    """Format where an equation is: its name and number, paper, section and id."""
    number = f"({equation.printed})" if equation.printed else ""
    label = " ".join(filter(None, (name, number)))
    parts = (label, format_paper_name(equation.paper), format_prose(equation.section), equation.id)
    return strip_control_chars(" · ".join(filter(None, parts)))


def format_paper_name(paper: PaperRecord) -> str:
    """Format a paper in short: authors (year), title."""
    authors = ", ".join(paper.authors[:2]) + (" et al." if len(paper.authors) > 2 else "")
    year = f"({paper.year})" if paper.year is not None else ""
    name = " ".join(filter(None, (authors, year)))
    title = textwrap.shorten(format_prose(paper.title), 80, placeholder=" ...")
    return ", ".join(filter(None, (name, title))) or paper.origin


def _iter_explanation(results: Results, hit: Hit) -> Iterator[str]:
    """Yield the largest matching parts of query and hit, then the letters that have other names in the hit."""
    if not hit.pairings:
        return
    if hit.bindings:
        yield strip_control_chars(", ".join(f"{name} = {to_unicode(part)}" for name, part in hit.bindings))
        return
    for mine, other, similarity in list(_iter_matching_parts(results, hit))[:_MAX_EXPLAINED_PARTS]:
        yield strip_control_chars(f"{mine}  ~  {other}  ({similarity:.2f})")
    if hit.renaming:
        yield strip_control_chars(", ".join(f"{name} reads as {other}" for name, other in hit.renaming))
    if hit.changes:
        yield ", ".join(hit.changes)


def _iter_matching_parts(results: Results, hit: Hit) -> Iterator[tuple[str, str, float]]:
    """Yield the largest parts of the query that the hit has too, none inside another, each pair of texts once."""
    ours = list_nodes(parse_mathml(results.mathml))
    theirs = list_nodes(parse_mathml(hit.equation.mathml))
    pairings = {pair.query_node: pair for pair in hit.pairings}
    covered: set[int] = set()
    shown: set[tuple[str, str]] = set()
    # the first node is the whole formula, which explains nothing
    for number, node in enumerate(ours[1:], 1):
        pair = pairings.get(number)
        if pair is None or not node.children or id(node) in covered:
            continue
        covered.update(id(below) for below in list_nodes(node))
        texts = to_unicode(to_mathml(node)), to_unicode(to_mathml(theirs[pair.hit_node]))
        if texts not in shown:
            shown.add(texts)
            yield *texts, pair.similarity


def iter_paper_lines(hits: Iterable[PaperHit], *, latex: bool) -> Iterator[str]:
    """Yield related papers, each with the pairs of equations that relate them."""
    for rank, hit in enumerate(hits, 1):
        yield strip_control_chars(f"{rank:>2}  {hit.score:.3f} {format_paper_name(hit.paper)} · {hit.paper.key}")
        for ours, theirs, cosine in hit.pairs:
            yield f"          {cosine:.3f}  {format_formula(ours, latex)}"
            yield f"              ~  {format_formula(theirs, latex)}"
