r"""A synthetic corpus of any size, made of a smaller one.

Each paper is one of the smaller corpus in which the letters of all formulas are renamed by one permutation: the
equations are new, and similar to the originals in size and shape. Letters change places only with letters of the same
use (indices with indices, functions with functions), so that formulas stay plausible. Names of commands and
environments, text and labels are not changed. The same seed gives the same corpus, and a larger one begins with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer

from benchmarks.report import BenchmarkReport, log
from eqkin.errors import BadInput
from eqkin.files import write_stream
from eqkin.latex.environments import DISPLAY_ENVIRONMENTS
from eqkin.sources.paper import Paper
from eqkin.sources.readers import open_source

_GROUPS = ("abcpqrs", "fgh", "ijklmn", "tuvwxyz", "ABCDEFGH", "JKLMNPQ", "RSTUVWXYZ")
_NAMES = "|".join(sorted(map(re.escape, DISPLAY_ENVIRONMENTS)))
_MATH = re.compile(
    rf"\\begin\s*\{{(?P<name>(?:{_NAMES})\*?)\}}.*?\\end\s*\{{(?P=name)\}}"
    r"|(?<!\\)\\\[.*?\\\]|\$\$.+?\$\$|(?<![\\$])\$(?:[^$\\\n]|\\.)+\$",
    re.DOTALL,
)
# What is not a letter of a formula: commands, and those arguments that are text.
_KEPT = re.compile(
    r"\\(?:begin|end|text[a-z]*|mbox|operatorname|math(?:rm|bb)|label|tag|ref|eqref|cite[a-z]*)\s*\{[^{}]*\}"
    r"|\\[A-Za-z]+|\\."
)


def grow(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Gets the papers as JSON lines.")],
    equations: Annotated[int, typer.Option("--equations", "-n", min=1, metavar="N", help="How many, at least.")],
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Anything `eqkin add` takes.")],
) -> BenchmarkReport:
    """Make a large synthetic corpus out of a small one, for measurements only.

    **Example**

        python -m benchmarks grow papers.jsonl.zst -n 1000000 -o million.jsonl && eqkin add million.jsonl -l million
    """
    papers, found = grow_corpus(sources, out, equations)
    return BenchmarkReport("grow", {"papers": papers, "equations": found})


def grow_corpus(sources: Sequence[str], out: Path, equations: int) -> tuple[int, int]:
    """Write papers with at least `equations` display formulas; return the numbers of papers and of formulas.

    Raises:
        BadInput: A source cannot be read, or none has formulas.
    """
    written = [0, 0]

    def iter_lines() -> Iterator[bytes]:
        for round_number in count():
            before = written[1]
            for source in sources:
                for item in open_source(source):
                    paper = item.load()
                    rename = draw_permutation(round_number, written[0])
                    text = _MATH.sub(lambda found, rename=rename: rename(found[0]), paper.text)  # type: ignore[misc]
                    found = sum(not one[0].startswith("$") or one[0].startswith("$$") for one in _MATH.finditer(text))
                    if found:
                        yield make_record(paper, text, f"grown-{written[0]}")
                        written[0] += 1
                        written[1] += found
                    if written[1] >= equations:
                        return
            if written[1] == before:
                raise BadInput(f"{', '.join(sources)}: no formulas to grow a corpus from")
            log(f"{written[0]:,} papers, {written[1]:,} formulas")

    write_stream(out, iter_lines())
    return written[0], written[1]


def make_record(paper: Paper, text: str, name: str) -> bytes:
    """Return a paper as a line of JSON."""
    record = {"id": name, "title": paper.title or name, "latex": "\n".join([*paper.styles, text])}
    return orjson.dumps(record) + b"\n"


def draw_permutation(*seed: int) -> Callable[[str], str]:
    """Draw a permutation of letters; returns a function that applies it to a formula."""
    generator = np.random.default_rng(seed)
    table: dict[int, str] = {}
    for letters in _GROUPS:
        order = generator.permutation(len(letters)).tolist()
        table |= {ord(letter): letters[place] for letter, place in zip(letters, order, strict=True)}

    def rename(formula: str) -> str:
        kept = [*_KEPT.finditer(formula)]
        ends = [0, *(one.end() for one in kept)]
        starts = [*(one.start() for one in kept), len(formula)]
        pieces = [formula[end:start].translate(table) for end, start in zip(ends, starts, strict=True)]
        return pieces[0] + "".join(one[0] + piece for one, piece in zip(kept, pieces[1:], strict=True))

    return rename
