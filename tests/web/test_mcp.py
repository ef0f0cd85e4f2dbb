import os
import sys

import anyio
import pytest

from eqkin import Library


def ask(library, *calls):
    """Start the server as an assistant does, and return its tools and the answers to some calls."""
    mcp = pytest.importorskip("mcp", reason="the Model Context Protocol SDK is not installed: pip install 'eqkin[mcp]'")

    async def talk():
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        arguments = ["-m", "eqkin", "mcp", "--library", str(library)]
        server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=environment)
        async with mcp.Client(mcp.stdio_client(server)) as client:
            tools = await client.list_tools()
            return tools.tools, [await client.call_tool(name, values) for name, values in calls]

    return anyio.run(talk)


def test_an_assistant_finds_an_equation_its_context_and_related_papers(atlas_library):
    draft = r"We use \[ P(A|B) = \frac{P(B|A) P(A)}{P(B)} \] and \[ E = -\sum_{i<j} J_{ij} s_i s_j \]"
    tools, answers = ask(
        atlas_library,
        ("search_equations", {"query": r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}", "k": 3}),
        ("get_equation", {"id": "atlas:probability#bayes"}),
        ("find_related_papers", {"draft": draft, "k": 2}),
        ("describe_library", {}),
        ("search_equations", {"query": ""}),
        ("get_equation", {"id": "nowhere#1"}),
    )
    assert {tool.name for tool in tools} == {
        "search_equations",
        "get_equation",
        "find_related_papers",
        "describe_library",
    }
    assert all(tool.description for tool in tools)
    found, equation, papers, numbers, empty, unknown = answers
    hits = found.structured_content["result"]
    assert len(hits) == 3 and hits[0]["relation"] in ("same", "renamed", "rewritten") and hits[0]["paper"]
    assert r"\frac" in equation.structured_content["latex"] and equation.structured_content["mathml"]
    assert len(papers.structured_content["result"]) == 2 and papers.structured_content["result"][0]["pairs"]
    assert numbers.structured_content["papers"] > 5
    assert empty.is_error and unknown.is_error and "nowhere" in unknown.content[0].text


def test_an_assistant_sees_no_path_and_gets_an_answer_to_everything(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "note.md").write_text("# Note\n\n$$ E = mc^2 $$\n\n$$ a^2 + b^2 = c^2 $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "hidden")
        library.open_engine()
    _, answers = ask(
        tmp_path / "library",
        ("search_equations", {"query": "E = mc^2"}),
        ("find_related_papers", {"draft": "$$ E = mc^2 $$"}),
        ("find_related_papers", {"draft": "no formula"}),
        ("find_related_papers", {"draft": ""}),
        ("search_equations", {"query": "x", "k": 10_000}),
        ("search_equations", {"query": "{" * 5_000}),
        ("get_equation", {"id": "\0"}),
    )
    assert not answers[0].is_error and not answers[1].is_error
    assert all(answer.is_error for answer in answers[2:])
    assert all("hidden" not in str(answer) and "/tmp" not in str(answer) for answer in answers)
    key = answers[0].structured_content["result"][0]["id"]
    _, (again,) = ask(tmp_path / "library", ("get_equation", {"id": key}))
    assert again.structured_content["latex"].strip() == "E = mc^2"
