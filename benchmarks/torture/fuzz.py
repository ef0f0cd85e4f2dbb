"""Hostile input: documents, archives, formulas and queries that are damaged at random or repeat a piece for ever.

Every case must end in a result or an error of eqkin, in MathML that is XML, and soon. The command
`python -m benchmarks.torture.fuzz SECONDS SEED` prints the rows as JSON; with a third argument it runs that one case
again, and shows what it raises.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import zstandard

from eqkin.api import Library
from eqkin.atlas import list_articles
from eqkin.errors import BadInput, EqkinError
from eqkin.formulas.conversion import convert_typed_formula
from eqkin.formulas.engine import FormulaEngine, parse_operators
from eqkin.formulas.mathml import parse_mathml, to_mathml, to_node
from eqkin.formulas.prose import to_unicode
from eqkin.latex.outline import parse
from eqkin.latex.typed import clean_typed_formula
from eqkin.library.parsing import parse_item
from eqkin.search.engine import SearchEngine
from eqkin.sources.readers import open_source

# Kind of input, cases, failures, note.
Row = tuple[str, int, int, str]
# Processor time that one case may take.
_SLOW_SECONDS = 10.0
# Papers that are read from one file.
_MAX_ITEMS = 5
# Failures that the note of a row names.
_MAX_SHOWN = 3
_TOKENS = (
    r"""
