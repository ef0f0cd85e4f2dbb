r"""Macro definitions of documents and packages: names, arguments and bodies.

\newcommand and variants (optional arguments, \newcommandx, xparse), \def with delimited parameters, \let,
\DeclareMathOperator, \DeclarePairedDelimiter and \newenvironment are read. A definition that cannot be read is left
out: it costs the equations that use it, not the paper.

Each file of `preludes/` defines the commands of one package in terms of what KaTeX knows. A paper gets those of the
packages it loads, and always `latex`. If the preamble of a paper is unknown or incomplete, `find_providers` names the
package that would have defined a command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import orjson
import zstandard

from eqkin.latex.scan import Scanner, strip_comments
from eqkin.limits import LIMITS

Argument = tuple[str, ...]  # ("m",) | ("o", default) | ("o",) | ("s",) | ("g",) | ("d", open, close) | ("u", delimiter)

# commands that hold a formula together are never redefined: class files do so locally, for titles and lists
RESERVED_COMMANDS = frozenset(
    r"\\ \begin \end \left \right \middle \text \mbox \hbox \relax \let \def \label \tag \[ \] \( \) \& \% \$ \# \_ \{"
    r" \} \, \; \: \! \newline \par \item \index \section \footnote \cr \displaystyle \textstyle \limits \nolimits"
    r" \tabularnewline \hline \small \footnotesize \normalsize \large \rm \bf \it \cite \ref \eqref \color \textcolor"
    r" \ensuremath \protect \number \the".split()
)
_NAME = re.compile(r"\\(?:[A-Za-z@]+|[^A-Za-z@\s])")
# what the name of a new alphabet says about it
_ALPHABETS = (("bb", r"\mathbb"), ("ds", r"\mathbb"), ("frak", r"\mathfrak"), ("sf", r"\mathsf"), ("bf", r"\mathbf"))
_PARAMETER = re.compile(r"#([1-9])")
_COUNT = re.compile(r"\s*[0-9]{1,3}\s*")  # of arguments
_CSNAME = re.compile(r"\\expandafter\s*\\([gex]?def)\s*\\csname\s+([A-Za-z@]+)\s*\\endcsname")
_XPARSE_ARGUMENT = re.compile(
    r"(?:(?P<letter>[mrRstogO])|[dD](?P<open>.)(?P<close>.))(?:\s*+\{(?P<default>(?:[^{}]|\{[^{}]*+\})*+)\})?",
    re.DOTALL,
)
_XPARSE_ARGUMENTS = {"m": "m", "r": "m", "R": "m", "s": "s", "t": "s", "o": "o", "g": "g"}
# Tables of so many papers stay in memory: equations of a paper are read one after the other.
_MAX_UNPACKED = 64
_LAST_RESORTS = frozenset({"conventions", "peeters_macros"})  # preludes that are not packages

# A short text may not grow beyond this.
_MAX_EXPANDED = 20_000
# No command is longer.
_MAX_NAME = 50
_MACRO_ROUNDS = 5
_CONTROL_WORD_END = re.compile(r"\\[A-Za-z@]+\Z")
_CONTROL_WORD = re.compile(r"\\[A-Za-z@]+\*?")


@dataclass(frozen=True)
class Macro:
    """One command: `name` with its backslash, its arguments, its body with `#1`, `#2`, ..."""

    name: str
    args: tuple[Argument, ...]
    body: str
    prefix: str = ""  # literal text of a \def between the name and the first parameter
    alias: str = ""  # for \let: the command it equals (body unused)
    weak: bool = False  # holds only where nothing else defines the name


@dataclass(frozen=True)
class Environment:
    r"""A \newenvironment: what its begin (with arguments) and its end expand to."""

    name: str
    args: tuple[Argument, ...]
    begin: str
    end: str


@dataclass(frozen=True)
class Definition:
    """A macro or environment and the span of text that defines it."""

    start: int
    end: int
    value: Macro | Environment


def find_definitions(text: str, start: int = 0) -> list[Definition]:
    """Return all readable definitions in `text` from `start` on, in order; comments must have been stripped."""
    if "\\csname" in text:
        text = _CSNAME.sub(lambda m: rf"\{m[1]}\{m[2]}" + " " * (len(m[0]) - len(m[1]) - len(m[2]) - 2), text)
    found: list[Definition] = []
    scanner = Scanner(text)
    at = start
    while match := _DEFINITION.search(text, at):
        result = _READERS[match[1]](scanner, match.end(), match)
        # A definition that cannot be read is left out; what follows is read.
        if result is None:
            at = match.end()
            continue
        value, end = result
        if len(getattr(value, "body", "")) <= LIMITS.macro_chars:
            found.append(Definition(match.start(), end, value))
            if len(found) >= LIMITS.macros_per_paper:
                break
        at = end
    return found


@cache
def load_preludes() -> dict[str, dict[str, Macro]]:
    """Return the macros of each package, by name."""
    preludes: dict[str, dict[str, Macro]] = {}
    folder = resources.files("eqkin.latex").joinpath("preludes")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".tex"):
            found = (definition.value for definition in find_definitions(strip_comments(entry.read_text("utf-8"))))
            preludes[entry.name.removesuffix(".tex")] = {m.name: m for m in found if isinstance(m, Macro)}
    return preludes


@cache
def find_providers() -> dict[str, str]:
    """Return for every command of a prelude the package to take it from if none was loaded (`latex` excluded)."""
    preludes = load_preludes()
    order = sorted(preludes, key=lambda package: (package in _LAST_RESORTS, package), reverse=True)
    return {name: package for package in order if package != "latex" for name in preludes[package]}


# Readers of one kind of definition each: from the text after the command to the macro and the index after it.
_ReadResult = tuple[Macro | Environment, int] | None


def _read_name(scanner: Scanner, at: int) -> tuple[str, int] | None:
    r"""Read a command name, bare (`\foo`) or in braces (`{\foo}`)."""
    group = scanner.read_group(at)
    if group is not None:
        name = group[0].strip()
        return (name, group[1]) if _NAME.fullmatch(name) else None
    match = _NAME.match(scanner.text, scanner.skip_space(at))
    return (match[0], match.end()) if match else None


def _read_newcommand(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    weak = match[1].startswith("provide")
    named = _read_name(scanner, at)
    if named is None:
        return None
    args, at = _read_bracketed_arguments(scanner, named[1], extended=match[1].endswith("x"))
    group = scanner.read_group(at)
    # The body may be a single command: \newcommand\x\y.
    if group is None:
        token = _NAME.match(scanner.text, scanner.skip_space(at))
        group = (token[0], token.end()) if token else None
    return (Macro(named[0], args, group[0], weak=weak), group[1]) if group else None


def _read_bracketed_arguments(scanner: Scanner, at: int, extended: bool = False) -> tuple[tuple[Argument, ...], int]:
    r"""Read `[n][default]` of \newcommand, or `[n][1=a, 3=b]` of \newcommandx."""
    count = scanner.read_bracket(at)
    if count is None or not _COUNT.fullmatch(count[0]):
        return (), at
    n = min(int(count[0]), 9)
    at = count[1]
    args: list[Argument] = [("m",)] * n
    default = scanner.read_bracket(at)
    if default is not None and n:
        at = default[1]
        if extended:
            for number, value in re.findall(r"(?:^|,)\s*([1-9])\s*=\s*([^,]*)", default[0]):
                if int(number) <= n:
                    args[int(number) - 1] = ("o", value.strip().removeprefix("{").removesuffix("}"))
        else:
            args[0] = ("o", default[0])
    return tuple(args), at


def _read_def(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    text = scanner.text
    name = _NAME.match(text, scanner.skip_space(at))
    brace = text.find("{", name.end(), name.end() + 200) if name else -1
    body = scanner.read_group(brace) if brace >= 0 else None
    if name is None or body is None:
        return None
    parameters = text[name.end() : brace]
    pieces = _PARAMETER.split(parameters)
    # This is a definition inside the body of another one.
    if "\n\n" in parameters or "#" in "".join(pieces[::2]):
        return None
    args = tuple(("u", delimiter) if delimiter.strip() else ("m",) for delimiter in pieces[2::2])
    return Macro(name[0], args, body[0], prefix=pieces[0].strip()), body[1]


def _read_let(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    text = scanner.text
    name = _NAME.match(text, scanner.skip_space(at))
    if name is None:
        return None
    at = scanner.skip_space(name.end())
    if text[at : at + 1] == "=":
        at = scanner.skip_space(at + 1)
    target = _NAME.match(text, at)
    if target is None:
        return (Macro(name[0], (), text[at]), at + 1) if at < len(text) and text[at] not in "{}\\#%" else None
    return Macro(name[0], (), "", alias=target[0]), target.end()


def _read_operator(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(scanner, at)
    body = scanner.read_group(named[1]) if named else None
    if named is None or body is None:
        return None
    return Macro(named[0], (), rf"\operatorname{'*' if '*' in match[0] else ''}{{{body[0]}}}"), body[1]


def _read_paired(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    r"""Read \DeclarePairedDelimiter{\abs}{\lvert}{\rvert}; X takes [n] and a body in which \delimsize is the size."""
    named = _read_name(scanner, at)
    if named is None:
        return None
    name, at = named
    count = 1
    is_extended = match[1].endswith("X")
    if is_extended:
        bracket = scanner.read_bracket(at)
        if bracket is None or not _COUNT.fullmatch(bracket[0]):
            return None
        count = min(int(bracket[0]), 7)
        at = bracket[1]
    groups: list[str] = []
    for _ in range(3 if is_extended else 2):
        if scanner.skip_space(at) == len(scanner.text):
            return None
        group, at = scanner.read_argument(at)
        groups.append(group)
    # The delimiters, and what is between them.
    left, right, inner = groups if is_extended else [*groups, "#1"]
    inner = inner.replace(r"\delimsize", "")
    body = rf"\left{left or '.'}{inner}\right{right or '.'}"
    # Arguments move up by two: the star and the optional size come first.
    body = _PARAMETER.sub(lambda m: f"#{int(m[1]) + 2}", body)
    return Macro(name, (("s",), ("o", "")) + (("m",),) * count, body), at


def _read_document_command(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    r"""Read a definition of xparse: \NewDocumentCommand{\foo}{s o O{x} m d()}{body}."""
    named = _read_name(scanner, at)
    spec = scanner.read_group(named[1]) if named else None
    body = scanner.read_group(spec[1]) if spec else None
    if named is None or spec is None or body is None:
        return None
    args: list[Argument] = []
    for found in _XPARSE_ARGUMENT.finditer(spec[0]):
        if found["open"]:
            args.append(("d", found["open"], found["close"]))
        elif found["letter"] == "O":
            args.append(("o", found["default"] or ""))
        else:
            args.append((_XPARSE_ARGUMENTS[found["letter"]],))
    return Macro(named[0], tuple(args[:9]), body[0]), body[1]


def _read_environment(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    name = scanner.read_group(at)
    if name is None:
        return None
    args, at = _read_bracketed_arguments(scanner, name[1])
    begin = scanner.read_group(at)
    end = scanner.read_group(begin[1]) if begin else None
    if begin is None or end is None:
        return None
    return Environment(name[0].strip(), args, begin=begin[0], end=end[0]), end[1]


def _read_alphabet(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(scanner, at)
    if named is None:
        return None
    font = next((font for sign, font in _ALPHABETS if sign in named[0].lower()), r"\mathcal")
    return Macro(named[0], (("m",),), rf"{font}{{#1}}", weak=True), named[1]


def _read_symbol(scanner: Scanner, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(scanner, at)
    if named is None or len(named[0]) < 3:
        return None
    return Macro(named[0], (), rf"\mathrm{{{named[0][1:].replace('@', '')}}}", weak=True), named[1]


_READERS: dict[str, Callable[[Scanner, int, re.Match[str]], _ReadResult]] = {
    name: reader
    for reader, names in (
        (
            _read_newcommand,
            "newcommand renewcommand providecommand newcommandx renewcommandx providecommandx DeclareRobustCommand"
            " newrobustcmd renewrobustcmd",
        ),
        (_read_def, "def gdef edef xdef"),
        (_read_let, "let"),
        (_read_operator, "DeclareMathOperator"),
        (_read_paired, "DeclarePairedDelimiter DeclarePairedDelimiterX"),
        (
            _read_document_command,
            "NewDocumentCommand NewExpandableDocumentCommand RenewDocumentCommand RenewExpandableDocumentCommand"
            " ProvideDocumentCommand ProvideExpandableDocumentCommand DeclareDocumentCommand"
            " DeclareExpandableDocumentCommand",
        ),
        (_read_environment, "newenvironment renewenvironment"),
        (_read_alphabet, "DeclareMathAlphabet"),
        (_read_symbol, "DeclareMathSymbol mathchardef"),
    )
    for name in names.split()
}
# alternatives that start with a plain letter are skipped fast
_DEFINITION = re.compile(r"\\(" + "|".join(_READERS) + r")(?![A-Za-z@])\s*+\*?\s*+")


def pack_macros(tables: list[dict[str, Macro]], epochs: list[int]) -> bytes:
    """Return tables of macros, and which of them holds for each equation of a document, as they are stored."""
    if not any(tables):
        return b""
    # Of the tables after the first, only what they change: a long work defines the same names in every chapter.
    pairs = zip([{}, *tables], tables, strict=False)
    changes = [[macro for name, macro in after.items() if before.get(name) != macro] for before, after in pairs]
    return zstandard.compress(orjson.dumps({"tables": changes, "epochs": epochs}), 1)


def unpack_macros(packed: bytes, equations: int = 0) -> tuple[list[dict[str, Macro]], list[int]]:
    """Return the tables that `pack_macros` stored, and which of them holds for each of some equations."""
    if not packed:
        return [{}], [0] * equations
    stored = orjson.loads(zstandard.decompress(packed))
    tables: list[dict[str, Macro]] = []
    for changes in stored["tables"]:
        macros = map(_build_macro, changes)
        tables.append({**(tables[-1] if tables else {}), **{macro.name: macro for macro in macros}})
    return tables, stored["epochs"]


def _build_macro(stored: dict[str, Any]) -> Macro:
    return Macro(**stored | {"args": tuple(map(tuple, stored["args"]))})


_DECODER = json.JSONDecoder()


class MacroTables:
    """The macros of a paper as they are first defined: few of them are needed for some text.

    Args:
        packed: What `pack_macros` returned.
    """

    def __init__(self, packed: bytes) -> None:
        self._stored = zstandard.decompress(packed).decode() if packed else ""

    def find(self, name: str) -> Macro | None:
        """Return a macro; None for an unknown name."""
        # Some papers define a thousand macros, and to read them all took 2 ms of each search. So only the one that is
        # asked for is looked up in the stored text and read.
        start = self._stored.find(f'{{"name":{orjson.dumps(name).decode()},')
        if start < 0:
            return None
        stored, _ = _DECODER.raw_decode(self._stored, start)
        return _build_macro(stored)


@lru_cache(_MAX_UNPACKED)
def open_macros(packed: bytes) -> MacroTables:
    """Return the tables of a paper; those of the papers read last stay in memory."""
    return MacroTables(packed)


def expand_macros(text: str, find_macro: Callable[[str], Macro | None]) -> str:
    """Expand the macros in a short text such as a title, given by name; what would grow too much stays as it is."""
    for _ in range(_MACRO_ROUNDS):
        macros = {word: find_macro(word.rstrip("*")) for word in set(_CONTROL_WORD.findall(text))}
        if not any(macros.values()):
            break
        scanner = Scanner(text)
        expanded = ""
        at = done = 0
        while match := _CONTROL_WORD.search(text, at):
            at = match.end()
            macro = macros[match[0]]
            if macro is None or macro.alias or macro.prefix or any(kind[0] in "ud" for kind in macro.args):
                continue
            expanded += text[done : match.start()]
            start = match.start() + len(match[0].rstrip("*"))
            written, at = fill_arguments(scanner, start, kinds=macro.args, body=macro.body)
            # Letters after a command would be taken for a part of its name.
            if written[:1].isalpha() and _CONTROL_WORD_END.search(expanded[-_MAX_NAME:]):
                expanded += " "
            expanded += written
            done = at
        expanded += text[done:]
        if expanded == text or len(expanded) > _MAX_EXPANDED:
            break
        text = expanded
    return text


def fill_arguments(scanner: Scanner, at: int, *, kinds: tuple[Argument, ...], body: str) -> tuple[str, int]:
    """Return the body with the arguments at `at` filled in, and the index after them."""
    values: list[str] = []
    for kind in kinds:
        value = ""
        if kind[0] == "s":
            at = scanner.skip_space(at)
            at += scanner.text[at : at + 1] == "*"
        elif kind[0] in "og":
            default = kind[1] if len(kind) > 1 else ""
            found = scanner.read_bracket(at) if kind[0] == "o" else scanner.read_group(at)
            value, at = found or (default, at)
        else:
            value, at = scanner.read_argument(at)
        values.append(value)
    if "#" not in body:
        return body + " ", at
    return _PARAMETER.sub(lambda m: values[int(m[1]) - 1] if int(m[1]) <= len(values) else "", body), at
