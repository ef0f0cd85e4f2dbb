r"""Papers cut into pieces that can stand in another paper: a few sections, their equations, the macros these need.

The pieces lie in one file, a JSON line each, beside an array of where each begins: they are read one at a time, so
that memory does not grow with the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.latex import Document, Equation, parse
from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, MATHML_ENVIRONMENT, is_diagram
from eqkin.latex.macros import Macro
from eqkin.latex.prose import EQUATION_MARK
from eqkin.sources import open_source
from eqkin.sources.paper import Paper, SourceItem
from eqkin.storage import write_file, write_stream

_TEXT, _PLACES = "pieces.jsonl", "pieces.json"
_VERSION = 1
_MIN_EQUATIONS = 5  # a piece goes on to the next section until it has so many
_MAX_EQUATIONS = 24  # and is cut within a section if it has more
_MAX_PROSE_CHARS = 20_000  # characters of prose between two equations
_UNKNOWN_FIELD = "other"
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
Offsets: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """A stretch of a paper."""

    field: str
    title: str  # of the paper
    parts: list[str]  # text and math in turn, text first
    definitions: str  # of the macros that its math uses
    packages: list[str]
    equations: int


@dataclass
class PieceStore:
    """All pieces of a corpus; open them with `opened`."""

    folder: Path
    fields: list[str]  # each one's name
    field: Offsets  # of each piece, an index into `fields`
    equations: Offsets  # of each piece
    starts: Offsets  # of each piece in the file; one more at the end

    def __len__(self) -> int:
        return len(self.field)

    def load(self, number: int) -> Piece:
        """One of them; raises `CorruptData`."""
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        path = self.folder / _TEXT
        try:
            with path.open("rb") as file:
                file.seek(start)
                return Piece(**orjson.loads(file.read(end - start)))
        except (OSError, ValueError, TypeError) as error:
            raise CorruptData(f"{path}: damaged ({error}); delete the folder and begin again") from error


def open_pieces(folder: Path, sources: Sequence[str], progress: Callable[[int], None] | None = None) -> PieceStore:
    """The pieces of some sources (anything `eqkin add` reads), from `folder` if they are there, else cut and kept.

    Raises:
        BadInput: a source cannot be read or has no equations, or the folder holds pieces of other sources.
    """
    try:
        kept = orjson.loads((folder / _PLACES).read_bytes())
    except FileNotFoundError:
        return _cut_sources(folder, sources, progress)
    except (OSError, ValueError) as error:
        raise CorruptData(f"{folder / _PLACES}: damaged ({error}); delete the folder and begin again") from error
    if (kept["version"], kept["sources"]) != (_VERSION, list(sources)):
        raise BadInput(f"{folder}: holds pieces of {', '.join(kept['sources'])}; choose another folder")
    return _load_store(folder, kept)


def _load_store(folder: Path, kept: dict[str, list[int]]) -> PieceStore:
    field_, equations, starts = (np.array(kept[name], np.int64) for name in ("field", "equations", "starts"))
    return PieceStore(folder, list(map(str, kept["fields"])), field_, equations, starts)


def _cut_sources(folder: Path, sources: Sequence[str], progress: Callable[[int], None] | None) -> PieceStore:
    items = chain.from_iterable([open_source(source) for source in sources])
    folder.mkdir(parents=True, exist_ok=True)
    fields: dict[str, int] = {}
    kept: dict[str, list[int]] = {"field": [], "equations": [], "starts": [0]}

    def lines() -> Iterator[bytes]:
        for number, item in enumerate(items, 1):
            for piece in _cut_item(item):
                line = orjson.dumps(asdict(piece)) + b"\n"
                kept["field"].append(fields.setdefault(piece.field, len(fields)))
                kept["equations"].append(piece.equations)
                kept["starts"].append(kept["starts"][-1] + len(line))
                yield line
            if progress:
                progress(number)

    write_stream(folder / _TEXT, lines())
    if not kept["field"]:
        raise BadInput(f"{', '.join(sources)}: no equations to grow a corpus from")
    about = {"version": _VERSION, "sources": list(sources), "fields": list(fields), **kept}
    write_file(folder / _PLACES, orjson.dumps(about))
    return _load_store(folder, about)  # type: ignore[arg-type]


def _cut_item(item: SourceItem) -> list[Piece]:
    try:
        paper = item.load()
        return list(cut_paper(paper))
    except EqkinError:  # what cannot be read cannot be cut; `eqkin add` would say why
        return []


def cut_paper(paper: Paper) -> Iterator[Piece]:
    """The pieces of a paper, in order; none if it has no equations."""
    document = parse(paper.text, paper.styles, [])
    about = paper.fields[0] if paper.fields else _UNKNOWN_FIELD, paper.title or document.title
    under_way = _PieceBuilder(document)
    for number, section in enumerate(document.sections):
        under_way.add_heading(section.level, section.title)
        equations = under_way.of_section[number]
        for prose, equation in zip(section.latex.split(EQUATION_MARK), [*equations, None], strict=False):
            under_way.add_prose(prose)
            if equation is None:
                continue
            if under_way.count >= _MAX_EQUATIONS or equation.epoch != under_way.epoch:
                yield from under_way.iter_piece(*about)
            under_way.add_equation(equation)
        if under_way.count >= _MIN_EQUATIONS:
            yield from under_way.iter_piece(*about)
    yield from under_way.iter_piece(*about)


@dataclass
class _PieceBuilder:
    """A paper on its way into pieces."""

    document: Document
    parts: list[str] = field(default_factory=lambda: [""])
    count: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.of_section: list[list[Equation]] = [[] for _ in self.document.sections]
        for equation in self.document.equations:
            self.of_section[equation.section].append(equation)

    def add_heading(self, level: int, title: str) -> None:
        """A section begins."""
        if level:
            written = re.sub(r"([%#&_{}$])", r"\\\1", title.replace("\\", ""))
            self.parts[-1] += f"\n\n\\{_HEADINGS[level - 1]}{{{written}}}\n"

    def add_prose(self, latex: str) -> None:
        """Text between equations, its inline formulas apart."""
        found = _INLINE.split(_UNMATCHED_DELIMITER.sub(" ", latex[:_MAX_PROSE_CHARS]))
        self.parts[-1] += found[0]
        for formula, text in zip(found[1::2], found[2::2], strict=True):
            self.parts[-1] += "$"
            self.parts += [formula, f"${text}"]

    def add_equation(self, equation: Equation) -> None:
        """A display equation; a picture and ready-made MathML stay as they are."""
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
        """What was taken up so far, if there is an equation in it; prose alone waits for one."""
        if self.count:
            table = self.document.macros[self.epoch]
            yield Piece(
                field_,
                title,
                self.parts,
                _collect_definitions(self.parts[1::2], table),
                self.document.packages or [],
                self.count,
            )
            self.parts, self.count = [""], 0


def _collect_definitions(formulas: list[str], table: dict[str, Macro]) -> str:
    """Definitions of the macros that some formulas use, and of those that these use."""
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
    """A macro as LaTeX that defines it."""
    name, kinds = macro.name, [kind[0] for kind in macro.args]
    if macro.alias:
        return rf"\let{name}={macro.alias}"
    if macro.prefix or all(kind in "mu" for kind in kinds):
        written = "".join(f"#{n}{a[1] if a[0] == 'u' else ''}" for n, a in enumerate(macro.args, 1))
        return rf"\def{name}{macro.prefix}{written}{{{macro.body}}}"
    if kinds[0] == "o" and len(macro.args[0]) > 1 and set(kinds[1:]) <= {"m"}:
        return rf"\newcommand{{{name}}}[{len(kinds)}][{macro.args[0][1]}]{{{macro.body}}}"
    return rf"\NewDocumentCommand{{{name}}}{{{' '.join(map(_format_argument, macro.args))}}}{{{macro.body}}}"


def _format_argument(argument: tuple[str, ...]) -> str:
    if argument[0] == "o" and len(argument) > 1:
        return f"O{{{argument[1]}}}"
    return "".join(argument)
