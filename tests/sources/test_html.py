import re
from xml.etree import ElementTree

import pytest

from eqkin.errors import BadInput
from eqkin.sources.html import read_html
from tests.sources.builders import repeat, squeezed

LATEXML = """<!DOCTYPE html><html lang="en"><head><title>[1706.03762] Attention</title>
<base href="https://arxiv.org/html/1706.03762v2"/><style>p {}</style><script>var x = "<p>";</script></head><body>
<h1 class="ltx_title ltx_title_document">Attention at 5%</h1>
<span class="ltx_personname">Jane Doe</span><span class="ltx_personname">Bob</span>
<h2 class="ltx_title"><span class="ltx_tag">1 </span>Intro</h2>
<p>Let <math alttext="x_{1}" display="inline"><semantics><mi>x</mi></semantics></math> cost $5.</p>
<table class="ltx_equation ltx_eqn_table"><tbody><tr class="ltx_equation ltx_eqn_row"><td>
<math alttext="a=b" display="block"><mi>a</mi></math></td><td><span class="ltx_tag">(1)</span></td></tr></tbody></table>
<table class="ltx_equationgroup ltx_eqn_align">
<tbody id="E2"><tr class="ltx_equation ltx_eqn_row"><td><math alttext="c"><semantics><mi>c</mi>
<annotation encoding="application/x-tex">c</annotation></semantics></math></td>
<td><math alttext="=d"><mo>=</mo></math></td>
</tr></tbody>
<tbody id="E3"><tr class="ltx_equation ltx_eqn_row"><td><math alttext="e"><mi>e</mi></math></td></tr></tbody>
</table></body></html>"""


def read(text):
    return read_html(text.encode("utf-8", "surrogatepass"), "k", "o")


def equations(paper):
    return re.findall(r"\\begin\{eqkinmathml\}(.*?)\\end\{eqkinmathml\}", paper.text, re.DOTALL)


def test_arxiv_page_has_title_authors_and_identifier():
    paper = read(LATEXML)
    assert (paper.title, paper.authors, paper.lang) == (r"Attention at 5\%", ["Jane Doe", "Bob"], "en")
    assert (paper.group, paper.year, paper.kind) == ("arxiv:1706.03762", 2017, "html")


def test_each_equation_of_a_group_is_read_separately():
    first, second, third = map(ElementTree.fromstring, equations(read(LATEXML)))
    assert first.get("alttext") == "a=b"
    assert second.get("alttext") == "c =d"
    assert [element.tag for element in second.iter()] == ["math", "mrow", "mi", "mo"]
    assert third.get("alttext") == "e"


def test_prose_headings_and_inline_math_are_kept():
    text = read(LATEXML).text
    assert r"\section{Intro}" in text
    assert r"Let $x_{1}$ cost \$5." in text
    assert "var x" not in text and "p {}" not in text and "(1)" not in text


KATEX = (
    '<span class="katex-display"><span class="katex"><span class="katex-mathml"><math><semantics><mi>x</mi>'
    '<annotation encoding="application/x-tex">x</annotation></semantics></math></span>'
    '<span class="katex-html" aria-hidden="true"><span>x</span></span></span></span>'
)
MATHJAX = (
    '<mjx-container display="true"><mjx-math><mjx-mi>x</mjx-mi></mjx-math>'
    "<mjx-assistive-mml><math><mi>x</mi></math></mjx-assistive-mml></mjx-container>"
)
SCRIPTS = '<script type="math/tex; mode=display">d=e</script><script type="math/tex">f</script>'


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (KATEX.replace("katex-display", "other"), "$x$"),
        (MATHJAX, r"\begin{eqkinmathml}<math><mi>x</mi></math>\end{eqkinmathml}"),
        (r"<p>$$a=b$$ and \(c\) " + SCRIPTS, r"$$a=b$$and\(c\)\[d=e\]$f$"),
        ('<table class="ltx_equation"><tr><td>$$a=b$$</td><td>x</table>', "$$a=b$$x"),
        ("<p>&lol; &eacute; &#233;</p>", "&lol;éé"),
    ],
    ids=["katex", "mathjax", "unrendered", "latex in place of mathml", "unknown entities"],
)
def test_formulas_of_pages_are_read_once(page, text):
    assert squeezed(read(page).text) == text


def test_display_of_katex_keeps_its_latex():
    (equation,) = equations(read(KATEX))
    assert "application/x-tex" in equation


