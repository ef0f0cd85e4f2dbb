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
from itertools import islice

from eqkin.forest.forest import Forest, ForestBuilder
from eqkin.latex.macros import Macro
from eqkin.latex.packages import PRELUDES, providers
from eqkin.latex.scan import group_end, skip_space
from eqkin.mathml.converter import Converter, Failure, Trees
from eqkin.mathml.repairs import repaired

_USES = 50  # of an unknown command, looked at to guess its arguments
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
    uses: str = ""  # all formulas and macro bodies, once they are needed


def convert(
    converter: Converter,
    formulas: Sequence[str],
    packages: Iterable[str] | None = None,
    definitions: dict[str, Macro] | None = None,
) -> Conversion:
    """Convert the formulas of one document; `packages` None means that its preamble is not known."""
    state = _State(list(packages or []), definitions or {})
    attempts = _Attempts(converter, list(formulas))
    missing, first = converter.open_document(state.packages, state.definitions.values(), formulas)
    done = len(first.failures)
    attempts.take(range(done), first)
    _provide_all(converter, missing, formulas, state)
    attempts.make(range(done, len(formulas)))
    for _ in range(_ROUNDS):
        again = attempts.undefined(state)
        if again:  # a command that only shows when macros are expanded
            names = {attempts.outcomes[i].failure.command for i in again}  # type: ignore[union-attr]
            _provide_all(converter, sorted(names), attempts.texts, state)
        else:
            again = attempts.mend()
        if not again:
            break
        attempts.make(again)
    return Conversion(attempts.builder.build(), attempts.outcomes)


class _Attempts:
    """Formulas, what became of each so far, and the trees of those that are done."""

    def __init__(self, converter: Converter, texts: list[str]) -> None:
        self.converter, self.texts = converter, texts
        self.builder, self.trees = ForestBuilder(), 0
        self.outcomes = [Outcome() for _ in texts]

    def make(self, indices: Sequence[int]) -> None:
        """Try these formulas (again)."""
        if indices:
            self.take(indices, self.converter.trees([self.texts[i] for i in indices]))

    def take(self, indices: Sequence[int], trees: Trees) -> None:
        """Put the results of an attempt in their places."""
        self.builder.add_forest(trees.forest)
        for i, failure, names in zip(indices, trees.failures, trees.unknown, strict=True):
            outcome = self.outcomes[i]
            outcome.failure, outcome.unknown = failure, tuple(names)
            if failure is None:
                outcome.tree = self.trees
                self.trees += 1

    def undefined(self, state: _State) -> list[int]:
        """Formulas that failed for a command which can still be provided."""
        settled = state.borrowed.keys() | state.unknown.keys() | _DIAGRAM_COMMANDS
        failures = ((i, outcome.failure) for i, outcome in enumerate(self.outcomes) if outcome.failure is not None)
        return [i for i, failure in failures if failure.command and failure.command not in settled]

    def mend(self) -> list[int]:
        """Repair formulas that failed; returns those that changed."""
        again = []
        for i, outcome in enumerate(self.outcomes):
            text = repaired(self.texts[i], outcome.failure)
            if text and text != self.texts[i]:
                self.texts[i], outcome.repaired = text, True
                again.append(i)
        return again


def _provide_all(converter: Converter, names: Sequence[str], texts: Sequence[str], state: _State) -> None:
    """Find a meaning for undefined commands, and for those that come up with it."""
    missing = [name for name in names if name not in _DIAGRAM_COMMANDS]
    while missing:
        borrowed, unknown = len(state.borrowed), len(state.unknown)
        for name in missing:
            if name not in state.borrowed and name not in state.unknown:
                _provide(name, texts, state)
        new = list(state.borrowed.values())[borrowed:], list(state.unknown.values())[unknown:]
        if not any(new):
            return
        missing = converter.add_macros(*new)


def _provide(name: str, texts: Sequence[str], state: _State) -> None:
    package = providers().get(name)
    if not state.uses:
        state.uses = "\n".join([*texts, *(macro.body for macro in state.definitions.values())])
    arguments = arity(state.uses, name)
    macro = PRELUDES[package][name] if package else None
    # the same name with another number of arguments is another command
    if macro and sum(kind[0] == "m" for kind in macro.args) in (arguments, 0):
        state.borrowed[name] = macro
    else:
        state.unknown[name] = stand_in(name, arguments)


def arity(text: str, command: str) -> int:
    r"""How many braced arguments a command seems to take: the commonest number of `{...}` groups right after it."""
    counts: Counter[int] = Counter()
    uses = re.finditer(re.escape(command) + (r"(?![A-Za-z])" if command[-1:].isalpha() else ""), text)
    for use in islice(uses, _USES):
        n, at = 0, use.end()
        while n < 9 and text[at : at + 1] == "{":
            end = group_end(text, at)
            if end < 0:
                break
            n, at = n + 1, end
            following = skip_space(text, at)
            at = following if text[following : following + 1] == "{" else at
        counts[n] += 1
    return max(counts, key=lambda n: (counts[n], -n)) if counts else 0


def stand_in(command: str, arguments: int) -> Macro:
    r"""A macro that shows an unknown command by name: `\foo` as a symbol, `\foo{a}` as an operator with arguments."""
    name = "".join(letter for letter in command if letter.isalnum()) or "?"
    values = "".join(f"{{#{i + 1}}}" for i in range(arguments))
    shown = rf"\operatorname{{{name}}}" if arguments else rf"\mathrm{{{name}}}"
    return Macro(command, (("m",),) * arguments, rf"\TextOrMath{{{name} }}{{{shown}}}{values}")


def is_diagram(failure: Failure) -> bool:
    """Whether a formula failed because it draws a picture."""
    return failure.command in _DIAGRAM_COMMANDS or _DIAGRAM_ENVIRONMENT.match(failure.message) is not None
