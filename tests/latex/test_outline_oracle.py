"""Display environments compared with those that tree-sitter's LaTeX grammar finds."""

from importlib import resources

import pytest

from eqkin.latex.outline import _END_PATTERNS, parse

pack = pytest.importorskip("tree_sitter_language_pack")

TEXTS = [
    r"A \begin{equation}a=b\end{equation} B \begin{align*}c&=d\\e&=f\end{align*} \[g\] C $$h$$ D $i$ \(j\).",
    r"\section{X} \begin{theorem} If \begin{gather}a\\b\end{gather} then \begin{proof}\[c\]\end{proof} \end{theorem}",
    "\\begin{itemize}\\item $x$ \\item \\begin{multline}a\\\\b\\end{multline}\\end{itemize} % \\[no\\]\n\\[yes\\]",
    r"\begin{equation}\begin{split}a&=\begin{cases}1\\2\end{cases}\end{split}\end{equation}\begin{eqnarray}x&=&y\end{eqnarray}",
]
ATLAS = [entry for entry in resources.files("eqkin.atlas").iterdir() if entry.name.endswith(".tex")]


def displays(text):
    """List the outermost displays that the grammar finds: (kind, text without white space)."""
    found = []
    stack = [pack.get_parser("latex").parse(text.encode()).root_node]
    while stack:
        node = stack.pop()
        kind = None
        if node.type == "displayed_equation":
            kind = "DISPLAY"
        elif node.type in ("math_environment", "generic_environment"):
            name = node.child_by_field_name("begin").child_by_field_name("name").text.decode().strip("{} ")
            kind = name if name in _END_PATTERNS else None
        if kind:
            found.append((kind, node.text.decode()))
        else:
            stack.extend(reversed(node.children))
    return found


def check(text):
    ours = parse(text).equations
    theirs = displays(text)
    assert [e.environment for e in ours] == [kind for kind, _ in theirs]
    for equation, (_, source) in zip(ours, theirs, strict=True):
        core = max(equation.body.split("\n"), key=len).split("  ")[0].strip()
        assert core in source


@pytest.mark.parametrize("text", TEXTS)
def test_parse_equals_slow_reference_on_small_texts(text):
    check(text)


@pytest.mark.parametrize("article", ATLAS, ids=lambda entry: entry.name)
def test_parse_equals_slow_reference_on_the_atlas(article):
    check(article.read_text("utf-8"))
