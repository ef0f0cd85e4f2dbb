"""Growth of time with the size of odd documents: no reader may be quadratic.

A shape is a piece that is repeated up to some size. It is read at one size and at four times that size. Reading is
linear if the processor time grows four times; a failure is a shape for which it grows much more.
"""

from __future__ import annotations

import json
import math
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from eqkin.errors import EqkinError
from eqkin.latex import parse
from eqkin.limits import LIMITS
from eqkin.sources.arxiv import ArxivClient
from eqkin.sources.paper import Paper
from eqkin.sources.project import read_project
from eqkin.sources.readers import DOCUMENT_READERS
from eqkin.sources.references import iter_reference_items

Row = tuple[str, int, int, str]  # what was tried, cases, failures, note
_SMALL, _FACTOR = 100_000, 4  # characters of the first document, and how much larger the second is
_MAX_GROWTH = 9.0  # linear is 4, quadratic 16
_NOTICED_SECONDS = 0.4  # faster readings are not judged
_MAX_SECONDS = 10.0  # after which a reading is given up
_LATEX = r"""
{ } [ ] $ \ % \[ \] \( $$ \[x\] $x=1$ $x<y+z$ \section{a} \section{ \section[ \section[{] \def\a \def\a{
\def\a{} \let\a \newcommand{\a#}{x} \newcommand{\a#}[2]{x}\[\a#{}\] \newcommand{\a}{ \newcommand{\a}[1]
\newenvironment{a}{ \verb| \verb1 \iffalse \iffalse\fi \if\fi \begin{verbatim} \begin{comment} \begin{a}
\begin{equation} \begin{equation}x\end{equation} \begin{align}a&=b\\ \begin{align}a&=b\\c&=d\end{align}
\begin{array} \begin{array}\begin{array}\end{array} \begin{cases} \usepackage[ \usepackage{a#} \cite[ \cite{a#}
\citep[ \bibitem{a#} \bibitem \label{a#} \[x\label{a#}\] \ref{a#} \tag{#} \input{a#} \input{ \import{a}{b}
\bibliography{a#} \documentclass[ \begin{document} \end{document} \title{ \title{a} \author{a} \author{a\and}
\date{1} \\ \\[ & &= a&b\\ \left( \begin \end \end{equation} \endinput #1 ## \expandafter\def\csname
\DeclarePairedDelimiter{\a} \NewDocumentCommand{\a}{ \DeclareMathOperator{\a#}{b} \x# \[\x#\] \"{ \c{ \'e ~ \,
\$ \footnote{ \be \be\ee x_ x^ ' '' a=b= \frac \text{ \mbox{$ \quad arxiv: arXiv:1706.03762 eprint @a{
@article{a#, doi: 10.1000/a# http:// - -- \begin{eqkinmathml}<math><mi>x</mi></math>\end{eqkinmathml}
\begin{eqkinmathml} <math> &amp; \begin{split}\end{split} \appendix
""".split()
_SPACED = [
    "a ",
    " ",
    "\n",
    "a\n",
    "\n\n",
    "%\n",
    "$a\n\n",
    "$ a $ ",
    "\t",
    "\\ ",
    "\u00e9",
    "\u221a",
    "x y = z, ",
    "A. B, ",
    "1. ",
]
_MARKDOWN = r"""
* ** _ __ ` `` ``` ~~~ > >> - # ## [ ]( [a]( [a]: ![ < <a <!-- $ $$ $a$ $$a$$ | |a|b| \( \[ \] ::: --- === + 1.
&amp; {% {{ {#a} ^[ [^1] [^1]: $`a`$ ```math :label: <div> </div> <script> \$ (@eq) *a _a **a
""".split()
_MARKDOWN += [
    "- a\n",
    " - ",
    "> a\n",
    "# a\n",
    "$$\na\n$$\n",
    "```\n",
    "| a |\n",
    "    a\n",
    "* a\n  ",
    "a  \n",
    "$$\n",
    "`a\n",
    "> - ",
]
_HTML = r"""
< <a <a> </a> <b '" <b " <p> <div> </div> <math> <math><mi>x</mi></math> <math><mrow> <math><mi></math> &lt;
&#60; &# & <!-- --> <![CDATA[ ]]> <script> <script>x</script> <style> <h1> <h1>a</h1> <h2>a <title>
<table><tr><td> <meta name=author content=a> <a href=a> <a b=c <a class='ltx_equation'> <span
class='katex-display'> <tr class='ltx_equation'><td> <!DOCTYPE <? </ <a/> $x$ \[x\] <section
class='ltx_bibliography'> <li class='ltx_bibitem'> <annotation encoding='application/x-tex'> <pre> <svg> " ' =
<a"'
""".split()
_REST = [
    *".. math:: :math:`a` `a` ` `` | * ** a:: .. _a: [1]_ |a| :: == -- +-+ \\ {".split(),
    ".. math::\n\n   x\n\n",
    ".. a::\n",
    "a\n=\n",
]
_REST += [
    "   a\n",
    ".. math::\n",
    ":a: b\n",
    "- a\n",
    "a\n a\n  a\n",
    ".. math::\n   :label: a#\n\n   x\n\n",
    "* a\n\n  b\n",
]
_LYX = [f"\\begin_{a}\n" for a in ("layout Section", "layout Standard", "inset Box", "inset Formula $x$", "inset Note")]
_LYX += [
    "\\end_layout\n",
    "\\end_inset\n",
    "a\n",
    "\\a\n",
    "\\begin_inset Box\n\\begin_layout Plain\na\n",
    "$x$\n",
    "%",
]
_PRETEXT = [
    "<p>a</p>",
    "<p><m>x</m></p>",
    "<me>x</me>",
    "<section><title>a</title></section>",
    "<md><mrow>x</mrow></md>",
    "&lt;",
    "<a/>",
]
_LATEX_HEADS = (
    *("", r"\def\be{\begin{equation}}\def\ee{\end{equation}}\begin{document}"),
    *(r"\begin{equation}", r"\bibitem{a} $", r"\title{"),
)
_HTML_HEADS = ("", "<math>", "<math display='block'><annotation encoding='application/x-tex'>", "<a b='")
_PYTHON = ('"""\n$$x$$\n"""\n', "def a#():\n '''.. math:: x'''\n", "(", "a=1\n", "class a:\n")
_PRETEXT_NESTED = ["p", "section", "author", "md", "mrow", "title", "m", "macros", "personname"]
_BIB = [
    "@article{a#, title={b}}\n",
    "@a{",
    "{",
    "}",
    '"',
    "@string{a#={b}}\n",
    "@article{a, ",
    "title={a},\n",
    "a and ",
    "#",
    "@comment{",
    "\\'",
]
_BIB += [
    "@article{a#, title={" + "{b}" * 20 + "}, author={A and B}}\n",
    "@article{a#, title = a # b # c }\n",
    "\n",
    "%",
]
_RIS = [
    "TY  - JOUR\nTI  - a\nER  - \n",
    "TY  - JOUR\n",
    "ER  - \n",
    "AU  - A, B\n",
    "a\n",
    "TI  - ",
    "  - ",
    "DO  - 10.1/a\n",
]
_CSL = ['{"title": "a", "id": "#"},', "[", '{"title": ', '"', '{"title": "a", "author": [{"family": "b"}]},', "1,"]


