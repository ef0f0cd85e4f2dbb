"""Names of laws: of the atlas, in texts, and in searches."""

import os
from pathlib import Path

import pytest

from eqkin import Library, atlas
from eqkin.atlas import load_names, read_formula
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.index.update import update_index
from eqkin.latex.names import find_names, normalise_name
from eqkin.latex.prose import EQUATION_MARK
from eqkin.search import SearchEngine
from eqkin.search.names import NAMED_FORMS, find_atlas_name, list_completions, name_forms
from eqkin.search.query import FormulaReader


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Bayes' theorem", "Bayes' theorem"),
        ("bayes theorem", "Bayes' theorem"),
        ("bays theorem", "Bayes' theorem"),
        ("Schrodinger equation", "Schrödinger equation"),
        ("shrodinger equation", "Schrödinger equation"),
        ("the law of total probability", "law of total probability"),
        ("Navier Stokes", "Navier-Stokes equations"),
        ("Noether theorem conserved current", "Noether's theorem"),
        ("entropy", "entropy"),
        ("euler equation", ""),
        ("nothing that has a name", ""),
        ("", ""),
    ],
)
def test_find_atlas_name_forgives_spelling(text, name):
    assert find_atlas_name(text)[0] == name


def test_every_named_equation_of_the_atlas_exists(reader):
    names = load_names()
    assert len(names) > 1_000
    for member in list(names)[::40]:
        assert reader.read(read_formula(member)).forest is not None


def test_completions_begin_with_the_text():
    names = [completion.name for completion in list_completions("bay", [("Bayes filter", 3)], 5)]
    assert names[0] == "Bayes filter" and "Bayes' theorem" in names and len(names) == 5
    assert list_completions("", [], 5) == []


@pytest.mark.parametrize(
    ("heading", "latex", "found"),
    [
        ("", r"\begin{theorem}[Bayes' theorem] We have ￼ \end{theorem}", [(0, "Bayes' theorem", "theorem")]),
        ("", "This gives ￼ which is known as the Nernst equation.", [(0, "Nernst equation", "called")]),
        ("", "Jensen's inequality states that ￼", [(0, "Jensen's inequality", "called")]),
        ("", "Hence we obtain the heat equation ￼ as said.", [(0, "heat equation", "before")]),
        ("", "Hence we obtain the heat equation ￼ ￼", [(0, "heat equation", "before")]),
        ("", r"The \emph{relaxation function} is defined as ￼", [(0, "relaxation function", "emphasised")]),
        ("Fick's second law", "Fluxes change: ￼", [(0, "Fick's second law", "heading")]),
        ("", "First ￼. This gives ￼ which is known as the Nernst equation.", [(1, "Nernst equation", "called")]),
        ("", "We obtain the following equation ￼ as said.", []),
        ("", "By the chain rule ￼", []),
        ("", r"\begin{theorem}[Smith, 1999] We have ￼ \end{theorem}", []),
        ("Results", "One has ￼ and ￼ This is it.", []),
    ],
)
def test_find_names_in_the_text_around_equations(heading, latex, found):
    assert list(find_names(heading, latex.replace("￼", EQUATION_MARK))) == found


def test_normalised_names_ignore_case_accents_and_possessives():
    assert normalise_name("Bayes’ Theorem") == normalise_name("the bayes theorem")
    assert normalise_name("Schrödinger's equations") == normalise_name("Schrodinger equation")
    assert normalise_name("Gauss's law") == normalise_name("gauss law")


def test_formula_is_named_by_its_form(forest):
    formulas = forest(r"p(y|x) = \frac{p(x|y) p(y)}{p(x)}", r"e^{ix} = \cos x + i \sin x", "a = b + c")
    assert name_forms(parse_operators(formulas)) == ["Bayes' theorem", "Euler's formula", None]


def test_bundled_forms_are_those_of_the_parser():
    """After a change of the parser that is meant, `EQKIN_RECORD=1 pytest tests/search/test_names.py` stores them."""
    formulas = FormulaReader(1)
    forests = [formulas.read(read_formula(member), wildcards=False).forest for member in load_names()]
    computed = parse_operators(Forest.concatenate(forests)).formula_forms[:, NAMED_FORMS].astype("<u4").tobytes()
    if os.environ.get("EQKIN_RECORD"):
        (Path(atlas.__file__).parent / "forms.bin").write_bytes(computed)
    assert atlas.load_forms() == computed


def test_search_by_name_finds_the_named_equation_first(engine):
    results = engine.search("Bayes' theorem", k=5)
    assert results.query.kind == "name" and results.query.name == "Bayes' theorem"
    assert results.hits[0].equation.label == "bayes" and results.hits[0].relation == "named"
    assert results.hits[0].name == "Bayes' theorem"
    assert engine.search("Bayes' theorem", reading="words").query.kind == "words"


def test_named_equation_is_found_among_many_sections_with_the_words(tmp_path, encoder, monkeypatch):
    named = "# Ions\n\nIt is long. This gives\n\n$$ E = Q $$\n\nwhich is known as the Quokka equation.\n"
    (tmp_path / "named.md").write_text(named)
    (tmp_path / "others.md").write_text("# A quokka and an equation\n\nEquation, quokka, equation.\n\n$$ a < b $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "named.md", tmp_path / "others.md")
        update_index(library, encoder)
    with SearchEngine(tmp_path / "library", encoder) as engine:
        monkeypatch.setattr("eqkin.search.local.MAX_SECTIONS", 1)
        results = engine.search("quokka equations")
    assert results.query.name == "Quokka equation"
    assert [(hit.equation.latex.strip(), hit.relation) for hit in results.hits] == [("E = Q", "named"), ("a < b", "")]


def test_search_reads_what_is_typed(engine):
    typed = engine.search("P(A|B) = P(B|A)P(A)/P(B)", k=3)
    assert typed.hits[0].equation.label == "bayes" and typed.hits[0].relation == "same"
    mixed = engine.search("Ising model -J sum_(i,j) s_i s_j", k=5)
    assert mixed.query.kind == "mixed" and mixed.text == "Ising model"
    words = engine.search("drum membranes of a quokka", k=5)
    assert words.query.kind == "words" and words.hits[0].equation.section == "Membranes"
    formula = engine.search("E = m", text="energy")
    assert formula.query.kind == "latex" and formula.text == "energy"


def test_engine_completes_names_of_the_library_first(engine):
    completions = engine.complete("law of")
    assert completions[0].count > 0 and all("law of" in completion.name for completion in completions)
