r"""Whether a formula states Bayes' law, or the law of total probability, by its shape alone.

    Bayes' law            P(a | b) = P(b | a) P(a) / P(b),   P(a | b) = P(a, b) / P(b),   P(a | b) \propto P(b | a) P(a)
    total probability     P(a) = \sum_b P(a | b) P(b),       P(a) = \int P(a | b) P(b) db

A conditional is a pair of brackets with one bar in it, a joint one has a comma or a cap. What the letters stand for
is not known: anything of that shape passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqkin.trees.mathml import Node

_BARS = frozenset("|∣")
_RELATIONS = frozenset({"=", "≡", "≔", ":=", "∝", "∼", "≈"})
_PROPORTIONAL = frozenset("∝∼")
_OPEN, _CLOSE = frozenset("(["), frozenset(")]")
_BOTH = frozenset({",", "∩", "∧", ";"})
_SUMS = frozenset("∑∫∬∭")
_OVER = "\0over"  # stands between the two parts of a fraction
_ROWS = frozenset({"mrow", "mstyle", "mpadded", "mtd"})


def states_bayes_law(root: Node) -> bool:
    """Whether a conditional stands on one side of a formula, and a quotient of such a kind on a later one."""
    for sides, relations in _statements(root):
        for at, side in enumerate(sides[:-1]):
            functions = {group.function for group in _groups(side) if group.conditional}
            if not functions:
                continue
            if any(_is_quotient(later, functions) for later in sides[at + 1 :]):
                return True
            following = _groups(sides[at + 1])
            if relations[at] in _PROPORTIONAL and any(group.conditional or group.joint for group in following):
                return True
    return False


def states_total_probability(root: Node) -> bool:
    """Whether something that is not conditional is a sum or an integral over a conditional."""
    for sides, _ in _statements(root):
        first = _groups(sides[0])
        if first and not any(group.conditional for group in first):
            for later in sides[1:]:
                conditional = {group.function for group in _groups(later) if group.conditional}
                if conditional and _SUMS & set(later) and not _is_quotient(later, conditional):
                    return True
    return False


@dataclass
class _Group:
    """What stands in a pair of brackets, without pairs within."""

    function: str  # what stands before them
    content: list[str]

    @property
    def conditional(self) -> bool:
        bars = [at for at, token in enumerate(self.content) if token in _BARS]
        return len(bars) == 1 and 0 < bars[0] < len(self.content) - 1  # two are an absolute value

    @property
    def joint(self) -> bool:
        return bool(_BOTH & set(self.content))


def _groups(tokens: Sequence[str]) -> list[_Group]:
    """All pairs of brackets."""
    found: list[_Group] = []
    opened: list[_Group] = []
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token in _OPEN:
            opened.append(_Group(before, []))
        elif token in _CLOSE:
            if opened:
                found.append(opened.pop())
        elif opened:
            opened[-1].content.append(token)
    return found


def _is_quotient(tokens: Sequence[str], functions: set[str]) -> bool:
    """Whether there is a fraction, or a slash, of a conditional, a joint, or one of the functions over a function."""
    for at, token in enumerate(tokens):
        if token in (_OVER, "/"):
            above, below = _groups(tokens[:at]), _groups(tokens[at + 1 :])
            same = {group.function for group in above} & {group.function for group in below} & functions - {""}
            if same or (below and any(group.conditional or group.joint for group in above)):
                return True
    return False


def _statements(root: Node) -> Iterator[tuple[list[list[str]], list[str]]]:
    """The lines of a formula, each as the sides of its relation signs and these signs."""
    for line in _lines(root):
        sides: list[list[str]] = [[]]
        relations: list[str] = []
        depth = 0  # of brackets: a relation within is part of an event
        for node in line:
            if node.text in _RELATIONS and depth <= 0:
                relations.append(node.text)
                sides.append([])
                continue
            tokens = _tokens([node])
            depth += sum((token in _OPEN) - (token in _CLOSE) for token in tokens)
            sides[-1] += tokens
        yield sides, relations


def _lines(root: Node) -> Iterator[list[Node]]:
    """The lines of a table, or the formula as one; rows within rows are taken apart."""
    flat: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.tag in _ROWS:
            stack.extend(reversed(node.children))
        else:
            flat.append(node)
    tables = [node for node in flat if node.tag == "mtable"]
    if not tables:
        yield flat
    for table in tables:
        for row in table.children:
            yield from _lines(Node("mrow", children=row.children))


def _tokens(nodes: Sequence[Node]) -> list[str]:
    """The leaves of some nodes from left to right, with a sign of its own between the parts of a fraction."""
    found: list[str] = []
    stack: list[Node | str] = list(reversed(nodes))
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif item.tag == "mfrac" and len(item.children) == 2:
            stack.extend([item.children[1], _OVER, item.children[0]])
        elif item.children:
            stack.extend(reversed(item.children))
        elif item.text:
            found.append(item.text)
    return found