\begin{equation} \end{equation} \begin{align} \end{align} \[ \] $ $$ { } [ ] & \\ \frac \sqrt \left( \right)
\text{ ^ _ # % ~ \def\a{\a\a} \newcommand{\x}[²]{y} \section{ \label{ \verb| \iffalse \fi \begin{verbatim}
\input{/etc/passwd} \input{a} \include{../x} <math> </math> <mi> </mi> <!-- <![CDATA[ <script> &lt; &#xffff;
&#99999999999; <!ENTITY <!DOCTYPE \u0000 \uffff .. math:: :math:` ``` --- @article{ TY [[[[[[[[ }}}}}}}} null -1
1e999 NaN ? \begin{eqkinmathml}<math>
""".split()
    + ['"title":', '"cells"', "\x00", "\x1b[31m", "\uffff", "\ud7ff", "\u202e", "\u0301" * 50, "²", "٣"]
    + ["9" * 5_000, "&#" + "9" * 5_000 + ";", "\n" * 50, "  - "]
)
# pieces that are repeated: a number replaces #
_PIECES = r"""
{ } [ ] $ \ % \[ \] \( $$ \[x\] $x=1$ $x<y+z$ \section{a} \section{ \section[ \section[{] \def\a \def\a{ \def\a{}
\let\a \newcommand{\a#}{x} \newcommand{\a#}[2]{x}\[\a#{}\] \newcommand{\a}{ \newcommand{\a}[1] \newenvironment{a}{
\verb| \verb1 \iffalse \iffalse\fi \if\fi \begin{verbatim} \begin{comment} \begin{a} \begin{equation}
\begin{equation}x\end{equation} \begin{align}a&=b\\ \begin{align}a&=b\\c&=d\end{align} \begin{array}
\begin{array}\begin{array}\end{array} \begin{cases} \usepackage[ \usepackage{a#} \cite[ \cite{a#} \citep[ \bibitem{a#}
\bibitem \label{a#} \[x\label{a#}\] \ref{a#} \tag{#} \input{a#} \input{ \import{a}{b} \bibliography{a#}
\documentclass[ \begin{document} \end{document} \title{ \title{a} \author{a} \author{a\and} \date{1} \\ \\[ & &= a&b\\
\left( \begin \end \end{equation} \endinput #1 ## \expandafter\def\csname \DeclarePairedDelimiter{\a}
\NewDocumentCommand{\a}{ \DeclareMathOperator{\a#}{b} \x# \[\x#\] \"{ \c{ \'e ~ \, \$ \footnote{ \be \be\ee x_ x^ ' ''
a=b= \frac \text{ \mbox{$ \quad arxiv: arXiv:1706.03762 eprint @a{ @article{a#, doi: 10.1000/a# http:// - --
\begin{eqkinmathml}<math><mi>x</mi></math>\end{eqkinmathml} \begin{eqkinmathml} <math> &amp; \begin{split}\end{split}
\appendix * ** _ __ ` `` ``` ~~~ > >> # ]( [a]( [a]: ![ < <a <!-- $a$ $$a$$ | |a|b| ::: --- === + 1. {% {{ {#a} ^[
[^1] [^1]: $`a`$ ```math :label: <div> </div> <script> (@eq) *a _a **a <a> </a> <b '" <b " <p> <math><mi>x</mi></math>
<math><mrow> <math><mi></math> &lt; &#60; &# --> <![CDATA[ ]]> <script>x</script> <style> <h1> <h1>a</h1> <h2>a
<title> <table><tr><td> <meta name=author content=a> href=a> b=c class='ltx_equation'> <span class='katex-display'>
<tr class='ltx_equation'><td> <!DOCTYPE <? </ <a/> $x$ <section class='ltx_bibliography'> <li class='ltx_bibitem'>
<annotation encoding='application/x-tex'> <pre> <svg> " = <a"' .. math:: :math:`a` `a` a:: .. _a: [1]_ |a| :: == +-+
<p>a</p> <p><m>x</m></p> <me>x</me> <section><title>a</title></section> <md><mrow>x</mrow></md> ( @comment{ \' 1,
""".split()
_PIECES += (
    "- a\n¦ - ¦> a\n¦# a\n¦$$\na\n$$\n¦```\n¦| a |\n¦    a\n¦* a\n  ¦a  \n¦$$\n¦`a\n¦> - ¦.. math::\n\n   x\n\n¦"
    ".. a::\n¦a\n=\n¦   a\n¦.. math::\n¦:a: b\n¦a\n a\n  a\n¦.. math::\n   :label: a#\n\n   x\n\n¦* a\n\n  b\n¦"
    "\\begin_layout Section\n¦\\begin_layout Standard\n¦\\begin_inset Box\n¦\\begin_inset Formula $x$\n¦"
    "\\begin_inset Note\n¦\\end_layout\n¦\\end_inset\n¦a\n¦\\a\n¦\\begin_inset Box\n\\begin_layout Plain\na\n¦"
    "$x$\n¦\"\"\"\n$$x$$\n\"\"\"\n¦def a#():\n '''.. math:: x'''\n¦a=1\n¦class a:\n¦@article{a#, title={b}}\n¦"
    "@string{a#={b}}\n¦@article{a, ¦title={a},\n¦a and ¦"
    "@article{a#, title={{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}}, author={A and B}}\n¦"
    "@article{a#, title = a # b # c }\n¦\n¦TY  - JOUR\nTI  - a\nER  - \n¦TY  - JOUR\n¦ER  - \n¦AU  - A, B\n¦"
    'TI  - ¦  - ¦DO  - 10.1/a\n¦{"title": "a", "id": "#"},¦{"title": ¦'
    '{"title": "a", "author": [{"family": "b"}]},¦a ¦ ¦\n\n¦%\n¦$a\n\n¦$ a $ ¦\t¦\\ ¦\xe9¦\u221a¦'
    "x y = z, ¦A. B, ¦1. "
).split("¦")
_HEADS = ("", r"\begin{equation}", r"\bibitem{a} $", r"\title{", r"\def\be{\begin{equation}}\begin{document}")
_REPEATED_CHARS = 400_000
# For twice the size: linear growth is 2, quadratic 4.
_MAX_DOUBLED_GROWTH = 3.0
# For four times the size linear growth is 4, quadratic 16; times below the second number vary.
_MAX_GROWTH, _NOTICED_SECONDS = 9.0, 0.4
_NOTEBOOK = '{"cells": [{"cell_type": "markdown", "source": %s}], "metadata": {}, "nbformat": 4}'
_PAGE = "<html><head><title>A</title></head><body><h1>B</h1><p>c</p>%s</body></html>"
_BIBTEX = (
    "@article{a, title={On %s}, author={Doe, Jane and Roe, R.}, year={2001}, eprint={1706.03762}, doi={10.1000/1}}\n"
)
_RIS = "TY  - JOUR\nTI  - On %s\nAU  - Doe, Jane\nPY  - 2001\nDO  - 10.1000/1\nER  - \n"
_CSL = '[{"id": "a", "title": %s, "author": [{"family": "Doe", "given": "J"}], "issued": {"date-parts": [[2001]]}}]'


def _pack_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _pack_zip(files: dict[str, bytes], method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def build_document(kind: str, article: str, formulas: list[str], rng: random.Random) -> bytes:
    """Return an article of the atlas, or some formulas of it, in another format."""
    some = rng.sample(formulas, min(len(formulas), 5))
    displays = "\n\n".join(f"$$\n{latex}\n$$" for latex in some)
    quoted = json.dumps(displays)
    plain: dict[str, str] = {
        "tex": article,
        "md": f"---\ntitle: A\n---\n# B\n\ntext $x$\n\n{displays}\n",
        "rst": "A\n=\n\ntext :math:`x`\n\n"
        + "".join(f".. math::\n\n   {' '.join(latex.split())}\n\n" for latex in some),
        "html": _PAGE % displays,
        "ipynb": _NOTEBOOK % quoted,
        "py": f'"""A.\n\n{displays}\n"""\n',
        "jsonl": "\n".join(json.dumps({"id": str(n), "latex": f"\\[{latex}\\]"}) for n, latex in enumerate(some)),
        "bib": "".join(_BIBTEX % latex for latex in some),
        "ris": "".join(_RIS % latex for latex in some),
        "json": _CSL % json.dumps(some[0]),
        "org": f"* A\n\n\\[{some[0]}\\]\n",
        "typ": "= A\n\n$ x = y $\n",
    }
    if kind in plain:
        return mutate(plain[kind].encode(), rng)
    files = {"main.tex": article.encode(), "b.sty": rb"\newcommand{\a}{b}", "c/d.bib": (_BIBTEX % "x").encode()}
    if rng.random() < 0.5:
        files["main.tex"] = mutate(files["main.tex"], rng)
    if kind == "zip":
        raw = _pack_zip(
            files, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        )
    elif kind == "jsonl.zst":
        raw = zstandard.compress(plain["jsonl"].encode())
    else:
        raw = _pack_tar(files)
        raw = gzip.compress(raw, 1) if kind == "tar.gz" else raw
    return mutate(raw, rng)


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """Damage some bytes: flip, delete, repeat, insert, move, truncate."""
    data = bytearray(raw)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8, 20))):
        at = rng.randrange(len(data) + 1)
        length = rng.choice((1, 2, 8, 50, 500))
        choice = rng.random()
        if choice < 0.35:
            data[at:at] = rng.choice(_TOKENS).encode("utf-8", "replace") * rng.choice((1, 1, 1, 3, 200))
        elif choice < 0.5:
            del data[at : at + length]
        elif choice < 0.65:
            data[at:at] = data[at : at + length] * rng.choice((1, 2, 30))
        elif choice < 0.8 and at < len(data):
            data[at] = rng.randrange(256)
        elif choice < 0.95:
            other = rng.randrange(len(data) + 1)
            data[other:other] = data[at : at + length]
        else:
            del data[at:]
    return bytes(data[:1_000_000])


@dataclass
class _Tally:
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    # Memory of the process after its cases.
    peak_bytes: int = 0


class Fuzzer:
    """Runs cases by their number: the seed and the number determine a case."""

    kinds = (
        *"tex md rst html ipynb py jsonl bib ris json tar tar.gz zip jsonl.zst".split(),
        *["convert"] * 6,
        *["mathml"] * 2,
        *["query"] * 2,
        *["search"] * 2,
        *("pandoc", "repeat", "repeat"),
    )

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._articles = [article.read_text("utf-8") for article in list_articles()]
        bodies = (equation.body for article in self._articles for equation in parse(article).equations)
        self._formulas = list(dict.fromkeys(bodies))
        self._converter = FormulaEngine()
        self._engine: SearchEngine | None = None

    def run_case(self, number: int) -> str:
        """Run a case, and return its kind; raises what must not happen."""
        rng = random.Random(f"{self._seed} {number}")
        kind = self.kinds[number % len(self.kinds)]
        check: Callable[[random.Random], None] | None = getattr(self, f"_check_{kind}", None)
        if check is not None:
            check(rng)
        else:
            self._check_document(kind, rng)
        return kind

    def _check_pandoc(self, rng: random.Random) -> None:
        # Each conversion starts a process.
        if rng.random() < 0.1:
            self._check_document(rng.choice(("org", "typ")), rng)

    def _check_repeat(self, rng: random.Random) -> None:
        """Read a document that repeats a piece, and a quarter of it: the time must not grow as the square.

        A change of the quarter, such as a stray dollar sign, may hide its formulas: half of the document must agree.
        """
        kind, piece = rng.choice("tex md rst html ipynb py bib ris json".split()), rng.choice(_PIECES)
        head, path, seed = rng.choice(_HEADS), self._folder / f"a.{kind}", rng.random()

        def measure_reading(size: int) -> float:
            text = "".join(piece.replace("#", str(number)) for number in range(size // len(piece)))[:size]
            path.write_bytes(build_document(kind, head + text, [text], random.Random(seed)))
            started = time.process_time()
            try:
                for _, item in zip(range(_MAX_ITEMS), open_source(str(path)), strict=False):
                    paper = item.load()
                    parse(paper.text, paper.styles, paper.bibliography, rows=True, inline=True)
            except EqkinError:
                pass
            return time.process_time() - started

        quarter, whole = measure_reading(_REPEATED_CHARS // 4), measure_reading(_REPEATED_CHARS)
        if whole > max(_NOTICED_SECONDS, _MAX_GROWTH * quarter):
            half = measure_reading(_REPEATED_CHARS // 2)
            if whole > _MAX_DOUBLED_GROWTH * half:
                raise AssertionError(
                    f"{piece!r} in {kind}: {quarter:.2f}, {half:.2f} and {whole:.2f} s for 1/4, 1/2 and all"
                )

    def _check_document(self, kind: str, rng: random.Random) -> None:
        raw = build_document(kind, rng.choice(self._articles)[:20_000], self._formulas, rng)
        path = self._folder / f"a.{kind}"
        path.write_bytes(raw)
        try:
            for _, item in zip(range(_MAX_ITEMS), open_source(str(path)), strict=False):
                parsed = parse_item(item, formulas="inline")
                if parsed.failure in ("internal error", "limit: memory"):
                    raise AssertionError(parsed.message)
                if parsed.forest is not None:
                    for index in range(len(parsed.forest)):
                        ElementTree.fromstring(to_mathml(to_node(parsed.forest, index)))
        except EqkinError:
            pass

    def _mutate_formula(self, rng: random.Random) -> str:
        return mutate(rng.choice(self._formulas).encode(), rng).decode("utf-8", "surrogateescape")

    def _check_convert(self, rng: random.Random) -> None:
        formula = clean_typed_formula(self._mutate_formula(rng))
        conversion = convert_typed_formula(self._converter, formula)
        conversion.forest.validate()
        parse_operators(conversion.forest)
        if conversion.outcomes[0].failure is None:
            mathml = to_mathml(to_node(conversion.forest, conversion.outcomes[0].tree))
            ElementTree.fromstring(mathml)
            to_unicode(mathml)

    def _check_mathml(self, rng: random.Random) -> None:
        conversion = convert_typed_formula(self._converter, rng.choice(self._formulas))
        if conversion.outcomes[0].failure is None:
            mathml = to_mathml(to_node(conversion.forest, 0))
            try:
                root = parse_mathml(mutate(mathml.encode(), rng).decode("utf-8", "surrogateescape"))
            except EqkinError:
                return
            ElementTree.fromstring(to_mathml(root))

    def _open_engine(self) -> SearchEngine:
        if self._engine is None:
            library = Library.open(self._folder / "library", create=True)
            library.add("atlas:")
            self._engine = library.open_engine()
        return self._engine

    def _check_query(self, rng: random.Random) -> None:
        words = rng.choice(("", "heat equation ", "law of ", "? ", "<math>", "lambda = ", "sqrt(x) + "))
        try:
            self._open_engine().read(words + self._mutate_formula(rng)[:5_000])
        except EqkinError:
            pass

    def _check_search(self, rng: random.Random) -> None:
        query = self._mutate_formula(rng)[:2_000]
        if rng.random() < 0.3:
            query = query.replace("x", "?").replace("=", r"\;?a\;")
        try:
            results = self._open_engine().search(query, k=rng.choice((1, 10, 200)), explain=rng.random() < 0.5)
        except EqkinError:
            return
        for hit in results.hits:
            ElementTree.fromstring(hit.equation.mathml)


def _run_cases(seconds: float, seed: int, folder: Path) -> list[Row]:
    fuzzer, tallies, number = Fuzzer(folder, seed), defaultdict[str, _Tally](_Tally), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        start = time.process_time()
        kind = fuzzer.kinds[number % len(fuzzer.kinds)]
        tally = tallies[kind]
        try:
            fuzzer.run_case(number)
        # An exception is what is looked for.
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            tally.failures.append(f"case {number}: {error!r:.150} ({Path(where.filename).name}:{where.lineno})")
        spent = time.process_time() - start
        if spent > _SLOW_SECONDS:
            tally.failures.append(f"case {number}: {spent:.1f} s")
        # The first search builds a library, which is not timed.
        if kind not in ("query", "search") or tally.cases:
            tally.slowest = max(tally.slowest, spent)
        tally.cases += 1
        tally.peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        number += 1
    return [
        (
            f"fuzz: {kind}",
            tally.cases,
            len(tally.failures),
            "; ".join(tally.failures[:_MAX_SHOWN])
            or f"slowest {tally.slowest:.2f} s, process {tally.peak_bytes / 1e6:,.0f} MB",
        )
        for kind, tally in tallies.items()
    ]


def run_fuzz(seconds: float, seed: int) -> list[Row]:
    """Run cases in a process of their own for some time; its death is a failure."""
    command = [sys.executable, "-m", "benchmarks.torture.fuzz", str(seconds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [("fuzz", 1, 1, f"the process ended with status {done.returncode}: {done.stderr[-300:]}")]
    return [tuple(row) for row in json.loads(done.stdout)]


def main() -> None:
    """Run all cases for some time, or one of them."""
    if len(sys.argv) not in (3, 4):
        raise BadInput("usage: python -m benchmarks.torture.fuzz SECONDS SEED [CASE]")
    with tempfile.TemporaryDirectory(prefix="eqkin-fuzz-") as folder:
        if len(sys.argv) == 4:
            sys.stdout.write(f"{Fuzzer(Path(folder), int(sys.argv[2])).run_case(int(sys.argv[3]))}: passed\n")
        else:
            rows = _run_cases(float(sys.argv[1]), int(sys.argv[2]), Path(folder))
            sys.stdout.write(json.dumps(rows))
    sys.stdout.flush()
    # Engines need not be closed.
    os._exit(0)


if __name__ == "__main__":
    main()
