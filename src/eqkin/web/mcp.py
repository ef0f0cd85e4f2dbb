"""A library as tools for assistants, by the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from eqkin.api import Library
from eqkin.errors import BadInput
from eqkin.library.queries import compute_statistics
from eqkin.search.results import EquationRecord, Filters, PaperRecord, SearchOptions
from eqkin.version import __version__
from eqkin.web.keys import PublicEngine
from eqkin.web.service import to_web_error

INSTRUCTIONS = (
    "Search a library of papers by formula. Write formulas in LaTeX; a query may also be words or the name of a law. "
    "Every hit says how it is related: same, renamed, rewritten (another notation), contains, part of, similar, weak. "
    "Cite a hit by the title of its paper and its link."
)
Count = Annotated[int, Field(ge=1, le=50, description="How many to return.")]


def create_server(library: Library) -> Any:
    """Create the server of a library; raises `BadInput` without the package mcp."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise BadInput("the server for assistants needs the package mcp: pip install 'eqkin[mcp]'") from error
    server = MCPServer("eqkin", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    engine = PublicEngine(library.open_engine())

    @contextmanager
    def telling_errors() -> Iterator[None]:
        """Turn any exception into an error that the assistant sees, without paths of this machine."""
        try:
            yield
        except Exception as error:
            raise ToolError(to_web_error(error).detail) from error

    @server.tool()
    def search_equations(
        query: Annotated[str, Field(description=r"A formula such as \sum_{i<j} J_{ij} s_i s_j, words, or a name.")],
        field: Annotated[str, Field(description="Only papers of this field.")] = "",
        first_year: Annotated[int | None, Field(description="Only papers from this year on.")] = None,
        last_year: Annotated[int | None, Field(description="Only papers up to this year.")] = None,
        k: Count = 10,
    ) -> list[dict[str, Any]]:
        """Find equations related to a formula, to words or to a name, best first."""
        filters = Filters(fields=(field,) if field else (), first_year=first_year, last_year=last_year)
        with telling_errors():
            hits = engine.search(query, SearchOptions(k=k, filters=filters)).hits
        described = [
            _describe_equation(hit.equation) | {"relation": hit.relation, "score": round(hit.score, 3)} for hit in hits
        ]
        return [{key: value for key, value in each.items() if value not in ("", None, [])} for each in described]

    @server.tool()
    def get_equation(
        id: Annotated[str, Field(description="The id of an equation, as a search returns it.")],
    ) -> dict[str, Any]:
        """Return an equation with the text around it and its paper."""
        with telling_errors():
            found = engine.get_equation(id)
        return _describe_equation(found) | {"mathml": found.mathml}

    @server.tool()
    def find_related_papers(
        draft: Annotated[str, Field(description="LaTeX or Markdown of a draft, or the key of a paper of the library.")],
        k: Count = 10,
    ) -> list[dict[str, Any]]:
        """Find papers related to a draft by their mathematics, with the pairs of equations that show it."""
        with telling_errors():
            if engine.has_paper(draft):
                found = engine.find_similar_papers(draft, k)
            else:
                name = "draft.tex" if "\\[" in draft or "\\begin" in draft else "draft.md"
                found = engine.find_papers_similar_to_draft(draft.encode("utf-8", "replace"), name, k)
        return [
            {
                **_describe_paper(hit.paper),
                "score": round(hit.score, 3),
                "pairs": [[ours.latex, theirs.latex] for ours, theirs, _ in hit.pairs[:3]],
            }
            for hit in found
        ]

    @server.tool()
    def describe_library() -> dict[str, Any]:
        """Return what the library holds: numbers of papers and equations, and fields."""
        # tools run in threads of their own
        with Library.open(library.folder) as opened:
            numbers = compute_statistics(opened)
        return {key: numbers[key] for key in ("papers", "equations", "fields")}

    return server


def _describe_equation(equation: EquationRecord) -> dict[str, Any]:
    return {
        "id": equation.id,
        "latex": equation.latex,
        "section": equation.section,
        "before": equation.before,
        "after": equation.after,
        **_describe_paper(equation.paper),
    }


def _describe_paper(paper: PaperRecord) -> dict[str, Any]:
    return {"paper": paper.title, "key": paper.key, "authors": list(paper.authors), "year": paper.year}