def _read_tex(raw: bytes) -> Paper:
    return read_project({"a.tex": raw, "a.bib": raw, "b.sty": raw}, key="", origin="", main="a.tex")


def _read_document(name: str, raw: bytes) -> Paper:
    return DOCUMENT_READERS[name](raw, "file:a", "a")


def _read_references(suffix: str, raw: bytes) -> Paper:
    with TemporaryDirectory() as folder:
        path = Path(folder, "a" + suffix)
        path.write_bytes(raw)
        client = replace(ArxivClient(), is_offline=True)
        return Paper("", "\n".join(item.origin for item in iter_reference_items(path, client, LIMITS)))


def _list_shapes() -> Iterator[tuple[str, Callable[[bytes], Paper], str, str, str]]:
    """Yield format, reader, what comes before the pieces, the piece and what comes after them."""
    documents = {name: partial(_read_document, name) for name in DOCUMENT_READERS}
    cells = [json.dumps({"cell_type": "markdown", "source": piece}) + "," for piece in (*_MARKDOWN, *_LATEX)]
    formats: tuple[tuple[str, Callable[[bytes], Paper], Sequence[str], Sequence[str], str], ...] = (
        ("tex", _read_tex, _LATEX_HEADS, (*_LATEX, *_SPACED), ""),
        ("md", documents["md"], ("",), (*_MARKDOWN, *_SPACED, *_LATEX), ""),
        ("html", documents["html"], _HTML_HEADS, (*_HTML, *_SPACED), ""),
        ("rst", documents["rst"], ("",), (*_REST, *_SPACED, *_MARKDOWN), ""),
        ("ipynb", documents["ipynb"], ('{"cells": [',), cells, '{"cell_type": "raw"}]}'),
        ("lyx", documents["lyx"], ("\\begin_document\n\\begin_body\n",), _LYX, ""),
        ("pretext", documents["pretext"], ("<pretext>",), _PRETEXT, "</pretext>"),
        ("python", documents["python"], ("",), _PYTHON, ""),
        ("bib", partial(_read_references, ".bib"), ("",), _BIB, ""),
        ("ris", partial(_read_references, ".ris"), ("",), _RIS, ""),
        ("csl", partial(_read_references, ".json"), ("[",), _CSL, '{"title": "z"}]'),
    )
    for name, read, heads, pieces, tail in formats:
        yield from ((name, read, head, piece, tail) for head in heads for piece in pieces)
    for tag in _PRETEXT_NESTED:
        yield "pretext", documents["pretext"], "<pretext>", f"<{tag}>", f"</{tag}>"


