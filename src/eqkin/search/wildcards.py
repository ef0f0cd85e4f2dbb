r"""Match queries with wildcards: does a tree, or a part of it, have the form of `?a^2 + ?b^2 = ?c^2`?

A wildcard matches an expression: any sequence of members of a row, the shortest first, whose brackets are balanced and
whose operators have operands; or all of a slot (an exponent, a numerator). The same wildcard matches the same
everywhere, except for brackets around it. All else in the pattern matches itself, as `eqkin.trees.rows` reads trees.
The search tries choices in a fixed order: the whole tree first, then its rows from the top down, where only a wildcard
that is all of a side, as in `?p = ?q`, may contain a relation (`a < b`); then the same with any that contain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.mathml import Node, list_nodes, to_forest, to_node
from eqkin.trees.rows import ItemRow, RowItem, RowReader, build_node

MAX_STEPS = 10_000  # of one search
_FREE_LETTERS = "xyzabcnmkstuvwfghpqrijABCXYZFGHMNKPQRSTUVWdeloDEIJLO"
_WILDCARD_NAME = re.compile(r"\?\w+")

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PatternMatch:
    """Match of a tree with a pattern. Nodes are numbered in breadth-first order, as in the forest."""

    whole: bool  # the whole tree matches, not only a part
    bindings: dict[str, Node]  # what each wildcard ("?x") matches
    pairs: tuple[tuple[int, int], ...]  # matching nodes of pattern and tree, ascending


class Pattern:
    """A formula with wildcards, prepared for matching many trees."""

    def __init__(self, root: Node) -> None:
        self._reader = RowReader()
        self._row = self._reader.read(root)
        self._wild = {item.code: item.text for item in _iter_items(self._row) if item.node and is_wildcard(item.node)}
        self._open = set(self._wild)  # codes of items that contain wildcards
        _mark_open(self._row, self._open)
        self._outer = set(self._row.codes) - self._open
        self._needed = set(_iter_closed(self._row, self._open))

    def match(self, root: Node, limit: int = MAX_STEPS) -> PatternMatch | None:
        """Return the first match of a tree or a part of it; None if there is none within `limit` steps."""
        row = self._reader.copy().read(root)
        items = list(_iter_items(row))
        if not self._row.items or not self._needed.issubset({item.code for item in items}):
            return None
        rows = [row, *(slot for item in items for slot in item.slots)]
        rows = [inner for inner in rows if self._outer.issubset(inner.codes)]
        search = _PatternSearch(self._wild, self._open, limit)
        try:
            for search.statements in (False, True):
                if search.run(_Goal(self._row.items, 0, row, 0, True, None)):
                    return search.build_match(whole=True)
                for inner in rows:
                    for start in range(len(inner.items) - len(self._row.items) + 1):
                        if search.run(_Goal(self._row.items, 0, inner, start, False, None)):
                            return search.build_match(whole=False)
        except _Exhausted:
            pass
        return None


def is_wildcard(node: Node) -> bool:
    """Return whether a leaf of a query's tree is a wildcard."""
    return node.tag == "mi" and _WILDCARD_NAME.fullmatch(node.text) is not None