def test_references_become_a_bibliography():
    page = (
        '<p>Text<section class="ltx_bibliography"><h2>References</h2><ul><li class="ltx_bibitem">A. Author, '
        'arXiv:1706.03762</li><li class="ltx_bibitem">B. <a href="https://arxiv.org/abs/hep-th/9901001v2">Link</a></li></ul></section>'
    )
    paper = read(page)
    assert squeezed(paper.text) == "Text"
    (references,) = paper.bibliography
    assert references.count(r"\bibitem{}") == 2
    assert "arXiv:1706.03762" in references and "arXiv:hep-th/9901001" in references


@pytest.mark.parametrize("prefix", ["", "m:", "mml:"])
def test_display_mathml_is_kept(prefix):
    page = f'<p>x <{prefix}math display="block"><{prefix}mi>a</{prefix}mi><mo>&lt;</mo></{prefix}math> y'
    assert equations(read(page)) == ['<math display="block"><mi>a</mi><mo>&lt;</mo></math>']


@pytest.mark.parametrize(
    "prolog",
    [
        '<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]>',
        '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!doctype x [ <!entity % p SYSTEM "http://x/">]>',
    ],
    ids=["bomb", "external", "parameter"],
)
def test_pages_that_declare_entities_are_refused(prolog):
    with pytest.raises(BadInput, match="entities"):
        read(prolog + "<html><p>&lol2;&e;</p></html>")


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 100_000 + "after",
        "<math>" + "<mrow>" * 100_000 + "</math>after",
        "<b>" * 400 + "</i>" * 100_000 + "<div>" * 400,
    ],
)
def test_page_that_is_nested_too_deeply_is_refused(page):
    with pytest.raises(BadInput, match="nested"):
        read(page)


def test_equation_above_the_limit_is_left_out_with_a_note():
    paper = read(f'<p>a<math display="block"><mi>{"x" * 1_100_000}</mi></math>b')
    assert squeezed(paper.text) == "ab" and len(paper.notes) == 1


def test_end_mark_within_an_equation_cannot_break_out():
    evil = r"\end{eqkinmathml}\section{evil}"
    page = f'<math display="block" alttext="{evil}"><mtext>{evil}</mtext></math>'
    (equation,) = equations(read(page))
    assert ElementTree.fromstring(equation)[0].text == evil


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ('<meta charset="iso-8859-1"><p>é'.encode("latin-1"), "é"),
        ("<p>é".encode(), "é"),
        ('<meta charset="nonsense"><p>é'.encode(), "é"),
        ("<p>é".encode("latin-1"), "é"),
    ],
)
def test_encoding_is_the_declared_one_or_guessed(raw, word):
    assert word in read_html(raw, "k", "o").text


def test_unmatched_end_tags_are_ignored_at_any_depth():
    page = "<math display=block>" + "<mi>" * 400 + "x"
    assert equations(read(page + repeat("</x>"))) == equations(read(page))


@pytest.mark.parametrize("codec", ["punycode", "utf-7", "unicode_escape", "hex", "rot13"])
def test_unusual_declared_encoding_is_not_used(codec):
    paper = read_html(f"<meta charset={codec}><p>caf\\u0041 \u00e9+AGE-</p>".encode(), "k", "o")
    assert "\u00e9+AGE-" in paper.text and "u0041" in paper.text


@pytest.mark.parametrize(
    ("word", "codecs"),
    [
        ("\u00e9", "utf-8 UTF8 latin-1 iso-8859-1 cp1252"),
        ("\u0142", "ISO-8859-2"),
        ("\u0434", "windows-1251 koi8-r KOI8-U"),
        ("\u4e2d", "gb2312 gbk GB18030 Shift_JIS euc-jp Big5"),
        ("a", "us-ascii euc-kr"),
    ],
)
def test_declared_encoding_of_a_page_is_used(word, codecs):
    for codec in codecs.split():
        raw = f"<meta charset={codec}><p>{word}{word}".encode(codec)
        assert f"{word}{word}" in read_html(raw, "k", "o").text


def test_page_that_declares_utf_16_in_ascii_is_not_utf_16():
    assert "words" in read_html(b"<meta charset=utf-16><p>some words", "k", "o").text
    assert "words" in read_html("<meta charset=utf-16><p>some words".encode("utf-16"), "k", "o").text


@pytest.mark.parametrize("place", ["<p>{}</p>", '<p title="{}">x</p>', "<math display='block'><mi>{}</mi></math>"])
def test_character_reference_of_thousands_of_digits_is_text(place):
    paper = read(f"<p>before</p>{place.format('&#' + '9' * 5_000 + ';')}<p>after</p>")
    assert "before" in paper.text and "after" in paper.text
