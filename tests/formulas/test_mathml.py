"""MathML: reading, writing, and agreement with KaTeX's own markup."""

from importlib import resources

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.mathml import Node, parse_mathml, to_forest, to_mathml, to_node
from eqkin.latex.environments import to_converter_input
from eqkin.latex.outline import parse

FORMULAS = [
    "x",
    "a+b=c",
    "12.5x",
    r"\frac{a}{b}+\sqrt[3]{x}",
    r"\sum_{i=1}^n i^2",
    r"\int_0^\infty e^{-x^2}\,dx",
    r"\begin{pmatrix}a&b\\c&d\end{pmatrix}",
    r"\left(\frac12\right)^{\!2}\quad\text{if } x>0",
    r"\begin{cases}1&x>0\\0&\text{else}\end{cases}",
    r"\hat{x}\overline{ab}\underbrace{x+y}_{n}",
    r"\mathbf{x}\mathcal{L}\mathbb{R}\mathrm{d}",
    r"\operatorname{tr} A \lim_{x\to0}f(x)",
    r"\begin{aligned}a&=b\\&=c\end{aligned}",
    r"x'''_{i,j}",
    r"a \mid b \iff c \neq d \not\in e",
    r"\binom{n}{k} {n \atop k}",
    r"\boxed{x}\cancel{y}\phantom{z}",
    r"\langle\psi|\phi\rangle \lVert x\rVert",
    r"\xrightarrow[a]{b} \overset{!}{=}",
    r"\big( \Bigr] \middle|",
    r"α + β ≤ ∞",
    r"\text{a < b \& \textbf{c}}",
    "",
]
ATLAS = sorted(entry.name for entry in resources.files("eqkin.atlas").iterdir() if entry.name.endswith(".tex"))


def as_bytes(forest):
    return forest.canonicalise().to_bytes()


# KaTeX's own markup, with the macros of the document that was opened last
RENDER = """((json) => JSON.stringify(JSON.parse(json).map((latex) => katex.renderToString(
    latex, { displayMode: true, output: "mathml", throwOnError: true, strict: "ignore", macros: {} }))))"""


def check_both_ways(engine, formulas, packages=None, macros=None):
    """Check that converted trees equal those parsed from KaTeX's markup with the same macros."""
    conversion = convert_formulas(engine, formulas, packages, macros)
    pages = engine._call(RENDER, formulas, 60)
    for formula, outcome, page in zip(formulas, conversion.outcomes, pages, strict=True):
        assert outcome.failure is None, formula
        math = page[page.index("<math") : page.index("</math>") + len("</math>")]
        assert to_node(conversion.forest, outcome.tree) == parse_mathml(math), formula
    return conversion


def test_converted_trees_equal_those_parsed_from_katex_markup(engine):
    check_both_ways(engine, [f for f in FORMULAS if f and r"\middle" not in f])


@pytest.mark.parametrize("article", ATLAS)
def test_atlas_equations_convert_undegraded_and_equal_katex_markup(engine, article):
    document = parse(resources.files("eqkin.atlas").joinpath(article).read_text("utf-8"))
    formulas = [to_converter_input(e.environment, e.body) for e in document.equations]
    assert len(formulas) > 10
    conversion = check_both_ways(engine, formulas, document.packages, document.macros[0])
    assert [o for o in conversion.outcomes if o.failure or o.unknown or o.repaired] == []


@pytest.mark.parametrize("formula", FORMULAS)
def test_tree_round_trips_through_mathml(engine, formula):
    conversion = convert_formulas(engine, [formula])
    forest = conversion.forest
    if conversion.outcomes[0].failure is None and len(forest.tags) > 1:
        root = to_node(forest, 0)
        assert parse_mathml(to_mathml(root)) == root
        assert as_bytes(to_forest(root)) == as_bytes(to_forest(parse_mathml(to_mathml(root, display=False))))


trees = st.recursive(
    st.builds(
        Node,
        st.sampled_from(["mi", "mo", "mn", "mtext"]),
        st.just({}),
        st.text("abc<&>\"'x ", max_size=4).map(lambda text: " ".join(text.split())),
    ),
    lambda children: st.builds(
        Node,
        st.sampled_from(["mrow", "mfrac", "msub", "mtable"]),
        st.dictionaries(st.sampled_from(["width", "mathvariant"]), st.sampled_from(["bold", "1em"]), max_size=2),
        st.just(""),
        st.lists(children, max_size=4),
    ),
    max_leaves=30,
)


@given(trees)
def test_any_tree_round_trips_through_forest_and_mathml(root):
    forest = to_forest(root)
    forest.validate()
    assert to_node(forest, 0) == root
    assert parse_mathml(to_mathml(root)) == root


