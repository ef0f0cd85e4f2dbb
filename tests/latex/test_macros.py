"""Macro definitions: reading, scope, and errors."""

import pytest

from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import FormulaEngine
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.latex.environments import to_converter_input
from eqkin.latex.macros import Macro, MacroTables, find_definitions, pack_macros
from eqkin.latex.outline import parse


@pytest.fixture(scope="module")
def converter():
    return FormulaEngine()


def shown(converter, formula, packages=None, macros=None):
    conversion = convert_formulas(converter, [formula], packages, macros)
    outcome = conversion.outcomes[0]
    assert outcome.failure is None, outcome.failure
    assert not outcome.unknown
    return to_mathml(to_node(conversion.forest, outcome.tree))


def trees(converter, text, **options):
    """Return the MathML of every equation of a document, converted with the macros that hold there."""
    document = parse(text, **options)
    return [
        shown(converter, to_converter_input(e.environment, e.body), document.packages, document.macros[e.epoch])
        for e in document.equations
    ]


DEFINITIONS = [
    (r"\newcommand{\R}{\mathbb{R}}", r"\R^n", r"\mathbb{R}^n"),
    (r"\newcommand\R{\mathbb{R}}", r"\R^n", r"\mathbb{R}^n"),
    (r"\newcommand*{\R}[1]{\mathbb{R}^{#1}}", r"\R n", r"\mathbb{R}^{n}"),
    (r"\renewcommand{\phi}{\varphi}", r"\phi", r"\varphi"),
    (r"\providecommand{\unheardof}{\varphi}", r"\unheardof", r"\varphi"),
    (r"\providecommand{\alpha}{\varphi}", r"\alpha", r"\alpha"),
    (r"\newcommand{\p}[2][t]{\partial_{#1}#2}", r"\p{u}+\p[x]{u}", r"\partial_{t}u+\partial_{x}u"),
    (r"\newcommandx{\p}[3][1=a, 3=c]{#1#2#3}", r"\p{b} \p[x]{y}[z]", r"abc xyz"),
    (r"\def\half{{1\over2}}", r"\half x", r"{1\over2}x"),
    (r"\gdef\pair#1#2{(#1,#2)}", r"\pair ab", r"(a,b)"),
    (r"\def\pair(#1,#2){\langle#1|#2\rangle}", r"\pair(a,b)", r"\langle a|b\rangle"),
    (r"\def\til#1.{\tilde{#1}}", r"\til x. y", r"\tilde{x} y"),
    (r"\let\eps\varepsilon", r"\eps", r"\varepsilon"),
    (r"\let\eps=\varepsilon", r"\eps", r"\varepsilon"),
    (
        r"\let\oldphi\phi \renewcommand{\phi}{\varphi}",
        r"\oldphi\phi",
        r"\phi\varphi",
    ),
    (r"\let\oldvec\vec \renewcommand{\vec}[1]{\oldvec{\mathbf{#1}}}", r"\vec{x}", r"\vec{\mathbf{x}}"),
    (r"\renewcommand{\vec}[1]{\vec{\mathbf{#1}}}", r"\vec{x}", r"\vec{\mathbf{x}}"),
    (r"\newcommand{\a}{A}\let\b\a\renewcommand{\a}{C}", r"\a\b", "CA"),
    (r"\newcommand{\a}{A}\renewcommand{\a}{C}\let\b\a", r"\a\b", "CC"),
    (r"\DeclareMathOperator{\Tr}{Tr}", r"\Tr A", r"\operatorname{Tr}A"),
    (r"\DeclareMathOperator*{\argmin}{arg\,min}", r"\argmin_x f", r"\operatorname*{arg\,min}_x f"),
    (r"\DeclarePairedDelimiter{\norm}{\lVert}{\rVert}", r"\norm{x}", r"\left\lVert x\right\rVert"),
    (r"\DeclarePairedDelimiter\abs||", r"\abs*{x}+\abs[\big]{x}", r"\left|x\right|+\left|x\right|"),
    (r"\DeclarePairedDelimiterX{\ip}[2]{\langle}{\rangle}{#1,#2}", r"\ip{x}{y}", r"\left\langle x,y\right\rangle"),
    (
        r"\NewDocumentCommand{\D}{s O{t} m}{\partial_{#2}\IfBooleanTF{#1}{!}{}#3}",
        r"\D u\D*[x]u",
        r"\partial_{t}u\partial_{x}!u",
    ),
    (r"\DeclareMathAlphabet{\mathcal}{OMS}{cmsy}{m}{n}", r"\mathcal{N}", r"\mathcal{N}"),
    (r"\expandafter\def\csname foo\endcsname{x}", r"\foo", "x"),
    (r"\renewcommand{\not}{\neg}\renewcommand{\mathrel}{?}", r"a\neq b", r"a\neq b"),
]


@pytest.mark.parametrize(("definition", "use", "meaning"), DEFINITIONS)
def test_macro_definitions_of_documents_and_local_styles_are_expanded(converter, definition, use, meaning):
    expected = [shown(converter, meaning)]
    assert trees(converter, rf"{definition}\begin{{document}}$${use}$$\end{{document}}") == expected
    assert trees(converter, f"$${use}$$", styles=[definition]) == expected