def _measure(read: Callable[[bytes], Paper], head: str, piece: str, tail: str, size: int) -> float:
    """Return the processor time of reading a document and its outline."""
    count = max(size // len(piece), 1)
    nested = tail if tail.startswith("</") and tail != "</pretext>" else ""
    repeated = "".join(piece.replace("#", str(n)) for n in range(count)) if re.search("#", piece) else piece * count
    raw = (head + repeated + (nested * count + "</pretext>" if nested else tail)).encode()
    start = time.process_time()
    signal.signal(signal.SIGPROF, _raise_timeout)
    signal.setitimer(signal.ITIMER_PROF, _MAX_SECONDS)
    try:
        paper = read(raw)
        parse(paper.text, paper.styles, paper.bibliography, rows=True, inline=True)
    except EqkinError:
        pass
    except TimeoutError:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return time.process_time() - start


def _raise_timeout(*_: object) -> None:
    raise TimeoutError


def run_scaling(seconds: float, seed: int) -> list[Row]:
    """Read documents of every shape at two sizes, in random order until the time is over."""
    until = time.monotonic() + seconds
    shapes = list(_list_shapes())
    random.Random(seed).shuffle(shapes)
    cases: dict[str, int] = {}
    failures: dict[str, list[str]] = {}
    worst: dict[str, tuple[float, str]] = {}
    for name, read, head, piece, tail in shapes:
        if time.monotonic() > until:
            break
        small, large = (_measure(read, head, piece, tail, size) for size in (_SMALL, _SMALL * _FACTOR))
        if large > _NOTICED_SECONDS and large > _MAX_GROWTH * small:  # other processes may have disturbed it
            small, large = (_measure(read, head, piece, tail, size) for size in (_SMALL, _SMALL * _FACTOR))
        what = repr(head + piece)[:80]
        cases[name] = cases.get(name, 0) + 1
        worst[name] = max(worst.get(name, (0.0, "")), (large, what))
        if large == math.inf or (large > _NOTICED_SECONDS and large > _MAX_GROWTH * small):
            failures.setdefault(name, []).append(f"{what} {small:.2f} -> {large:.2f} s")
    return [
        (
            f"growth: {name}",
            cases[name],
            len(failures.get(name, ())),
            "; ".join(failures.get(name, ())) or f"slowest {worst[name][0]:.2f} s: {worst[name][1]}",
        )
        for name in sorted(cases)
    ]