def test_parse_mathml_drops_wrappers_and_annotations():
    markup = "<math><semantics><mrow><mi>x</mi></mrow><annotation>x</annotation></semantics></math>"
    assert parse_mathml(markup) == Node("mrow", children=[Node("mi", text="x")])
    assert parse_mathml("<math><mi>a</mi><mi>b</mi></math>").tag == "mrow"
    assert parse_mathml("<m:math xmlns:m='urn:x'><m:mi>a</m:mi></m:math>") == Node("mi", text="a")


def test_parse_mathml_knows_html_entities():
    assert parse_mathml("<math><mo>&InvisibleTimes;</mo></math>").text in ("\u2062", "")
    assert parse_mathml("<math><mi>&alpha;&amp;&lt;</mi></math>").text == "α&<"
    assert parse_mathml("<math><mi>&nosuchname;</mi></math>").text == "?"


BOMB = (
    "<!DOCTYPE m ["
    + "".join(f"<!ENTITY e{i + 1} '{f'&e{i};' * 10}'>" for i in range(10))
    + "]><math><mi>&e10;</mi></math>"
)


@pytest.mark.parametrize(
    "markup",
    [
        BOMB,
        "<!DOCTYPE m [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><math><mi>&x;</mi></math>",
        "<!DOCTYPE m SYSTEM 'http://example.org/x.dtd'><math><mi>x</mi></math>",
        "<!DOCTYPE m [<!ENTITY % p SYSTEM 'file:///etc/hostname'> %p;]><math><mi>x</mi></math>",
        "<math><mi>x</math>",
        "<math></math>",
        "",
        "x",
        "<math>\0</math>",
        "\ud800",
    ],
)
def test_parse_mathml_refuses_declarations_and_broken_text(markup):
    with pytest.raises(BadInput):
        parse_mathml(markup)


@pytest.mark.parametrize(
    "markup",
    [
        "<math>" + "<mrow>" * 100_000,
        "<math>" + "<mi>x</mi>" * 10_000 + "</math>",
        "<math><mi>" + "x" * 10_000 + "</mi></math>",
        "<math><annotation>" + "x" * 2_000_000 + "</annotation></math>",
    ],
)
def test_parse_mathml_limits_size_and_depth(markup):
    with pytest.raises(LimitReached):
        parse_mathml(markup)


def test_parse_mathml_ignores_deep_annotations():
    markup = "<math><mi>x</mi><annotation>" + "<a>" * 100_000 + "</a>" * 100_000 + "</annotation></math>"
    assert parse_mathml(markup) == Node("mi", text="x")


def test_to_mathml_writes_only_known_elements_and_attributes():
    markup = (
        "<math onload='a()'><mrow style='x' href='javascript:a()' mathcolor='red'><script>alert(1)</script>"
        "<mi mathvariant='url(x)' width='1em'>&lt;img&gt;</mi></mrow></math>"
    )
    shown = to_mathml(parse_mathml(markup))
    for word in ("script", "onload", "href", "style", "url(", "<img"):
        assert word not in shown
    assert "&lt;img&gt;" in shown
    hostile = Node("script", {"onclick": "x", "width": "'\"><b>"}, "</math><script>")
    assert to_mathml(hostile).count("<") == to_mathml(Node("mi", text="x")).count("<")


@settings(max_examples=80)
@given(
    st.lists(
        st.sampled_from(
            ["<mi>", "</mi>", "<math>", "</math>", "<mrow>", "</mrow>", "x", "&lt;", "&x;", "<", "<!--", "]]>"]
        ),
        max_size=25,
    )
)
@example(["<mi>", "<math>", "</math>", "</mi>"])
def test_parse_mathml_of_any_text_gives_a_tree_or_an_eqkin_error(pieces):
    try:
        tree = parse_mathml("<math>" + "".join(pieces) + "</math>")
    except EqkinError as error:
        assert len(str(error)) > 10
    else:
        to_forest(tree).validate()
        assert parse_mathml(to_mathml(tree)) == tree


@pytest.mark.parametrize(
    "formula", [r"a\,b", r"a\;b", r"{\,}x", r"x^{\,}", r"\frac{\,}{\!}", r"\text{a\,b}", r"a\ b~c", r"\quad\!\:"]
)
def test_small_spaces_mean_the_same_in_trees_and_markup(engine, formula):
    check_both_ways(engine, [formula])


def test_parse_mathml_drops_small_spaces_in_rows(engine):
    forest = convert_formulas(engine, [r"\int f\,dx", r"\int f dx"]).forest
    assert to_node(forest, 0) == to_node(forest, 1)
