"""Match operator trees: does one occur in another, as it is, under other names, or with wildcards filled in?

A pattern matches a tree, or a part of it, node by node. Operands that commute match in any order. A part of a sum, a
product, a chain of relations or a list is a part of the tree: `a + b` occurs in `a + b + c`. A wildcard (a variable
`?x`) matches a whole operand; the last wildcard among operands that commute matches all that remain. The same wildcard
matches the same everywhere. With `rename`, variables may have other names: always the same, and different ones for
different variables.

The search tries choices in a fixed order and gives up after a number of steps: it is deterministic and never slow.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, islice, product
from typing import NamedTuple

from eqkin.trees.operators import UNORDERED, OperatorForest, StoredLabels

MAX_STEPS = 3_000  # of one search
MAX_ALIGNED_NODES = 400  # of a tree; larger ones are only aligned where they are equal
RELATIONS = frozenset("= ≠ < ≤ ≈ ~ ∝ ∈ ⊂ → ≪ ≺ ≼ ⇔ ⇒".split())
_VARIABLE, _WILDCARD = "v:", "v:?"
_ANY = "any"  # what a function is differentiated by, if that is not written
_NAME_WITH_INDEX = re.compile(r"v:(?P<base>.+)_(?P<index>[^\W\d_]+|\d+)")
_NAME_WITH_ACCENT = re.compile(r"v:(?P<base>.+)\.(?P<accent>[a-z]+)")
_MAX_OPTIONS = 30  # operands that are tried for one of the pattern
_OPERANDS_PER_STEP = 100  # a choice among many operands takes as long as further steps
_MAX_EQUAL_PARTS = 3_000  # pairs of equal parts of two trees that are considered
_MAX_CHAIN_PARTS = 60  # `a < c` in `a < b < c`
_APPLICATIONS = frozenset({"app", "*"})  # only the content of a bracket decides which
_NAMED_WEIGHT = 2  # of a part with the same names, compared with one that is renamed


class OperatorTree:
    """One tree of a forest as lists, with hashes of all of its parts; nodes are in depth-first order."""

    def __init__(self, forest: OperatorForest, tree: int = 0) -> None:
        nodes = slice(int(forest.offsets[tree]), int(forest.offsets[tree + 1]))
        labels, numbers = forest.labels, forest.label[nodes].tolist()
        self.labels: list[str] = (
            labels.get_names(numbers) if isinstance(labels, StoredLabels) else [labels[at] for at in numbers]
        )
        self.origins: list[int] = forest.origin[nodes].tolist()
        self.script: dict[int, int] = {}  # added nodes: their position among the children of their origin
        self._expanded: dict[int, tuple[str, list[int]]] = {}
        self.parents: list[int] = []
        self.children: list[list[int]] = [[] for _ in self.labels]
        path = [-1]  # the last node of each depth, from one above the root on
        for node, depth in enumerate(forest.depth[nodes].tolist()):
            del path[depth + 1 :]
            self.parents.append(path[-1])
            if depth:
                self.children[path[-1]].append(node)
            path.append(node)
        self._count = len(self.labels)  # without nodes that are added later
        self.sizes: list[int] = [1] * len(self.labels)
        described = [_describe_leaf(label) for label in self.labels]
        self.named: list[int] = [named for named, _, _ in described]
        self.anonymous: list[int] = [anonymous for _, anonymous, _ in described]
        self.is_open: list[bool] = [is_open for _, _, is_open in described]  # whether a part has wildcards
        for node in range(len(self.labels) - 1, -1, -1):
            if self.children[node]:
                self._describe(node)

    def __len__(self) -> int:
        return self._count

    def get_wildcard(self, node: int) -> str:
        """Return the name of a wildcard (`?x`); "" for any other node."""
        return self.labels[node][len(_VARIABLE) :] if self.labels[node].startswith(_WILDCARD) else ""

    def expand(self, node: int) -> tuple[str, list[int]]:
        """Return operator and operands; of a name with an index or an accent (`v:x_1`), those it was made of."""
        if self.children[node]:
            return self.labels[node], self.children[node]
        if node not in self._expanded:
            label, *parts = _split_name(self.labels[node]) or [self.labels[node]]
            self._expanded[node] = label, [self._add(node, part, min(at, 1)) for at, part in enumerate(parts)]
        return self._expanded[node]

    def _add(self, parent: int, label: str, script: int) -> int:
        node = len(self.labels)
        self.labels.append(label)
        self.origins.append(self.origins[parent])
        self.parents.append(-1)
        self.script[node] = script
        self.children.append([])
        self.sizes.append(1)
        named, anonymous, is_wildcard = _describe_leaf(label)
        self.named.append(named)
        self.anonymous.append(anonymous)
        self.is_open.append(is_wildcard)
        return node

    def _describe(self, node: int) -> None:
        """Compute size and hashes of a part, after those of its operands."""
        label, children = self.labels[node], self.children[node]
        sizes, named, anonymous, is_open = self.sizes, self.named, self.anonymous, self.is_open
        sizes[node] = 1 + sum([sizes[child] for child in children])
        is_open[node] = is_open[node] or True in [is_open[child] for child in children]
        named[node] = hash_operands(label, [named[child] for child in children])
        base = children[0]
        if label == "idx" and self.labels[base].startswith(_VARIABLE) and not self.children[base]:
            anonymous[node] = hash(_VARIABLE)  # whether an index is part of the name depends on the formula
        else:
            anonymous[node] = hash_operands(label, [anonymous[child] for child in children])


@lru_cache(10_000)
def _describe_leaf(label: str) -> tuple[int, int, bool]:
    """Return the hashes of a leaf with its name and without, and whether it is a wildcard."""
    anonymous = hash(_VARIABLE) if label.startswith(_VARIABLE) else hash(label)
    return _hash_name(label), anonymous, label.startswith(_WILDCARD)


@lru_cache(10_000)
def _split_name(label: str) -> list[str]:
    """Return operator and operands of a variable with an index or an accent; nothing for any other label."""
    if label.startswith(_WILDCARD) or not label.startswith(_VARIABLE):
        return []
    if found := _NAME_WITH_INDEX.fullmatch(label):
        index = found["index"]
        return ["idx", f"v:{found['base']}", *([f"n:{index}"] if index.isdigit() else [f"v:{x}" for x in index])]
    found = _NAME_WITH_ACCENT.fullmatch(label)
    return [found["accent"], f"v:{found['base']}"] if found else []


@lru_cache(10_000)
def _hash_name(label: str) -> int:
    operator, *parts = _split_name(label) or [label]
    return hash_operands(operator, map(_hash_name, parts)) if parts else hash(label)


def hash_operands(label: str, hashes: Iterable[int]) -> int:
    """Return the hash of an operator with operands of these hashes, in any order if they commute."""
    return hash((label, *(sorted(hashes) if label in UNORDERED else hashes)))


@dataclass(frozen=True)
class OperatorMatch:
    """Nodes of a pattern and of a tree that match."""

    whole: bool  # all of the tree matches, not only a part
    pairs: list[tuple[int, int]]  # all nodes that match, a wildcard possibly with several
    renaming: dict[str, str] = field(default_factory=dict)  # labels of variables, those of the same name among them
    bindings: dict[str, tuple[int, ...]] = field(default_factory=dict)  # operands that a wildcard (`?x`) matches


def match_trees(
    pattern: OperatorTree, tree: OperatorTree, *, rename: bool = False, part: bool = True, limit: int = MAX_STEPS
) -> OperatorMatch | None:
    """Return the first match of a tree or a part of it; None if there is none within `limit` steps.

    Args:
        pattern: May have wildcards.
        tree: Where to look.
        rename: Variables may have other names.
        part: A part of the tree is enough.
        limit: Most steps.
    """
    if not _has_operands(pattern, tree, rename):
        return None
    search = _MatchSearch(pattern, tree, rename, limit)
    try:
        if search.run(0, partial=False):
            return search.build_match(whole=True)
        for partial in (False, True) if part else ():
            for node in search.find_starts(partial):
                if search.run(node, partial=partial):
                    return search.build_match(whole=False)
    except _StepLimitReached:
        pass
    return None


def _has_operands(pattern: OperatorTree, tree: OperatorTree, rename: bool) -> bool:
    """Return whether a tree has the operands of the pattern's root, where they must be equal up to names."""
    label = pattern.labels[0]
    if rename:
        if label not in UNORDERED:
            return True
        ours, theirs = pattern.anonymous, tree.anonymous
    else:
        if pattern.is_open[0] or (label not in UNORDERED and label not in RELATIONS):
            return True
        ours, theirs = pattern.named, tree.named
    return {ours[child] for child in pattern.children[0]}.issubset(theirs)


