"""Result lists in other programs' formats."""

import csv
import io
import re

import pytest

from eqkin.search.exports import export_results
from eqkin.search.results import EquationRecord, Hit, PaperRecord, Results

QUERY = {"q": r"\Xi_{evil} = 1", "k": 20}


def entries(text: str) -> dict[str, dict[str, str]]:
    """A strict reader of BibTeX: braces are counted as BibTeX does, behind a backslash too."""
    found: dict[str, dict[str, str]] = {}
    at = 0
    while match := re.compile(r"\s*@(\w+)\{([^,\s{}]+),\s*").match(text, at):
        at, fields = match.end(), {}
        while match_field := re.compile(r"(\w+) = \{").match(text, at):
            start, depth, at = match_field.end(), 1, match_field.end()
            while depth:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
            fields[match_field[1]] = text[start : at - 1]
            comma = re.compile(r",\s*").match(text, at)
            assert comma, text[at : at + 40]
            at = comma.end()
        assert text[at] == "}", text[at : at + 40]
        at += 1
        assert match[2] not in found
        found[match[2]] = fields
    assert not text[at:].strip(), text[at:]
    return found


def results(*papers: PaperRecord) -> Results:
    hits = [
        Hit(
            equation=EquationRecord(f"{paper.key}#0", i, "-x", "<math/>", "@label", "=section", "", "", paper),
            score=0.5,
            similarity=0.5,
            text_score=0.0,
        )
        for i, paper in enumerate(papers)
    ]
    return Results(latex="x", mathml="", text="", hits=tuple(hits))


ODD = PaperRecord(
    "a b{c}", "50% {of \\ it & $x_1^2$ ~\n@misc{evil,", ("A and B", "Q }", "#1"), 2001, ("f\r\nER  - ",), "/tmp/ü"
)


@pytest.mark.parametrize("form", ["bibtex", "ris", "csv", "json"])
def test_export_returns_a_file(client, form):
    answer = client.get("/export", params={**QUERY, "format": form})
    assert answer.status_code == 200
    disposition = answer.headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="eqkin-results\.\w+"', disposition)
    assert answer.content


def test_bibtex_escapes_any_title(client):
    text = client.get("/export", params={**QUERY, "format": "bibtex"}).text
    assert any("script" in fields["title"] for fields in entries(text).values())
    written, _, _ = export_results(results(ODD, ODD.__class__("A b-c", "T", (), None, (), "")), "bibtex")
    read = entries(written.decode())
    assert len(read) == 2
    first = next(iter(read.values()))
    assert first["author"].split(" and ", 1)[0] != "A"
    assert first["year"] == "2001"


def test_bibtex_keeps_formulas_of_titles():
    titles = (r"On \(\frac{x_1}{y}\) & more", r"\(}\) \({\) \(a$b\)")
    papers = [PaperRecord(f"k{i}", title, (), None, (), "") for i, title in enumerate(titles)]
    first, second = entries(export_results(results(*papers), "bibtex")[0].decode()).values()
    assert first["title"] == r"{On $\frac{x_1}{y}$ \& more}"
    assert second["title"].count("{") == second["title"].count("}")


def test_ris_has_one_line_per_field():
    lines = export_results(results(ODD), "ris")[0].decode().split("\r\n")
    assert lines[0] == "TY  - GEN"
    assert lines[-2] == "ER  - "
    assert all(re.match(r"[A-Z][A-Z0-9]  - ", line) for line in lines if line)
    assert sum(line.startswith("ER") for line in lines) == 1


def test_csv_cells_are_not_spreadsheet_formulas(client):
    text = client.get("/export", params={**QUERY, "format": "csv"}).text
    rows = list(csv.reader(io.StringIO(text))) + list(
        csv.reader(io.StringIO(export_results(results(ODD), "csv")[0].decode()))
    )
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith("'=cmd()") for cell in cells)
    risky = [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert all(re.fullmatch(r"-\d+\.\d+", cell) for cell in risky)  # a negative number is no formula
    assert len({len(row) for row in rows}) == 1


def test_requests_cannot_inject_headers(client):
    answer = client.get("/export?q=x&format=csv%0d%0aX-Evil:%201")
    assert answer.status_code == 400
    assert "x-evil" not in answer.headers
