"""What a terminal and a page show of an explanation."""

import pytest

from eqkin.cli.output import print_results
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import to_mathml
from eqkin.search.pipeline import explain_hits
from eqkin.search.query import FormulaReader
from eqkin.search.results import EquationRecord, Hit, PaperRecord, Results
from eqkin.web.models import PageSearch
from eqkin.web.pages import create_environment, prepare_results
from eqkin.web.service import ServerSettings

PAPER = PaperRecord("paper", "A title", (), None, (), "")


@pytest.fixture(scope="module")
def results():
    reader = FormulaReader(1)

    def of(query, latex):
        asked, found = reader.read(query), reader.read(latex)
        hit = found.nodes
        why = explain_hits(asked.nodes, parse_operators(asked.forest), [hit], parse_operators(found.forest))[0]
        record = EquationRecord("paper#1", 1, latex, to_mathml(hit), "", "", "", "", PAPER)
        found = Hit(
            equation=record,
            score=1,
            similarity=1,
            text_score=0,
            pairings=why.pairings,
            marked=why.marked,
            renaming=why.renaming,
            bindings=why.bindings,
            relation=why.relation or "similar",
            changes=why.changes,
        )
        return Results(latex=query, mathml=asked.mathml, text="", hits=(found,))

    yield of


def render_page(results):
    template = create_environment(ServerSettings()).get_template("results.html")
    return " ".join(template.render(prepare_results(PageSearch(q="x"), results)).split())


def test_terminal_shows_largest_parts_once_and_renamed_letters(results, capsys):
    print_results(results(r"y = \frac{x_i^2}{2} - x_i^2", r"s = \frac{t_i^2}{2} - t_i^2"), latex=False, titled=False)
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()[3:]]
    assert len(shown) == 3
    assert shown[0].startswith("xᵢ²/2  ~  tᵢ²/2")
    assert shown[1].startswith("xᵢ²  ~  tᵢ²")
    assert shown[2] == "y reads as s, x reads as t"


def test_terminal_shows_what_wildcards_match(results, capsys):
    print_results(results(r"\int ?f d?x", r"F = \int \sqrt{s} ds"), latex=False, titled=False)
    assert capsys.readouterr().out.splitlines()[-1].strip() == "?f = √s, ?x = s"


def test_page_shows_renaming_and_what_wildcards_match(results):
    page = render_page(results("x^2 + y^2", "x^2 + <^2, t^2 + y^2"))
    assert "<li><i>x</i> is <i>t</i></li>" in page
    assert "<i>y</i> is" not in page
    page = render_page(results(r"\int ?f d?x", r"F = \int \sqrt{s} ds"))
    assert "<li><i>?f</i> is <math" in page


def test_output_says_that_no_formula_matches_the_pattern(results, capsys):
    missed = results("?a + ?a", "x + y")
    print_results(missed, latex=False, titled=False)
    assert "no formula of this form was found" in capsys.readouterr().err
    assert "No formula of this form was found" in render_page(missed)
    for other in (results("?a + ?a", "x + x"), results("a + a", "x + y")):
        print_results(other, latex=False, titled=False)
        assert not capsys.readouterr().err
        assert "No formula of this form" not in render_page(other)