class _StepLimitReached(Exception):
    pass


class _VariableNames:
    """Names of variables in a pattern and in a tree, each used once."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = dict(names)  # in the order they were added
        self._taken = {theirs: ours for ours, theirs in names.items()}

    def add(self, label: str, other: str) -> bool:
        """Return whether two leaves can be the same; if they are variables, they are from now on."""
        if not label.startswith(_VARIABLE) or not other.startswith(_VARIABLE):
            return label == other
        if label in self.names or other in self._taken:
            return self.names.get(label) == other
        self.names[label], self._taken[other] = other, label
        return True

    def undo(self, count: int) -> None:
        """Forget all names but the first ones."""
        while len(self.names) > count:
            self.names.popitem()
            self._taken.popitem()


class _Goal(NamedTuple):
    """Operands of the pattern that must match operands of the tree; then comes the goal `then`."""

    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    joiner: str  # operator whose operands commute; "" if they are in order
    partial: bool  # some of theirs may remain
    then: _Goal | None
    waited: bool = False  # for wildcards that other goals may bind


class _Binding(NamedTuple):
    nodes: tuple[int, ...]
    named: int  # hash
    joiner: str
    operands: tuple[int, ...]  # hashes


class _MatchSearch:
    """Backtracking search."""

    def __init__(self, pattern: OperatorTree, tree: OperatorTree, rename: bool, limit: int) -> None:
        self._pattern, self._tree, self._rename, self.left = pattern, tree, rename, limit
        self.known_names: dict[str, str] = {}  # from the start
        self._clear()

    def _clear(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._bound: dict[str, _Binding] = {}  # in the order of binding
        self._renaming = _VariableNames(self.known_names)
        self._choices: list[tuple[_Goal, int, int, int]] = []

    def find_starts(self, partial: bool) -> list[int]:
        """Return the nodes that the pattern's root can match, as far as labels and hashes show."""
        label, labels = self._pattern.labels[0], self._tree.labels[: len(self._tree)]
        if partial:
            divisible = label in UNORDERED or label in RELATIONS or label == "frac"
            return [node for node, other in enumerate(labels) if label == other] if divisible else []
        if not self._is_open(0):
            (ours, *_), theirs = self._pick_hashes()
            return [node for node, other in enumerate(theirs[: len(labels)]) if ours == other]
        anything = label.startswith(_WILDCARD)
        return [node for node, other in enumerate(labels) if anything or _are_compatible(label, other)]

    def run(self, node: int, *, partial: bool, ours: int = 0) -> bool:
        """Return whether a node of the pattern matches a node of the tree."""
        self._clear()
        goal: _Goal | None = _Goal((ours,), (node,), "", partial, None)
        failed = False
        while goal is not None or failed:
            if failed:
                if not self._choices:
                    return False
                goal, pairs, bound, names = self._choices.pop()
                del self._pairs[pairs:]
                while len(self._bound) > bound:
                    self._bound.popitem()
                self._renaming.undo(names)
            assert goal is not None
            self.left -= 1
            if self.left < 0:
                raise _StepLimitReached
            failed, goal = self._step(goal)
        return True

    def build_match(self, whole: bool) -> OperatorMatch:
        """Return how the pattern was matched."""
        bindings = {name: bound.nodes for name, bound in self._bound.items()}
        return OperatorMatch(whole, list(self._pairs), dict(self._renaming.names), bindings)

    def _get_wildcard(self, node: int) -> str:
        return "" if self._rename else self._pattern.get_wildcard(node)

    def _is_open(self, node: int) -> bool:
        return not self._rename and self._pattern.is_open[node]

    def _pick_hashes(self) -> tuple[list[int], list[int]]:
        if self._rename:
            return self._pattern.anonymous, self._tree.anonymous
        return self._pattern.named, self._tree.named

    def _step(self, goal: _Goal) -> tuple[bool, _Goal | None]:
        """Take one step; return whether it fails, and the remaining goal."""
        if not goal.ours:
            return bool(goal.theirs) and not goal.partial, goal.then
        if len(goal.ours) > len(goal.theirs):
            return True, None
        if goal.joiner:
            return self._match_commuting(goal)
        then = goal.then
        if len(goal.ours) > 1:
            then = goal._replace(ours=goal.ours[1:], theirs=goal.theirs[1:])
        elif len(goal.theirs) > 1:
            return True, None
        return self._match_nodes(goal.ours[0], goal.theirs[0], goal.partial, then)

    def _match_nodes(self, ours: int, theirs: int, partial: bool, then: _Goal | None) -> tuple[bool, _Goal | None]:
        pattern, tree = self._pattern, self._tree
        if name := self._get_wildcard(ours):
            return self._bind(ours, name, (theirs,), "", then)
        if not self._rename and not self._is_open(ours) and not partial:
            if pattern.named[ours] != tree.named[theirs]:
                return True, None
            self._pairs += pair_equal_parts(pattern, ours, tree, theirs)
            return False, then
        self._pairs.append((ours, theirs))
        label, other = pattern.labels[ours], tree.labels[theirs]
        if not pattern.children[ours] and not tree.children[theirs]:
            return not self._match_leaves(label, other), then
        (label, mine), (other, others) = pattern.expand(ours), tree.expand(theirs)
        if not mine or not others:
            return True, None
        if label != other:
            return self._match_application(label, other, mine, others, then)
        if label in UNORDERED:
            return False, _Goal(self._sort_operands(mine), tuple(others), label, partial, then)
        if partial and label == "frac":
            for at in (1, 0):
                then = _Goal(
                    self._list_factors(pattern, mine[at]), self._list_factors(tree, others[at]), "*", True, then
                )
            return False, then
        if partial and label in RELATIONS:
            some = islice(combinations(others, len(mine)), _MAX_CHAIN_PARTS)
            return self._choose([_Goal(tuple(mine), members, "", False, then) for members in some])
        if label == "frac":
            return self._match_fraction(mine, others, then)
        return len(mine) != len(others), _Goal(tuple(mine), tuple(others), "", False, then)

    def _match_fraction(self, mine: list[int], others: list[int], then: _Goal | None) -> tuple[bool, _Goal | None]:
        r"""Match a fraction; a wildcard above may be a fraction itself: the tree of `\frac{a/b}{x}` is a/(bx)."""
        goals = [_Goal(tuple(mine), tuple(others), "", False, then)]
        if self._get_wildcard(mine[0]) and not self._is_open(mine[1]):
            left, same = list(self._list_factors(self._tree, others[1])), list[int]()
            factors = self._list_factors(self._pattern, mine[1])
            for factor in factors:
                equal = (node for node in left if self._tree.named[node] == self._pattern.named[factor])
                if (found := next(equal, None)) is not None:
                    left.remove(found)
                    same.append(found)
            if left and 0 < len(same) == len(factors):
                bind = _Goal((mine[0],), (others[0], *left), "frac", False, then)
                goals.append(_Goal(factors, tuple(same), "*", False, bind))
        return self._choose(goals)

    def _match_leaves(self, label: str, other: str) -> bool:
        if _ANY in (label, other):
            return label == other or label.startswith(_VARIABLE) or other.startswith(_VARIABLE)
        return self._renaming.add(label, other) if self._rename else label == other

    def _match_application(
        self, label: str, other: str, mine: list[int], others: list[int], then: _Goal | None
    ) -> tuple[bool, _Goal | None]:
        """Match `a(?x)` with `a(x + 1)`, where only the bracket's content decides whether it is a product."""
        if {label, other} != _APPLICATIONS or not any(map(self._get_wildcard, mine)) or len(mine) != 2:
            return True, None
        if other == "app":
            return len(others) != 2, _Goal(tuple(mine), tuple(others), "", False, then)
        return False, _Goal(self._sort_operands(mine), tuple(others), "*", False, then)

    def _list_factors(self, tree: OperatorTree, node: int) -> tuple[int, ...]:
        if tree.labels[node] == "*":
            factors = tree.children[node]
            return self._sort_operands(factors) if tree is self._pattern else tuple(factors)
        return () if tree.labels[node] == "n:1" and tree is self._pattern else (node,)

    def _sort_operands(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Sort operands of the pattern: those without wildcards first, wildcards last."""
        pattern = self._pattern
        return tuple(
            sorted(nodes, key=lambda node: (bool(self._get_wildcard(node)), self._is_open(node), -pattern.sizes[node]))
        )

    def _match_commuting(self, goal: _Goal) -> tuple[bool, _Goal | None]:
        pattern, tree = self._pattern, self._tree
        ours = goal.ours[0]
        if self._get_wildcard(ours):
            return self._match_wildcards(goal)
        if not self._rename and not self._is_open(ours):
            return self._match_closed(goal)
        label, named, anonymous = pattern.labels[ours], pattern.named[ours], pattern.anonymous[ours]
        if self._rename:
            options = [node for node in goal.theirs if anonymous == tree.anonymous[node]]
            options.sort(key=lambda node: tree.named[node] != named)  # the same names first
        else:
            options = [node for node in goal.theirs if _are_compatible(label, tree.labels[node])]
        return self._choose_operand(goal, ours, options)

    def _match_closed(self, goal: _Goal) -> tuple[bool, _Goal | None]:
        """Match all operands without wildcards, each with the first that is equal."""
        equal: dict[int, list[int]] = defaultdict(list)
        for node in reversed(goal.theirs):
            equal[self._tree.named[node]].append(node)
        taken = set()
        closed = [node for node in goal.ours if not self._is_open(node)]
        for ours in closed:
            if not equal[self._pattern.named[ours]]:
                return True, None
            theirs = equal[self._pattern.named[ours]].pop()
            taken.add(theirs)
            self._pairs += pair_equal_parts(self._pattern, ours, self._tree, theirs)
        left = tuple(node for node in goal.theirs if node not in taken)
        return False, goal._replace(ours=goal.ours[len(closed) :], theirs=left)

    def _choose_operand(self, goal: _Goal, ours: int, options: Sequence[int]) -> tuple[bool, _Goal | None]:
        some = options[:_MAX_OPTIONS]
        self.left -= len(some) * len(goal.theirs) // _OPERANDS_PER_STEP
        return self._choose([self._take(goal, ours, node) for node in some])

    def _take(self, goal: _Goal, ours: int, theirs: int) -> _Goal:
        """Return the goal to match one operand with another, and then the rest."""
        rest = goal._replace(
            ours=tuple(node for node in goal.ours if node != ours),
            theirs=tuple(node for node in goal.theirs if node != theirs),
        )
        return _Goal((ours,), (theirs,), "", False, rest)

    def _match_wildcards(self, goal: _Goal) -> tuple[bool, _Goal | None]:
        """Match wildcards, the only operands of the pattern that are left, with operands that commute."""
        for node in goal.ours:
            if bound := self._bound.get(self._get_wildcard(node)):
                return self._match_bound(goal, node, bound)
        if len(goal.ours) == 1 and not goal.partial:
            ours = goal.ours[0]
            return self._bind(ours, self._get_wildcard(ours), goal.theirs, goal.joiner, goal.then)
        if goal.then is not None and not goal.waited:
            return False, _append_goal(goal.then, goal._replace(then=None, waited=True))
        return self._choose_operand(goal, goal.ours[0], goal.theirs)

    def _match_bound(self, goal: _Goal, ours: int, bound: _Binding) -> tuple[bool, _Goal | None]:
        """Take the operands that equal what a wildcard is bound to."""
        rest = [node for node in goal.ours if node != ours]
        wanted = list(bound.operands if bound.joiner == goal.joiner else (bound.named,))
        taken = []
        for node in goal.theirs:
            if self._tree.named[node] in wanted:
                wanted.remove(self._tree.named[node])
                taken.append(node)
        if wanted:
            return True, None
        self._pairs += [(ours, node) for node in taken]
        return False, goal._replace(ours=tuple(rest), theirs=tuple(x for x in goal.theirs if x not in taken))

    def _bind(
        self, ours: int, name: str, nodes: tuple[int, ...], joiner: str, then: _Goal | None
    ) -> tuple[bool, _Goal | None]:
        tree = self._tree
        if len(nodes) == 1:
            joiner = tree.labels[nodes[0]]
            named, operands = tree.named[nodes[0]], tree.children[nodes[0]]
        else:
            named, operands = hash_operands(joiner, (tree.named[node] for node in nodes)), list(nodes)
        bound = self._bound.get(name)
        if bound is None:
            self._bound[name] = _Binding(nodes, named, joiner, tuple(tree.named[node] for node in operands))
        elif bound.named != named:
            return True, None
        self._pairs += [(ours, node) for node in nodes]
        return False, then

    def _choose(self, goals: list[_Goal]) -> tuple[bool, _Goal | None]:
        """Continue with the first goal, and store the others for later."""
        marks = len(self._pairs), len(self._bound), len(self._renaming.names)
        self._choices += [(goal, *marks) for goal in reversed(goals[1:])]
        return not goals, goals[0] if goals else None


def _are_compatible(label: str, other: str) -> bool:
    """Return whether a node of a pattern may match another, as far as their labels show."""
    if label == other:
        return True
    return other in _APPLICATIONS if label in _APPLICATIONS else other.startswith(_VARIABLE)


def _append_goal(goals: _Goal, last: _Goal) -> _Goal:
    chain = []
    goal: _Goal | None = goals
    while goal is not None:
        chain.append(goal)
        goal = goal.then
    for goal in reversed(chain):
        last = goal._replace(then=last)
    return last


def pair_equal_parts(pattern: OperatorTree, ours: int, tree: OperatorTree, theirs: int) -> list[tuple[int, int]]:
    """Pair the nodes of two parts with the same names, operands that commute with equal ones."""
    pairs = []
    stack = [(ours, theirs)]
    while stack:
        mine, other = stack.pop()
        pairs.append((mine, other))
        if not pattern.children[mine] and not tree.children[other]:
            continue
        equal: dict[int, list[int]] = defaultdict(list)
        for node in reversed(tree.expand(other)[1]):
            equal[tree.named[node]].append(node)
        stack += [(child, same.pop()) for child in pattern.expand(mine)[1] if (same := equal[pattern.named[child]])]
    return pairs


def align_trees(query: OperatorTree, hit: OperatorTree) -> OperatorMatch:
    """Pair parts of two trees under one renaming of variables: large parts first, then what is around and between.

    Parts with the same names count as twice as large as parts that are renamed.
    """
    return _TreeAligner(query, hit).align()


class _TreeAligner:
    def __init__(self, query: OperatorTree, hit: OperatorTree) -> None:
        self._query, self._hit = query, hit
        self._pairs: dict[int, int] = {}
        self._used: set[int] = set()
        self._renaming = _VariableNames({})
        self._left = MAX_STEPS

    def align(self) -> OperatorMatch:
        for _, ours, theirs in sorted(self._list_equal_parts()):
            self._pair_parts(ours, theirs)
        queue = list(self._pairs.items())
        for ours, theirs in queue:  # upwards, as long as the operators are the same
            above, above_there = self._query.parents[ours], self._hit.parents[theirs]
            if above >= 0 and above_there >= 0 and self._pair_operators(above, above_there):
                queue.append((above, above_there))
        self._pair_operators(0, 0)
        queue = list(self._pairs.items())
        for ours, theirs in queue:  # downwards, what is left of their operands
            queue += self._pair_operands(ours, theirs)
        for ours in self._list_free(self._query, self._pairs, 0, len(self._query)):  # last, single letters
            same = (
                theirs
                for theirs in self._list_free(self._hit, self._used, 0, len(self._hit))
                if self._hit.labels[theirs] == self._query.labels[ours]
            )
            if self._query.labels[ours].startswith(_VARIABLE):
                self._pair_leaves(ours, next(same, -1))
        return OperatorMatch(False, sorted(self._pairs.items()), self._renaming.names)

    def _list_equal_parts(self) -> list[tuple[int, int, int]]:
        """List pairs of operators with equal parts below them, with a key to sort them by."""
        query, hit = self._query, self._hit
        by_hash: dict[int, list[int]] = defaultdict(list)
        anonymous = max(len(query), len(hit)) <= MAX_ALIGNED_NODES
        for node in range(len(hit)):
            if hit.children[node]:
                by_hash[hit.named[node]].append(node)
                if anonymous and hit.anonymous[node] != hit.named[node]:
                    by_hash[hit.anonymous[node]].append(node)
        found = []
        for node in range(len(query)):
            if query.children[node]:
                size = query.sizes[node]
                found += [(-_NAMED_WEIGHT * size, node, there) for there in by_hash.get(query.named[node], ())]
                if anonymous and query.anonymous[node] != query.named[node]:
                    found += [(-size, node, there) for there in by_hash.get(query.anonymous[node], ())]
            if len(found) > _MAX_EQUAL_PARTS:
                break
        return found

    @staticmethod
    def _list_free(tree: OperatorTree, used: Iterable[int], start: int, end: int) -> list[int]:
        known = set(used)
        return [node for node in range(start, end) if not tree.children[node] and node not in known]

    def _pair_parts(self, ours: int, theirs: int) -> None:
        """Pair two parts, unless one of them is paired already or the names contradict."""
        if ours in self._pairs or theirs in self._used or self._left <= 0:
            return
        search = _MatchSearch(self._query, self._hit, True, self._left)
        search.known_names = self._renaming.names
        try:
            found = search.run(theirs, partial=False, ours=ours)
        except _StepLimitReached:
            found = False
        self._left = search.left
        if found:
            match = search.build_match(whole=False)
            if not any(node in self._pairs or there in self._used for node, there in match.pairs):
                self._pairs.update(match.pairs)
                self._used.update(there for _, there in match.pairs)
                self._renaming = _VariableNames(match.renaming)

    def _pair_operators(self, ours: int, theirs: int) -> bool:
        if ours in self._pairs or theirs in self._used or self._query.labels[ours] != self._hit.labels[theirs]:
            return False
        if not self._query.children[ours] or not self._hit.children[theirs]:
            return False
        self._pairs[ours] = theirs
        self._used.add(theirs)
        return True

    def _pair_operands(self, ours: int, theirs: int) -> list[tuple[int, int]]:
        """Pair operands of two operators that are not paired yet; return new pairs of operators."""
        query, hit = self._query, self._hit
        mine = [node for node in query.children[ours] if node not in self._pairs]
        others = [node for node in hit.children[theirs] if node not in self._used]
        if query.labels[ours] in UNORDERED:
            pairs = list(islice(product(mine, others), _MAX_EQUAL_PARTS))
        else:
            there = dict(enumerate(hit.children[theirs]))
            pairs = [(node, there[at]) for at, node in enumerate(query.children[ours]) if node in mine and at in there]
        found = []
        for node, other in pairs:
            if self._pair_operators(node, other):
                found.append((node, other))
            elif not query.children[node] and not hit.children[other]:
                self._pair_leaves(node, other)
        return found

    def _pair_leaves(self, ours: int, theirs: int) -> None:
        if theirs < 0 or ours in self._pairs or theirs in self._used:
            return
        label, other = self._query.labels[ours], self._hit.labels[theirs]
        if label != other and label not in self._renaming.names:
            if label in self._hit.labels or other in self._query.labels:
                return  # a letter that both have is not renamed for the sake of one leaf
        if self._renaming.add(label, other):
            self._pairs[ours] = theirs
            self._used.add(theirs)
