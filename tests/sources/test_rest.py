import pytest

from eqkin.sources.rest import read_rest
from tests.sources.builders import squeezed


def read(text):
    return read_rest(text.encode("utf-8", "surrogatepass"), "k", "o")


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        (".. math:: a=b", r"\[a=b\]"),
        (".. math:: a=b\n   :label: x", r"\[a=b\label{x}\]"),
        (".. math::\n\n   a=b", r"\[a=b\]"),
        (".. math::\n   :label: x\n\n   a=b\n\n   c", r"\[a=b\label{x}\]\[c\]"),
        (".. math::\n   a\n   =b\n   :label: x", r"\[a=b\label{x}\]"),
        (".. math::\n\n   a=b\n\n   c=d", r"\[a=b\]\[c=d\]"),
        (".. math:: a=b\n\n   c=d", r"\[a=b\]\[c=d\]"),
        (".. math::\n\n   a&=b\\\\\n   c&=d", r"\[\begin{aligned}a&=b\\c&=d\end{aligned}\]"),
        (".. math::\n\n   \\begin{matrix}a&b\\end{matrix}", r"\[\begin{matrix}a&b\end{matrix}\]"),
        (".. math::\n   :nowrap:\n\n   \\begin{align}\n   a&=b\n   \\end{align}", r"\begin{align}a&=b\end{align}"),
        (".. math::\n\n   \\begin{align}\n   a&=b\n   \\end{align}", r"\begin{align}a&=b\end{align}"),
        (".. note:: see\n   :class: x\n\n   .. math:: a=b", r"see\[a=b\]"),
        ("- item\n\n  .. math:: a=b\n\n- next", r"-item\[a=b\]-next"),
    ],
)
def test_math_directives_become_equations(text, latex):
    assert squeezed(read(text).text) == latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        (":math:`a_{b}`", "$a_{b}$"),
        (":math:`a\n b`", "$a b$"),
        ("at 50% and $5", r"at 50\% and \$5"),
        ("see :func:`~x.y` or :ref:`here <z>`", "see x.y or here"),
        ("`words <http://x>`_", "words_"),
        ("``$x$``", ""),
    ],
)
def test_roles_become_inline_math_or_words(text, latex):
    assert read(text).text.strip().removesuffix("_") == latex.removesuffix("_")


@pytest.mark.parametrize(
    "text",
    [
        ".. code-block:: python\n\n   $no$",
        "::\n\n   $no$",
        ".. a comment $no$\n   $no$",
        ">>> no\nno",
        ".. _target:",
        ".. image:: no.png\n   :alt: no",
    ],
)
def test_code_and_comments_are_dropped(text):
    assert squeezed(read(text + "\n\nrest").text).strip(":") == "rest"


def test_headings_are_ranked_by_first_appearance():
    text = "====\nTop\n====\n\nA\n-\n\nOne\n---\n\ntext\n\nDeep\n~~~~\n\nTwo\n---\n"
    expected = r"\section{Top}A-\subsection{One}text\subsubsection{Deep}\subsection{Two}"
    assert squeezed(read(text).text) == expected
    assert read(text).title == "Top"
