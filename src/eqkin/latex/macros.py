r"""Macro definitions of a document: names, arguments and bodies; and those of packages.

\newcommand and variants (optional arguments, \newcommandx, xparse), \def with delimited parameters, \let,
\DeclareMathOperator, \DeclarePairedDelimiter and \newenvironment are read. A definition that cannot be read is left out:
it costs the equations that use it, not the paper.

Each file of `preludes/` defines the commands of one package in terms of what KaTeX knows; a paper gets those of the packages
it loads, and always `latex`. If the preamble of a paper is unknown or incomplete, `find_providers` names the package that
would have defined a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from eqkin.latex.scan import read_bracket, read_group, skip_space, strip_comments
from eqkin.limits import LIMITS

Argument = tuple[str, ...]  # ("m",) | ("o", default) | ("o",) | ("s",) | ("g",) | ("d", open, close) | ("u", delimiter)

_NAME = re.compile(r"\\(?:[A-Za-z@]+|[^A-Za-z@\s])")
# what the name of a new alphabet says about it
_ALPHABETS = (("bb", r"\mathbb"), ("ds", r"\mathbb"), ("frak", r"\mathfrak"), ("sf", r"\mathsf"), ("bf", r"\mathbf"))
_PARAMETER = re.compile(r"#([1-9])")
_CSNAME = re.compile(r"\\expandafter\s*\\([gex]?def)\s*\\csname\s+([A-Za-z@]+)\s*\\endcsname")
# what holds a formula together is never redefined: class files do so locally, for titles and lists
RESERVED_COMMANDS = frozenset(
    r"\\ \begin \end \left \right \middle \text \mbox \hbox \relax \let \def \label \tag \[ \] \( \) \& \% \$ \#"
    r" \_ \{ \} \, \; \: \!"
    r" \newline \par \item \index \section \footnote \cr \displaystyle \textstyle \limits \nolimits"
    r" \tabularnewline \hline \small"
    r" \footnotesize \normalsize \large \rm \bf \it \cite \ref \eqref \color \textcolor \ensuremath \protect \number"
    r" \the".split()
)


@dataclass(frozen=True)
class Macro:
    """One command: `name` with its backslash, its arguments, its body with `#1`.. in it."""

    name: str
    args: tuple[Argument, ...]
    body: str
    prefix: str = ""  # literal text of a \def between the name and the first parameter
    alias: str = ""  # for \let: the command it equals (body unused)
    weak: bool = False  # holds only where nothing else defines the name


@dataclass(frozen=True)
class Environment:
    r"""A \newenvironment: what its begin (with arguments) and its end stand for."""

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
    """All definitions in `text` from `start` on, in order (comments stripped); what cannot be read is passed over."""
    if "\\csname" in text:
        text = _CSNAME.sub(lambda m: rf"\{m[1]}\{m[2]}" + " " * (len(m[0]) - len(m[1]) - len(m[2]) - 2), text)
    found: list[Definition] = []
    at = start
    while match := _DEFINITION.search(text, at):
        result = _READERS[match[1]](text, match.end(), match)
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


def _read_name(text: str, at: int) -> tuple[str, int] | None:
    r"""A command name, bare (`\foo`) or in braces (`{\foo}`)."""
    at = skip_space(text, at)
    if text[at : at + 1] == "{":
        group = read_group(text, at)
        if group is None:
            return None
        name, end = group[0].strip(), group[1]
        return (name, end) if _NAME.fullmatch(name) else None
    match = _NAME.match(text, at)
    return (match[0], match.end()) if match else None


_ReadResult = tuple[Macro | Environment, int] | None


# the form nearly all definitions have, read in one go: \newcommand{\name}[n]{body with braces at most two deep}
_PLAIN_NEWCOMMAND = re.compile(
    r"(?:\{\s*+(\\(?:[A-Za-z@]++|[^A-Za-z@\s]))\s*+\}|(\\(?:[A-Za-z@]++|[^A-Za-z@\s])))\s*+(?:\[([1-9])\]\s*+)?"
    r"\{((?:[^{}\\]++|\\.|\{(?:[^{}\\]++|\\.|\{(?:[^{}\\]++|\\.)*+\})*+\})*+)\}",
    re.DOTALL,
)
_MANDATORY_ARGUMENTS: tuple[tuple[Argument, ...], ...] = tuple((("m",),) * n for n in range(10))


def _read_newcommand(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    plain = _PLAIN_NEWCOMMAND.match(text, at)
    if plain:
        braced, bare, count, body = plain.groups()
        weak = match[1].startswith("provide")
        return Macro(braced or bare, _MANDATORY_ARGUMENTS[int(count or 0)], body, weak=weak), plain.end()
    named = _read_name(text, at)
    if named is None:
        return None
    name, at = named
    args, at = _read_bracketed_arguments(text, at, extended=match[1].endswith("x"))
    group = read_group(text, at)
    if group is None:  # \newcommand\x y: a single token
        token = _NAME.match(text, skip_space(text, at))
        group = (token[0], token.end()) if token else None
    return (Macro(name, args, group[0], weak=match[1].startswith("provide")), group[1]) if group else None


def _read_bracketed_arguments(text: str, at: int, extended: bool = False) -> tuple[tuple[Argument, ...], int]:
    r"""`[n][default]` of \newcommand, or `[n][1=a, 3=b]` of \newcommandx."""
    count = read_bracket(text, at)
    if count is None or not count[0].strip().isdigit():
        return (), at
    n, at = min(int(count[0]), 9), count[1]
    args: list[Argument] = [("m",)] * n
    default = read_bracket(text, at)
    if default is not None and n:
        at = default[1]
        if extended:
            for number, value in re.findall(r"(?:^|,)\s*([1-9])\s*=\s*([^,]*)", default[0]):
                if int(number) <= n:
                    args[int(number) - 1] = ("o", value.strip().removeprefix("{").removesuffix("}"))
        else:
            args[0] = ("o", default[0])
    return tuple(args), at


def _read_def(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    name = _NAME.match(text, skip_space(text, at))
    if name is None:
        return None
    brace = text.find("{", name.end(), name.end() + 200)
    if brace < 0:
        return None
    parameters = text[name.end() : brace]
    body = read_group(text, brace)
    if body is None or "\n\n" in parameters:
        return None
    pieces = _PARAMETER.split(parameters)
    if "#" in "".join(pieces[::2]):  # a definition inside another one's body
        return None
    args = tuple(("u", delimiter) if delimiter.strip() else ("m",) for delimiter in pieces[2::2])
    return Macro(name[0], args, body[0], prefix=pieces[0].strip()), body[1]


def _read_let(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    name = _NAME.match(text, skip_space(text, at))
    if name is None:
        return None
    at = skip_space(text, name.end())
    if text[at : at + 1] == "=":
        at = skip_space(text, at + 1)
    target = _NAME.match(text, at)
    if target is None:
        return (Macro(name[0], (), text[at]), at + 1) if at < len(text) and text[at] not in "{}\\#%" else None
    return Macro(name[0], (), "", alias=target[0]), target.end()


def _read_operator(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(text, at)
    body = read_group(text, named[1]) if named else None
    if named is None or body is None:
        return None
    return Macro(named[0], (), rf"\operatorname{'*' if '*' in match[0] else ''}{{{body[0]}}}"), body[1]


# how many groups follow the name
_PAIRED_DELIMITERS = {"DeclarePairedDelimiter": 2, "DeclarePairedDelimiterX": 3, "DeclarePairedDelimiterXPP": 5}


def _read_paired(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    r"""\DeclarePairedDelimiter{\abs}{\lvert}{\rvert}; X takes [n] and a body in which \delimsize is the size."""
    named = _read_name(text, at)
    if named is None:
        return None
    name, at = named
    extended = match[1] != "DeclarePairedDelimiter"
    count = 1
    if extended:
        bracket = read_bracket(text, at)
        if bracket is None or not bracket[0].strip().isdigit():
            return None
        count, at = min(int(bracket[0]), 7), bracket[1]
    groups: list[str] = []
    for _ in range(_PAIRED_DELIMITERS[match[1]]):
        group = _read_token_or_group(text, at)
        if group is None:
            return None
        groups.append(group[0])
        at = group[1]
    pre, (left, right), post = "", groups[:2], ""
    inner = "#1"
    if len(groups) == 3:
        inner = groups[2]
    elif len(groups) == 5:
        pre, left, right, post, inner = groups
    body = rf"{pre}\left{left or '.'}{inner.replace(chr(92) + 'delimsize', '')}\right{right or '.'}{post}"
    # arguments move up by two: the star and the optional size come first
    body = _PARAMETER.sub(lambda m: f"#{int(m[1]) + 2}", body)
    return Macro(name, (("s",), ("o", "")) + (("m",),) * count, body), at


def _read_token_or_group(text: str, at: int) -> tuple[str, int] | None:
    group = read_group(text, at)
    if group is not None:
        return group
    at = skip_space(text, at)
    token = _NAME.match(text, at)
    if token:
        return token[0], token.end()
    return (text[at], at + 1) if at < len(text) else None


def _read_document(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    r"""xparse: \NewDocumentCommand{\foo}{s o O{x} m d()}{body}."""
    named = _read_name(text, at)
    spec = read_group(text, named[1]) if named else None
    body = read_group(text, spec[1]) if spec else None
    if named is None or spec is None or body is None:
        return None
    args: list[Argument] = []
    at, letters = 0, spec[0]
    while at < len(letters):
        letter = letters[at]
        at += 1
        if letter in "mrR":
            args.append(("m",))
        elif letter == "s" or letter == "t":
            args.append(("s",))
        elif letter in "og":
            args.append((letter,))
        elif letter == "O":
            default = read_group(letters, at) or ("", at)
            args.append(("o", default[0]))
            at = default[1]
        elif letter in "dD" and at + 1 < len(letters):
            args.append(("d", letters[at], letters[at + 1]))
            at += 2
            if letter == "D":
                at = (read_group(letters, at) or ("", at))[1]
    return Macro(named[0], tuple(args[:9]), body[0]), body[1]


def _read_environment(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    name = read_group(text, at)
    if name is None:
        return None
    args, at = _read_bracketed_arguments(text, name[1])
    begin = read_group(text, at)
    end = read_group(text, begin[1]) if begin else None
    if begin is None or end is None:
        return None
    return Environment(name[0].strip(), args, begin[0], end[0]), end[1]


def _read_alphabet(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(text, at)
    if named is None:
        return None
    letters = named[0].lower()
    font = next((font for sign, font in _ALPHABETS if sign in letters), r"\mathcal")
    return Macro(named[0], (("m",),), rf"{font}{{#1}}", weak=True), named[1]


def _read_symbol(text: str, at: int, match: re.Match[str]) -> _ReadResult:
    named = _read_name(text, at)
    if named is None or len(named[0]) < 3:
        return None
    return Macro(named[0], (), rf"\mathrm{{{named[0][1:].replace('@', '')}}}", weak=True), named[1]


_NEWCOMMANDS = (
    "newcommand renewcommand providecommand newcommandx renewcommandx providecommandx DeclareRobustCommand newrobustcmd"
    " renewrobustcmd"
).split()
_DOCUMENT_COMMANDS = [
    a + b + "DocumentCommand" for a in ("New", "Renew", "Provide", "Declare") for b in ("", "Expandable")
]
_READERS: dict[str, Callable[[str, int, re.Match[str]], _ReadResult]] = {
    **dict.fromkeys(_NEWCOMMANDS, _read_newcommand),
    **dict.fromkeys(("def", "gdef", "edef", "xdef"), _read_def),
    "let": _read_let,
    "DeclareMathOperator": _read_operator,
    **dict.fromkeys(_PAIRED_DELIMITERS, _read_paired),
    **dict.fromkeys(_DOCUMENT_COMMANDS, _read_document),
    **dict.fromkeys(("newenvironment", "renewenvironment"), _read_environment),
    "DeclareMathAlphabet": _read_alphabet,
    **dict.fromkeys(("DeclareMathSymbol", "mathchardef"), _read_symbol),
}
# alternatives that start with a plain letter are passed over fast
_DEFINITION = re.compile(r"\\(" + "|".join(_READERS) + r")(?![A-Za-z@])\s*+\*?\s*+")


def _load_preludes() -> dict[str, dict[str, Macro]]:
    preludes: dict[str, dict[str, Macro]] = {}
    folder = resources.files("eqkin.latex").joinpath("preludes")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".tex"):
            found = find_definitions(strip_comments(entry.read_text("utf-8")))
            preludes[entry.name.removesuffix(".tex")] = {
                d.value.name: d.value for d in found if isinstance(d.value, Macro)
            }
    return preludes


PRELUDES = _load_preludes()
_LAST_RESORTS = frozenset({"conventions", "peeters_macros"})  # asked after the packages proper


@cache
def find_providers() -> dict[str, str]:
    """For every command some prelude defines: the package to take it from when none was loaded (`latex` excluded)."""
    order = sorted(PRELUDES, key=lambda package: (package in _LAST_RESORTS, package), reverse=True)
    return {name: package for package in order if package != "latex" for name in PRELUDES[package]}
