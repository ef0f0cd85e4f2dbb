r"""Formulas of one document -> trees, with a second chance for what fails at first.

1. As written, with the document's macros and the preludes of its packages.
2. An undefined command that some known package provides is taken from there. One that nobody provides becomes a named
   symbol or operator with as many arguments as its uses suggest, and the formula counts as degraded.
3. Slips that TeX forgives or people make are mended (`repairs`), and the formula counts as repaired.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..forest.forest import Forest, ForestBuilder
from ..latex.macros import Macro
from ..latex.packages import PRELUDES, providers
from ..latex.scan import group_end, skip_space
from .converter import Converter, Failure
from .repairs import repaired

_ROUNDS = 12  # undefined commands show one at a time
_DIAGRAM_COMMANDS = frozenset(
    r"\xymatrix \xygraph \xy \diagram \Qcircuit \includegraphics \tikz \feynmandiagram \tikzfig \begindc \epsfig"
    r" \epsfbox \drawline"
    r" \put \line \fmfleft \psfig \adjincludegraphics \xyoption \dynkin \AxiomC \AXC \UnaryInfC \DisplayProof".split()
)
_DIAGRAM_ENVIRONMENT = re.compile(r"No such environment: (?:tikz|xy|picture|feyn|CD|quantikz|prooftree|axis|pgf)")


@dataclass
class Outcome:
    """What became of one formula."""

    tree: int = -1  # index in the forest, -1 if it failed
    failure: Failure | None = None
    unknown: tuple[str, ...] = ()  # commands nobody defines, shown by name
    repaired: bool = False


@dataclass
class Conversion:
    """Trees of a document's formulas and what became of each."""

    forest: Forest
    outcomes: list[Outcome]


@dataclass
class _State:
    packages: list[str]
    definitions: dict[str, Macro]
    borrowed: dict[str, Macro] = field(default_factory=dict)
    unknown: dict[str, Macro] = field(default_factory=dict)


def convert(
    converter: Converter,
    formulas: Sequence[str],
    packages: Iterable[str] | None = None,
    definitions: dict[str, Macro] | None = None,
) -> Conversion:
    """Convert the formulas of one document; `packages` None means that its preamble is not known."""
    state = _State(list(packages or []), dict(definitions or {}))
    builder = ForestBuilder()
    outcomes = [Outcome() for _ in formulas]
    texts = list(formulas)
    counter = _Counter(builder, outcomes)
    converter.set_macros(state.packages, state.definitions.values())
    counter.take(range(len(texts)), *converter.trees(texts))
    _resolve_undefined(converter, texts, state, counter)
    for _ in range(4):
        again = [
            i for i in counter.failed() if (text := repaired(texts[i], outcomes[i].failure)) and _set(texts, i, text)
        ]
        if not again:
            break
        for i in again:
            outcomes[i].repaired = True
        counter.take(again, *converter.trees([texts[i] for i in again]))
        _resolve_undefined(converter, texts, state, counter)
    for outcome in outcomes:
        outcome.unknown = tuple(name for name in outcome.unknown if name)
    return Conversion(builder.build(), outcomes)


def _set(texts: list[str], i: int, text: str) -> bool:
    changed = texts[i] != text
    texts[i] = text
    return changed


class _Counter:
    """Puts the results of each attempt in their places."""

    def __init__(self, builder: ForestBuilder, outcomes: list[Outcome]) -> None:
        self.builder, self.outcomes, self.trees = builder, outcomes, 0

    def take(self, indices: Iterable[int], forest: Forest, failures: list[Failure | None]) -> None:
        self.builder.add_forest(forest)
        for i, failure in zip(indices, failures, strict=True):
            self.outcomes[i].failure = failure
            if failure is None:
                self.outcomes[i].tree = self.trees
                self.trees += 1

    def failed(self) -> list[int]:
        return [i for i, outcome in enumerate(self.outcomes) if outcome.failure is not None]


def _resolve_undefined(converter: Converter, texts: list[str], state: _State, counter: _Counter) -> None:
    outcomes = counter.outcomes
    for _ in range(_ROUNDS):
        pending = [
            i
            for i in counter.failed()
            if (f := outcomes[i].failure) and f.command and f.command not in _DIAGRAM_COMMANDS
        ]
        pending = [i for i in pending if len(outcomes[i].unknown) < _ROUNDS]
        if not pending:
            return
        for i in pending:
            failure = outcomes[i].failure
            name = failure.command if failure else ""
            if name not in state.borrowed and name not in state.unknown:
                _provide(name, texts, state)
            if name in state.unknown and name not in outcomes[i].unknown:
                outcomes[i].unknown += (name,)
            elif name in outcomes[i].unknown or name in state.borrowed:
                outcomes[i].unknown += ("",)  # counts the round; seen again means it cannot be helped
        converter.set_macros(
            state.packages, [*state.borrowed.values(), *state.definitions.values()], state.unknown.values()
        )
        counter.take(pending, *converter.trees([texts[i] for i in pending]))


def _provide(name: str, texts: list[str], state: _State) -> None:
    package = providers().get(name)
    arguments = arity([*texts, *(macro.body for macro in state.definitions.values())], name)
    macro = PRELUDES[package][name] if package else None
    # the same name with another number of arguments is another command
    if macro and sum(kind[0] == "m" for kind in macro.args) in (arguments, 0):
        state.borrowed[name] = macro
    else:
        state.unknown[name] = stand_in(name, arguments)


def arity(texts: Iterable[str], command: str) -> int:
    r"""How many braced arguments a command seems to take: the commonest number of `{...}` groups right after it."""
    counts: Counter[int] = Counter()
    pattern = re.compile(re.escape(command) + (r"(?![A-Za-z])" if command[-1:].isalpha() else ""))
    for text in texts:
        for match in pattern.finditer(text) if command in text else ():
            n, at = 0, match.end()
            while n < 9 and text[at : at + 1] == "{":
                end = group_end(text, at)
                if end < 0:
                    break
                n, at = n + 1, end
                following = skip_space(text, at)
                at = following if text[following : following + 1] == "{" else at
            counts[n] += 1
        if sum(counts.values()) > 200:
            break
    if not counts:
        return 0
    # {} after a command without arguments only ends its name; real arguments are the rule, not the exception
    return max(counts, key=lambda n: (counts[n], -n))


def stand_in(command: str, arguments: int) -> Macro:
    r"""A macro that shows an unknown command by name: `\foo` as a symbol, `\foo{a}` as an operator with arguments."""
    name = "".join(letter for letter in command if letter.isalnum()) or "?"
    values = "".join(f"{{#{i + 1}}}" for i in range(arguments))
    shown = rf"\operatorname{{{name}}}" if arguments else rf"\mathrm{{{name}}}"
    return Macro(command, (("m",),) * arguments, rf"\TextOrMath{{{name} }}{{{shown}}}{values}")


def is_diagram(failure: Failure) -> bool:
    """Whether a formula failed because it draws a picture."""
    return failure.command in _DIAGRAM_COMMANDS or _DIAGRAM_ENVIRONMENT.match(failure.message) is not None
