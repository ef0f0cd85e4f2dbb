import re

import pytest

from eqkin.sources.markdown import read_markdown
from tests.sources.builders import squeezed


def read(text):
    return read_markdown(text.encode("utf-8", "surrogatepass"), "k", "o")


@pytest.mark.parametrize(
    "text",
    [
        "$$a=b$$",
        "$$\na=b\n$$ {#eq-x}",
        r"\[a=b\]",
        r"\\[a=b\\]",
        "```math\na=b\n```",
        "~~~ math\na=b\n~~~",
        "> $$\n> a=b\n> $$",
        "- item\n\n  ```math\n  a=b\n  ```",
        "$$\na=b\n\n$$",
        "$$a=b (\\#eq:label)$$",
    ],
)
def test_every_spelling_of_display_math_becomes_one_equation(text):
    assert r"\[a=b\]" in squeezed(read(text).text)


@pytest.mark.parametrize(
    "text", ["\\begin{align}a&=b\\\\[2mm]c&=d\\end{align}", "$$\\begin{align}a&=b\\\\[2mm]c&=d\\end{align}$$"]
)
def test_environments_are_kept_and_not_wrapped_twice(text):
    assert squeezed(read(text).text) == "\\begin{align}a&=b\\\\[2mm]c&=d\\end{align}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "```{=latex}\n\\begin{gather}a\\end{gather}\n```\n```python\nx = '$$no$$'\n```",
            r"\begin{gather}a\end{gather}",
        ),
        ("`$no$` ``$$no``\n", ""),
        ("a\n```\n$$x$$\n", "a"),
        ("a<!-- $$x$$ -->b", "ab"),
    ],
)
def test_code_and_comments_are_dropped_but_raw_latex_is_kept(text, kept):
    assert squeezed(read(text).text) == kept


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("$x$", "$x$"),
        (r"\(x\)", "$x$"),
        (r"\\(x\\)", "$x$"),
        ("$`x`$", "$x$"),
        ("costs $5 and $10 or $a$", r"costs \$5 and \$10 or $a$"),
        ("a $ b $ c", r"a \$ b \$ c"),
        (r"\$5", r"\$5"),
        ("50% of $x$", r"50\% of $x$"),
        ("[words](http://x/$y$)", "words"),
        ("![alt $x$](a.png)", ""),
    ],
)
def test_inline_math_is_distinguished_from_money(text, latex):
    assert read(text).text == latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("# A", r"\section{A}"),
        ("## A ##", r"\subsection{A}"),
        ("### A {#sec-a .b}", r"\subsubsection{A}"),
        ("A\n===", r"\section{A}"),
        ("A\n---", r"\subsection{A}"),
        ("# On $x^2$ at 5%", r"\section{On$x^2$at5\%}"),
        ("# Stray } brace", r"\section{Stray\}brace}"),
    ],
)
def test_headings_become_sections(text, latex):
    assert squeezed(read(text).text) == latex


@pytest.mark.parametrize(
    ("header", "authors"),
    [
        ("author: Jane Doe", ["Jane Doe"]),
        ("author: [A, 'B']", ["A", "B"]),
        ("author:\n  - A\n  - B", ["A", "B"]),
        ("author:\n- name: A\n  orcid: 1\n- name: B", ["A", "B"]),
        ("authors: A and B", ["A", "B"]),
        ("format: html", []),
    ],
)
def test_front_matter_gives_title_authors_and_year(header, authors):
    paper = read(f'---\ntitle: "On: x"\n{header}\ndate: 3 May 2021\nlang: de\n---\n# Other\ntext')
    assert (paper.title, paper.authors, paper.year, paper.lang) == ("On: x", authors, 2021, "de")
    assert "title" not in paper.text


def test_title_is_the_folded_one_of_the_header_or_the_first_heading():
    assert read("---\ntitle: >\n  One\n  two\n---\nx").title == "One two"
    assert read("text\n\n# A\n# B").title == "A"


def test_marks_within_a_heading_are_characters_and_do_not_recurse():
    assert squeezed(read("# # $x$ and 1").text) == r"\section{#$x$and1}"
    assert r"$x$" in read("# " * 5_000 + "$x$").text


def test_bracket_across_a_blank_line_is_not_math():
    assert r"\[" + "\na\n" in read("\\[a\\] b\n\n\\[c\n \nd\\]").text
    assert "c\n \nd" in read("\\[a\\] b\n\n\\[c\n \nd\\]").text


def test_directives_roles_and_labels_of_myst_are_math():
    text = read_markdown(
        b"```{math}\n:label: energy\n:nowrap:\n\nE = mc^2\n```\n{math}`a^2`\n\n"
        b":::{math}\nx = y\n:::\n\n$$ c = d $$ (last)\n\n$$\\begin{align} p \\end{align}$$ (own)\n",
        "k", "o",
    ).text  # fmt: skip
    displays = ["".join(part.split()) for part in re.findall(r"\\\[(.*?)\\\]", text, re.DOTALL)]
    assert displays == [r"E=mc^2\label{energy}", "x=y", r"c=d\label{last}"]
    assert "$a^2$" in text and r"\begin{align} p \end{align}" in text


def test_links_of_obsidian_become_their_words():
    paper = read_markdown(b"# [[Energy]] of [[spins|the Ising model]]\n\n![[picture.png]]\n\n$$E$$\n", "k", "o")
    assert paper.title == "Energy of the Ising model"
    assert "picture" not in paper.text and "[" not in paper.text.replace(r"\[", "")
