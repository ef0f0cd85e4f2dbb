r"""Papers cut into pieces that fit into another paper, and a renaming of the letters of formulas.

A piece is a few sections with their equations and the macros these need.

A renaming is a permutation of Latin and Greek letters. Letters change places only with letters of the same use (indices
with indices, functions with functions), so that formulas stay plausible. Names of commands and environments, text,
labels, units of length, columns of arrays, `d`, `e` and `\pi` are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from eqkin.errors import BadInput, EqkinError
from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, MATHML_ENVIRONMENT, is_diagram
from eqkin.latex.macros import Macro
from eqkin.latex.outline import Document, Equation, parse
from eqkin.latex.prose import EQUATION_MARK
from eqkin.sources.paper import Paper
from eqkin.sources.readers import open_source

_MIN_EQUATIONS = 5  # a piece continues with the next section until it has this many
_MAX_EQUATIONS = 24  # and is cut within a section if it has more
_MAX_PROSE_CHARS = 20_000  # of prose between two equations
_HEADINGS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_COMMAND = re.compile(r"\\(?:[A-Za-z@]+|[^A-Za-z@\s])")
_INLINE = re.compile(r"(?<!\\)\$((?:[^$\\\n]++|\\.|\n(?![ \t]*+\n))++)\$")
# what opens or closes a display without its other half: it would find another half in another piece
_UNMATCHED_DELIMITER = re.compile(
    r"\$\$|(?<!\\)\\[\[\]]|\\(?:begin|end)\s*+\{(?:"
    + "|".join(sorted(map(re.escape, DISPLAY_ENVIRONMENTS)))
    + r")\*?\}"
    r"|\\(?:begin|end)\s*+\{(?:document|thebibliography)\}|\\bibitem(?![A-Za-z])|" + EQUATION_MARK
)
_LATIN_GROUPS = ("abcpqrs", "fgh", "ijklmn", "tuvwxyz", "ABCDEFGH", "JKLMNPQ", "RSTUVWXYZ")
_GREEK_GROUPS = (
    "alpha beta gamma delta kappa",
    "epsilon varepsilon zeta eta",
    "lambda mu nu xi",
    "theta vartheta phi varphi psi chi",
    "rho sigma tau omega",
    "Gamma Theta Lambda Phi Psi Omega",
)
_MAX_VARIABLES = 3  # letters in a row that are a product of variables; longer ones are a word
_GROUP = r"\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
_TOKEN = re.compile(
    rf"\\(?:begin|end)\s*+{_GROUP}(?:\s*+\[[^\]]*+\])?(?:\s*+{_GROUP})?"
    r"|\\(?:text[a-z]*+|mbox|hbox|fbox|operatorname|math(?:rm|bb|sf|tt|op|it)|label|tag|(?:eq|page|c|C|auto)?ref"
    r"|cite[a-z]*+|[hv]space|color|SI|si|num|qty|unit|ce|intertext|shortintertext|stackrel|rule|includegraphics)"
    rf"(?![A-Za-z])\*?\s*+(?:\[[^\]]*+\]\s*+)?{_GROUP}"
    r"|\\(?:rm|it|sf|tt|mathrm|mathbb|operatorname)(?![A-Za-z])\s*+[A-Za-z]*+"
    r"|\\[A-Za-z@]++|\\."
    r"|[0-9]\s*+(?:pt|em|ex|mm|cm|in|mu|bp|pc)(?![A-Za-z])"
    r"|[A-Za-z]++",
    re.DOTALL,
)


@dataclass(frozen=True)
class Piece:
    """A part of a paper."""

    field: str
    title: str  # of the paper
    parts: list[str]  # text and math in turn, text first
    definitions: str  # of the macros that its math uses
    packages: list[str]
    equations: int


def load_pieces(sources: Sequence[str]) -> list[Piece]:
    """Cut the papers of some sources (anything `eqkin add` reads) into pieces; raises `BadInput` if there are none."""
    pieces: list[Piece] = []
    for item in chain.from_iterable([open_source(source) for source in sources]):
        with suppress(EqkinError):  # `eqkin add` would report it
            pieces += cut_paper(item.load())
    if not pieces:
        raise BadInput(f"{', '.join(sources)}: no equations to grow a corpus from")
    return pieces


def cut_paper(paper: Paper) -> Iterator[Piece]:
    """Yield the pieces of a paper in order; none if it has no equations."""
    document = parse(paper.text, paper.styles, [])
    about = paper.fields[0] if paper.fields else "other", paper.title or document.about.title
    builder = _PieceBuilder(document)
    for number, section in enumerate(document.sections):
        builder.add_heading(section.level, section.title)
        equations = builder.of_section[number]
        for prose, equation in zip(section.latex.split(EQUATION_MARK), [*equations, None], strict=False):
            builder.add_prose(prose)
            if equation is None:
                continue
            if builder.count >= _MAX_EQUATIONS or equation.epoch != builder.epoch:
                yield from builder.iter_piece(*about)
            builder.add_equation(equation)
        if builder.count >= _MIN_EQUATIONS:
            yield from builder.iter_piece(*about)
    yield from builder.iter_piece(*about)


@dataclass
class _PieceBuilder:
    """Collects text and equations until they make a piece."""

    document: Document
    parts: list[str] = field(default_factory=lambda: [""])
    count: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.of_section: list[list[Equation]] = [[] for _ in self.document.sections]
        for equation in self.document.equations:
            self.of_section[equation.section].append(equation)

    def add_heading(self, level: int, title: str) -> None:
        """Begin a section."""
        if level:
            written = re.sub(r"([%#&_{}$])", r"\\\1", title.replace("\\", ""))
            self.parts[-1] += f"\n\n\\{_HEADINGS[level - 1]}{{{written}}}\n"

    def add_prose(self, latex: str) -> None:
        """Add text between equations, its inline formulas as parts of their own."""
        found = _INLINE.split(_UNMATCHED_DELIMITER.sub(" ", latex[:_MAX_PROSE_CHARS]))
        self.parts[-1] += found[0]
        for formula, text in zip(found[1::2], found[2::2], strict=True):
            self.parts[-1] += "$"
            self.parts += [formula, f"${text}"]

    def add_equation(self, equation: Equation) -> None:
        """Add a display equation; diagrams and MathML are not split."""
        name, body = equation.environment, equation.body
        before, after = (r"\[", r"\]") if name == "DISPLAY" else (rf"\begin{{{name}}}", rf"\end{{{name}}}")
        label = f"\\label{{{equation.label}}}" if equation.label and name not in ("DISPLAY", MATHML_ENVIRONMENT) else ""
        if name == MATHML_ENVIRONMENT or is_diagram(body):
            self.parts[-1] += f"\n{before}{body}{after}\n"
        else:
            self.parts[-1] += f"\n{before}\n"
            self.parts += [body, f"{label}\n{after}\n"]
        if not self.count:
            self.epoch = equation.epoch
        self.count += 1

    def iter_piece(self, field_: str, title: str) -> Iterator[Piece]:
        """Yield what was collected if it has an equation, and start again; prose alone waits for one."""
        if self.count:
            table = self.document.macros[self.epoch]
            definitions = _collect_definitions(self.parts[1::2], table)
            yield Piece(field_, title, self.parts, definitions, self.document.packages or [], self.count)
            self.parts, self.count = [""], 0


def _collect_definitions(formulas: list[str], table: dict[str, Macro]) -> str:
    """Return definitions of the macros that formulas use, directly or through other macros."""
    wanted = [name for name in dict.fromkeys(_COMMAND.findall("\n".join(formulas))) if name in table]
    found: dict[str, Macro] = {}
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found[name] = macro = table[name]
        used = _COMMAND.findall(f"{macro.body} {macro.alias} {' '.join(chain.from_iterable(macro.args))}")
        wanted += [other for other in used if other in table]
    return "".join(f"{format_definition(macro)}\n" for _, macro in sorted(found.items()))


def format_definition(macro: Macro) -> str:
    """Write a macro as the LaTeX that defines it."""
    name, kinds = macro.name, [kind[0] for kind in macro.args]
    if macro.alias:
        return rf"\let{name}={macro.alias}"
    if macro.prefix or all(kind in "mu" for kind in kinds):
        written = "".join(f"#{n}{a[1] if a[0] == 'u' else ''}" for n, a in enumerate(macro.args, 1))
        return rf"\def{name}{macro.prefix}{written}{{{macro.body}}}"
    if kinds[0] == "o" and len(macro.args[0]) > 1 and set(kinds[1:]) <= {"m"}:
        return rf"\newcommand{{{name}}}[{len(kinds)}][{macro.args[0][1]}]{{{macro.body}}}"
    written = " ".join(f"O{{{a[1]}}}" if a[0] == "o" and len(a) > 1 else "".join(a) for a in macro.args)
    return rf"\NewDocumentCommand{{{name}}}{{{written}}}{{{macro.body}}}"


@dataclass(frozen=True)
class LetterPermutation:
    """A permutation of letters, applied to formulas."""

    latin: dict[int, str]  # for `str.translate`
    greek: dict[str, str]  # commands, with their backslashes

    def __call__(self, formula: str) -> str:
        """Rename the letters of a formula."""

        def rename(match: re.Match[str]) -> str:
            token: str = match[0]
            if token[0] == "\\":
                return self.greek.get(token, token)
            return token.translate(self.latin) if len(token) <= _MAX_VARIABLES and token.isalpha() else token

        return _TOKEN.sub(rename, formula)


def draw_permutation(generator: np.random.Generator) -> LetterPermutation:
    """Draw a random permutation, uniformly."""
    latin: dict[int, str] = {}
    for letters in _LATIN_GROUPS:
        order = generator.permutation(len(letters))
        latin |= {ord(letter): letters[place] for letter, place in zip(letters, order, strict=True)}
    greek: dict[str, str] = {}
    for names in (group.split() for group in _GREEK_GROUPS):
        order = generator.permutation(len(names))
        greek |= {rf"\{name}": rf"\{names[place]}" for name, place in zip(names, order, strict=True)}
    return LetterPermutation(latin, greek)