def test_redefinition_in_the_body_holds_from_there_on(converter):
    text = r"""\newcommand{\x}{a}\begin{document}$$\x$$ \renewcommand{\x}{b} $$\x$$ $$\x$$
    \def\x{c} \def\y{d} $$\x\y$$\end{document}"""
    assert trees(converter, text) == [shown(converter, m) for m in ("a", "b", "b", "cd")]
    assert [e.epoch for e in parse(text).equations] == [0, 1, 1, 2]


def test_macro_tables_are_made_where_a_meaning_changes_up_to_a_limit():
    assert len(parse(r"$$\x$$\def\x{a}$$\x$$\def\x{a}$$\x$$").macros) == 1
    # A macro first defined in the body also holds before.
    assert parse(r"$$\x$$\def\x{a}").macros[0][r"\x"].body == "a"
    document = parse("".join(rf"\def\x{{{i}}}$$\x$$" for i in range(1000)))
    assert len(document.macros) <= 200 and len(document.equations) == 1000


def test_bad_macro_costs_only_the_equations_that_use_it(converter):
    for definitions in (r"\newcommand{\bad}{\left( \frac}", r"\newcommand \newcommand{\worse \def\def \let"):
        document = parse(definitions + r"\begin{document}$$a=b$$ $$\bad$$\end{document}")
        formulas = [equation.body for equation in document.equations]
        conversion = convert_formulas(converter, formulas, document.packages, document.macros[0])
        assert conversion.outcomes[0].failure is None


STRUCTURAL = [
    r"\def\be{\begin{equation}}\def\ee{\end{equation}}" + "|" + r"\be a=b \ee",
    r"\newcommand{\be}{\begin{equation}}\newcommand{\ee}{\end{equation}}" + "|" + r"\be a=b\ee",
    r"\newcommand{\beq}[1]{\begin{equation}\label{#1}}\def\eeq{\end{equation}}" + "|" + r"\beq{x} a=b \eeq",
    r"\def\bea{\begin{eqnarray}}\def\eea{\end{eqnarray}}" + "|" + r"\bea a&=&b \eea",
    r"\let\bea\eqnarray \let\eea\endeqnarray " + "|" + r"\bea a&=&b \eea",
    r"\def\bean{\begin{eqnarray*}}\let\b\bean\def\e{\end{eqnarray*}}" + "|" + r"\b a&=&b \e",
    r"\newenvironment{eq}{\begin{equation}}{\end{equation}}" + "|" + r"\begin{eq}a=b\end{eq}",
    r"\newenvironment{eq}[1][]{\begin{align}#1}{\end{align}}" + "|" + r"\begin{eq}a&=b\end{eq}",
    r"\newcommand{\eqn}[1]{\begin{equation}#1\end{equation}}" + "|" + r"\eqn{a=b}",
    r"\def\[{\begin{equation}}" + "|" + r"$$a=b$$",
    "|" + r"\equation a=b\endequation",
    "|" + r"\begin{equation*}a=b\\\end{equation*}",
]


@pytest.mark.parametrize("case", STRUCTURAL)
def test_macros_may_open_and_close_displays(converter, case):
    definition, use = case.split("|")
    assert trees(converter, rf"{definition}\begin{{document}}{use}\end{{document}}") == [shown(converter, "a=b")]


def test_macros_may_open_inner_environments(converter):
    text = r"\def\ba{\begin{array}}\def\ea{\end{array}}\begin{document}\[\ba{cc}a&b\ea\]\end{document}"
    assert trees(converter, text) == [shown(converter, r"\begin{array}{cc}a&b\end{array}")]


def test_macro_changes_follow_expanded_text(converter):
    text = r"""\def\be{\begin{equation}}\def\ee{\end{equation}}
    \begin{document}\be\x\ee \def\x{1} \be\x\ee \def\x{2} \be\x\ee\end{document}"""
    assert trees(converter, text) == [shown(converter, n) for n in "112"]


@pytest.mark.parametrize("count", ["²", "9" * 5_000, "٣", "-1", "1_0"])
@pytest.mark.parametrize("form", [r"\newcommand{\a}[%s][x]{y}", r"\DeclarePairedDelimiterX{\a}[%s]{(}{)}{#1}"])
def test_number_of_arguments_that_is_no_number_costs_the_definition_only(form, count):
    found = find_definitions(form % count + r"\newcommand{\b}{c}")
    assert r"\b" in [definition.value.name for definition in found]


@pytest.mark.parametrize(
    "later", [{}, {r"\b": Macro(r"\b", (), "y"), r"\d": Macro(r"\d", (), "z")}], ids=["one", "two"]
)
def test_stored_macros_are_found_by_name_as_first_defined(later):
    first = {r"\a": Macro(r"\a", (("m",), ("o", '"}{')), r'{"name":"\c",#1}'), r"\b": Macro(r"\b", (), "", alias=r"\c")}
    tables = MacroTables(pack_macros([first, {**first, **later}] if later else [first], [0]))
    wanted = {**later, **first}
    assert {name: tables.find(name) for name in wanted} == wanted
    assert tables.find(r"\c") is None and MacroTables(b"").find(r"\a") is None