def find_wildcards(root: Node) -> tuple[str, ...]:
    """Return the names of the wildcards in a query's tree (`?x`), in reading order."""
    found: dict[str, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if is_wildcard(node):
            found[node.text] = None
        stack.extend(reversed(node.children))
    return tuple(found)


def replace_wildcards(forest: Forest) -> Forest:
    """Replace each wildcard by a letter: its own if that does not occur otherwise, else another one."""
    if not any(text.startswith("?") for text in forest.texts):
        return forest
    roots = [to_node(forest, index) for index in range(len(forest))]
    nodes = [node for root in roots for node in list_nodes(root)]
    wild = [node for node in nodes if is_wildcard(node)]
    taken = {node.text for node in nodes}
    names = list(dict.fromkeys(node.text for node in wild))
    letters = {name: name[1:] for name in names if len(name) == 2 and name[1:] not in taken}
    free = (letter for letter in chain(_FREE_LETTERS, (f"x{number}" for number in count())) if letter not in taken)
    taken.update(letters.values())
    letters = {name: letters.get(name) or next(free) for name in names}
    for node in wild:
        node.text, node.attributes = letters[node.text], {}
    builder = ForestBuilder()
    for root in roots:
        builder.add_forest(to_forest(root))
    return builder.build()


class _Exhausted(Exception):
    """The search took more steps than allowed."""


class _Goal(NamedTuple):
    """Members `at` to the end of a pattern must match members `place` on of a row; then comes the goal `then`."""

    pattern: tuple[RowItem, ...]
    at: int
    row: ItemRow
    place: int
    to_end: bool  # of the row
    then: _Goal | None
    length: int = 0  # least length of what the next wildcard matches; the exact one, if it is bound


class _Binding(NamedTuple):
    codes: tuple[int, ...]  # without enclosing brackets
    run: tuple[RowItem, ...]


class _PatternSearch:
    """Backtracking search over the choices for wildcards."""

    def __init__(self, wild: dict[int, str], with_wildcards: set[int], limit: int) -> None:
        self._wild, self._open, self._left = wild, with_wildcards, limit
        self.statements = False  # whether any wildcard may contain a relation
        self._bound: dict[str, _Binding] = {}  # in the order of binding
        self._pairs: list[tuple[RowItem, tuple[RowItem, ...]]] = []
        self._choices: list[tuple[_Goal, int, int]] = []

    def run(self, goal: _Goal | None) -> bool:
        """Return whether a goal can be reached; `build_match` says how."""
        self._bound, self._pairs, self._choices = {}, [], []
        failed = False
        while goal is not None or failed:
            if failed:
                if not self._choices:
                    return False
                goal, bound, pairs = self._choices.pop()
                while len(self._bound) > bound:
                    self._bound.popitem()
                del self._pairs[pairs:]
            assert goal is not None
            self._spend(1)
            failed, goal = self._step(goal)
        return True

    def build_match(self, whole: bool) -> PatternMatch:
        """Return how the goal was reached."""
        pairs = {(0, 0)} if whole else set()
        for ours, theirs in self._pairs:
            if ours.code in self._wild:
                pairs.update((ours.number, number) for item in theirs for number in item.covers)
            else:
                pairs.update(_iter_pairs(ours, theirs[0], deep=ours.code not in self._open))
        bindings = {name: build_node(bound.run) for name, bound in self._bound.items()}
        return PatternMatch(whole, bindings, tuple(sorted(pairs)))

    def _step(self, goal: _Goal) -> tuple[bool, _Goal | None]:
        """Take one step; return whether it fails, and the remaining goal."""
        rest, room = len(goal.pattern) - goal.at, len(goal.row.items) - goal.place
        if room < rest or (not rest and goal.to_end and room):
            return True, None
        if not rest:
            return False, goal.then
        item, other = goal.pattern[goal.at], goal.row.items[goal.place]
        if item.code in self._wild:
            return self._bind_wildcard(goal, self._wild[item.code], room - rest + 1)
        if item.code != other.code:
            same_slots = bool(item.slots) and item.tag == other.tag and len(item.slots) == len(other.slots)
            if item.code not in self._open or not same_slots:
                return True, None
        following = self._advance(goal, 1)
        if item.code != other.code:
            for ours, theirs in zip(reversed(item.slots), reversed(other.slots), strict=True):
                following = _Goal(ours.items, 0, theirs, 0, True, following)
        return False, following

    def _bind_wildcard(self, goal: _Goal, name: str, most: int) -> tuple[bool, _Goal | None]:
        """Match a wildcard with the next members of the row, and store the other choices."""
        bound = self._bound.get(name)
        last = goal.to_end and goal.at == len(goal.pattern) - 1
        least = most if last else 1
        lengths = self._iter_bound_lengths(goal, bound) if bound else self._iter_lengths(goal, least, most)
        length = next(lengths, 0)
        if not length or length > most:
            return True, None
        more = length + 1 if bound is None else next(lengths, 0)
        if more and more <= most:
            self._choices.append((goal._replace(length=more), len(self._bound), len(self._pairs)))
        if bound is None:
            run = goal.row.items[goal.place : goal.place + length]
            start, end = goal.place, goal.place + length
            while end - start > 2 and goal.row.items[start].text == "(" and goal.row.partners[start] == end - 1:
                start, end = start + 1, end - 1  # without brackets around it
            self._bound[name] = _Binding(goal.row.codes[start:end], run)
        return False, self._advance(goal, length)

    def _advance(self, goal: _Goal, length: int) -> _Goal:
        run = goal.row.items[goal.place : goal.place + length]
        self._pairs.append((goal.pattern[goal.at], run))
        return _Goal(goal.pattern, goal.at + 1, goal.row, goal.place + length, goal.to_end, goal.then)

    def _iter_lengths(self, goal: _Goal, least: int, most: int) -> Iterator[int]:
        """Yield how many members can be an expression, ascending."""
        row, start, least = goal.row, goal.place, max(goal.length, least)
        reach, joins, states = start, True, False
        neighbours = goal.pattern[max(goal.at - 1, 0) : goal.at] + goal.pattern[goal.at + 1 : goal.at + 2]
        may_state = self.statements or all(item.is_relation for item in neighbours)
        begins = row.partners[start] != start or not row.items[start].needs_before
        for place in range(start, start + most):
            self._spend(1)
            partner, item = row.partners[place], row.items[place]
            if partner < start:
                return  # closes a bracket that was opened before
            states = states or (reach <= place and item.is_relation)
            reach, joins = max(reach, partner), joins and item.is_operator
            ends = partner != place or not item.needs_after
            length = place - start + 1
            if reach > place or length < least or not self._may_follow(goal, place + 1):
                continue
            if length == len(row.items) or (begins and ends and not joins and (may_state or not states)):
                yield length

    def _may_follow(self, goal: _Goal, place: int) -> bool:
        """Return whether the pattern's next member can be there, as far as its code shows."""
        code = goal.pattern[goal.at + 1].code if goal.at + 1 < len(goal.pattern) else -1
        return code < 0 or code in self._open or goal.row.codes[place] == code

    def _iter_bound_lengths(self, goal: _Goal, bound: _Binding) -> Iterator[int]:
        """Yield how many members repeat what a wildcard is bound to: as it is, or in brackets."""
        row, start, size = goal.row, goal.place, len(bound.codes)
        self._spend(size)
        if size >= goal.length and row.codes[start : start + size] == bound.codes:
            yield size
        end = row.partners[start]
        if row.items[start].text == "(" and row.codes[start + 1 : end] == bound.codes:
            yield end - start + 1

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _Exhausted


def _iter_pairs(item: RowItem, other: RowItem, deep: bool) -> Iterator[tuple[int, int]]:
    """Yield the numbers of two matching items, and of all below them if they are the same."""
    stack = [(item, other)]
    while stack:
        ours, theirs = stack.pop()
        if ours.number >= 0 and theirs.number >= 0:
            yield ours.number, theirs.number
        if deep:
            for slot, slot_there in zip(ours.slots, theirs.slots, strict=True):
                stack.extend(zip(slot.items, slot_there.items, strict=True))


def _iter_items(row: ItemRow) -> Iterator[RowItem]:
    """Yield all items of a row and below, from the top down."""
    level = [row]
    while level:
        for inner in level:
            yield from inner.items
        level = [slot for inner in level for item in inner.items for slot in item.slots]


def _mark_open(row: ItemRow, with_wildcards: set[int]) -> bool:
    """Add the codes of items that contain wildcards; return whether the row does."""
    found = False
    for item in row.items:
        if any([_mark_open(slot, with_wildcards) for slot in item.slots]):
            with_wildcards.add(item.code)
        found = found or item.code in with_wildcards
    return found


def _iter_closed(row: ItemRow, with_wildcards: set[int]) -> Iterator[int]:
    """Yield the codes of the largest items without wildcards."""
    for item in row.items:
        if item.code not in with_wildcards:
            yield item.code
        for slot in item.slots if item.code in with_wildcards else ():
            yield from _iter_closed(slot, with_wildcards)


def rank_matches_first(
    scores: Scores, pattern: Pattern, get_tree: Callable[[int], Node], chosen: Iterable[int]
) -> Scores:
    """Change scores in [0, 1] so that matches come first: of whole formulas, then of parts, then the rest.

    Args:
        scores: Of all formulas.
        pattern: Of a query with wildcards.
        get_tree: Returns the tree of a formula by its number.
        chosen: Numbers of the formulas to match; the others count as not matching.
    """
    raised = (scores / 3).astype(np.float32)
    for at in chosen:
        match = pattern.match(get_tree(at))
        if match is not None:
            raised[at] += np.float32((2 if match.whole else 1) / 3)
    return raised
