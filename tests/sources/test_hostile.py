"""What every reader of text promises for any input: a sound paper or an error of eqkin's, in linear time."""

import re
from functools import partial
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.sources.html import read_html
from eqkin.sources.markdown import read_markdown
from eqkin.sources.rest import read_module, read_rest
from tests.sources.builders import check_read_or_refused, repeat

READERS = {"html": read_html, "md": read_markdown, "rst": read_rest, "py": read_module}
MARKUP = {
    "html": "<math>¦</math>¦<math display='block'>¦<mi>¦</mi>¦<mspace/>¦<mrow a='1' a=2 b>¦</mrow>¦<p>¦</p>¦"
    "<table class='ltx_equation'>¦</table>¦<tr class=ltx_equation>¦</tr>¦<h1>¦</h1>¦<title>¦</title>¦<script>¦"
    "</script>¦<!--¦-->¦<![CDATA[¦]]>¦<annotation encoding='application/x-tex'>¦</annotation>¦<semantics>¦"
    "</semantics>¦<x:y z:w='1'>¦<a\"b>¦&lt;¦&¦<¦>¦\x0b¦\ud800",
    "md": "$¦$$¦```¦math¦\n¦\n\n¦\\[¦\\]¦\\begin{a}¦\\end{a}¦`¦# ¦---¦<!--¦-->¦> ¦{¦}¦(¦[x](y)¦===¦title: x¦:",
    "rst": ".. math::¦.. ¦   ¦\n¦\n\n¦:label: x¦:math:`¦`¦::¦====¦----¦\\\\¦&¦>>> ¦|x| ¦\\begin{¦\\end{¦\t",
    "py": "def a():\n¦ ¦\n¦'''¦\"\"\"¦:math:`¦$$¦\\¦(¦)¦class A:\n¦\f",
}
REPEATED = {
    "html": '<div>¦<a ¦<!-¦</p>¦<math>¦<mi>¦<a "¦<?¦<div></p>¦<math display=block><mi></x>¦</mrow>',
    "md": "$¦$$¦$a ¦`¦\\[¦\\(¦\\begin{a}¦<!--¦[a](¦a\n==\n¦```\n¦> $$¦# ¦#¦a `¦![a](¦---\n¦\\[ a a a ",
    "rst": ".. math::\n¦::\n¦a\n--\n¦:math:`¦.. x\n¦\n¦ a\n¦>>> a\n",
    "py": "(¦- ¦\n¦'''\n¦# ",
}
# What may stand before and after them.
FRAMES = {
    "html": ("¦<math display=block>" + "<mi>" * 400, ""),
    "md": ("", "¦\n\n\\]¦\n\n\\)¦$x$"),
    "rst": ("", ""),
    "py": ("", ""),
}


def read(kind, text):
    raw = text.encode("utf-8", "surrogatepass")
    paper = READERS[kind](raw, "k", "o.py")
    for equation in re.findall(r"\\begin\{eqkinmathml\}(.*?)\\end\{eqkinmathml\}", paper.text, re.DOTALL):
        assert ElementTree.fromstring(equation).tag.endswith("math")
    return paper


@given(st.text(max_size=300))
def test_arbitrary_text_gives_a_sound_paper_or_an_eqkin_error(text):
    for kind in READERS:
        check_read_or_refused(partial(read, kind, text), len(text))


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
def test_arbitrary_markup_gives_a_sound_paper_or_an_eqkin_error(kind, data):
    pieces = [*MARKUP[kind].split("¦"), "a", "$", "\\", "%", "\0"]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=40)))
    check_read_or_refused(partial(read, kind, text), len(text))


@pytest.mark.parametrize(
    ("kind", "piece"), [(kind, piece) for kind, pieces in REPEATED.items() for piece in pieces.split("¦")]
)
def test_long_repetitive_text_is_read(kind, piece):
    starts, ends = (part.split("¦") for part in FRAMES[kind])
    for start in starts:
        for end in ends:
            text = start + repeat(piece) + end
            check_read_or_refused(partial(read, kind, text), len(text))
