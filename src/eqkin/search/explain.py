"""Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.

Operator trees are matched (`eqkin.trees.matching`), and the matching nodes are shown in the presentation trees. A leaf
matches a leaf; the signs between matching operands match in order; an inner node (a fraction, a row) matches another if
all leaves below the one match all leaves below the other.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

from eqkin.limits import check_cancelled
from eqkin.search.results import Pairing
from eqkin.search.wildcards import find_wildcards
from eqkin.trees.matching import RELATIONS, OperatorMatch, OperatorTree, align_trees, match_trees
from eqkin.trees.mathml import Node, to_mathml
from eqkin.trees.normal import HORIZONTAL_TAGS, ROW_TAGS, is_silent, normalise_tag, normalise_text
from eqkin.trees.operators import FORM_KINDS, UNORDERED, OperatorForest

_SAME_SIMILARITY = 1.0  # of parts with the same label
_RENAMED_SIMILARITY = 0.75  # of letters with different names
_WILDCARD_SIMILARITY = 0.5  # of a wildcard and what it matches
_SHADE_LEVELS = 3  # classes that shade a match on a page: by a wildcard, renamed, the same
_MIN_PART_NODES = 3  # of an operator tree that counts as a part of another
_MIN_RENAMED_OPERATORS = 2  # of one that counts as a part of another under other names
_GROUP_TAGS = (HORIZONTAL_TAGS - {"msqrt"}) | {"mtable", "mtr", "semantics"}  # their extent says nothing about operands
_OPENING, _CLOSING = frozenset("([{⟨⌊⌈"), frozenset(")]}⟩⌋⌉")
_BARS = frozenset("|∥")
_DOUBLE_SCRIPT_TAGS = frozenset({"msubsup", "munderover"})
_FINAL_PUNCTUATION = frozenset(".,;:")
_COMPOSED_SIGNS = frozenset("_.′^")  # in the names of variables with an index, an accent or an exponent
_ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "check": "\u030c", "breve": "\u0306"}


@dataclass(frozen=True)
class Explanation:
    """How a hit is related to the query, and the parts that they have in common."""

    relation: str = ""  # see `eqkin.search.results.HIT_RELATIONS`; "" if they only may be similar
    pairings: tuple[Pairing, ...] = ()  # in the order of the query's nodes
    renaming: tuple[tuple[str, str], ...] = ()  # letters of the query and their other names in the hit
    bindings: tuple[tuple[str, str], ...] = ()  # wildcards and the MathML of what they match
    marked: str = ""  # the hit's MathML, nodes numbered, matched ones marked
    changes: tuple[str, ...] = ()  # what else differs: "commuted", "sides swapped", "notation"


def explain_hits(
    query: Node, operators: OperatorForest, hits: Sequence[Node], theirs: OperatorForest, *, parts: bool = True
) -> list[Explanation]:
    """Explain why each tree is related to a query.

    Args:
        query: The query's tree.
        operators: Its operator tree.
        hits: Trees of the hits.
        theirs: Their operator trees.
        parts: Whether to list matching parts; otherwise only the relation is found.
    """
    explainer = _Explainer(query, operators)
    explanations = []
    for at, hit in enumerate(hits):
        check_cancelled()
        explanations.append(explainer.explain(hit, theirs, at, parts))
    return explanations


class _Explainer:
    """A query, prepared for comparison with many hits."""

    def __init__(self, query: Node, operators: OperatorForest) -> None:
        self._root, self._forms = query, operators.forms[operators.form_offsets[0]].tolist()
        self._tree = OperatorTree(operators)
        self._signs = list(_iter_signs(query))
        while len(self._signs) > 1 and self._signs[-1] in _FINAL_PUNCTUATION:
            self._signs.pop()
        self._wildcards = find_wildcards(query)

    @cached_property
    def _written(self) -> _Presentation:
        return _Presentation(self._root, self._tree)

    def explain(self, hit: Node, operators: OperatorForest, at: int, parts: bool) -> Explanation:
        """Explain a hit, the tree at `at` of its operator trees."""
        tree, forms = OperatorTree(operators, at), operators.forms[operators.form_offsets[at]].tolist()
        same_forms = {name for name, mine, its in zip(FORM_KINDS, self._forms, forms, strict=True) if mine == its}
        relation, match = self._find_relation(hit, tree, same_forms)
        if not parts:
            return Explanation(relation)
        match = match or align_trees(self._tree, tree)
        explained = _PartPairs(self._written, _Presentation(hit, tree), match)
        pairings = explained.list_pairings()
        changes = _list_changes(self._tree, tree, match) if relation else ()
        if relation == "rewritten" and not changes:
            changes = ("notation",)
        bindings = explained.build_bindings(self._wildcards)
        renaming = _list_renaming(self._tree, match)
        return Explanation(relation, pairings, renaming, bindings, mark_mathml(hit, pairings), changes)

    def _find_relation(self, hit: Node, tree: OperatorTree, same_forms: set[str]) -> tuple[str, OperatorMatch | None]:
        """Return the relation of a hit to the query, and the match that shows it."""
        ours = self._tree
        match = match_trees(ours, tree)
        if ours.is_open[0]:
            return ("" if match is None else "same" if match.whole else "contains"), match
        signs = _iter_signs(hit)
        if all(sign == next(signs, "") for sign in self._signs) and _FINAL_PUNCTUATION.issuperset(signs):
            return "same", match
        if (match is not None and match.whole) or same_forms & {"canonical", "weak"}:
            return "rewritten", match
        renamed = match_trees(ours, tree, rename=True, part=False)
        if renamed is not None or "renamed" in same_forms:
            return "renamed", renamed
        if match is not None:
            return "contains", match
        for relation, pattern, other, rename in (
            ("contains", ours, tree, True),
            ("part of", tree, ours, False),
            ("part of", tree, ours, True),
        ):
            if _is_part_worth_naming(pattern, rename):
                match = match_trees(pattern, other, rename=rename)
                if match is not None:
                    return relation, match if pattern is ours else _invert(match)
        return "", None


def _is_part_worth_naming(tree: OperatorTree, rename: bool) -> bool:
    """Return whether it says something that a tree occurs in another: a letter occurs in most of them."""
    operators = sum(map(bool, tree.children))
    return operators >= _MIN_RENAMED_OPERATORS if rename else operators > 0 and len(tree) >= _MIN_PART_NODES


def _invert(match: OperatorMatch) -> OperatorMatch:
    pairs = [(theirs, ours) for ours, theirs in match.pairs]
    return OperatorMatch(False, pairs, {theirs: ours for ours, theirs in match.renaming.items()})


@lru_cache(10_000)
def _read_sign(tag: str, text: str) -> str:
    """Return what a leaf shows; "" for nothing."""
    return "" if is_silent(tag, text, exact=True) else normalise_text(text, exact=True)


def _iter_signs(root: Node) -> Iterator[str]:
    """Yield what a formula shows, without spaces and styles."""
    stack: list[Node | str] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif node.children:
            if node.tag not in ROW_TAGS:
                yield f"{normalise_tag(node.tag)}("
                stack.append(")")
            stack += reversed(node.children)
        elif sign := _read_sign(node.tag, node.text):
            yield sign


def _list_changes(ours: OperatorTree, theirs: OperatorTree, match: OperatorMatch) -> tuple[str, ...]:
    """List in which ways matching operands have another order."""
    partner = dict(match.pairs)
    changes = set()
    for node, other in match.pairs:
        if node < len(ours) and ours.labels[node] in UNORDERED and other < len(theirs):
            places = {child: at for at, child in enumerate(theirs.children[other])}
            order = [places[partner[x]] for x in ours.children[node] if partner.get(x) in places]
            if order != sorted(order):
                changes.add("sides swapped" if ours.labels[node] in RELATIONS else "commuted")
    return tuple(sorted(changes))


def _list_renaming(tree: OperatorTree, match: OperatorMatch) -> tuple[tuple[str, str], ...]:
    """List variables and their other names, without an index or an accent that both have."""
    found: dict[tuple[str, str], None] = {}
    for ours, theirs in sorted(match.renaming.items(), key=lambda names: tree.labels.index(names[0])):
        mine, other = ours.removeprefix("v:"), theirs.removeprefix("v:")
        for sign in "_.":
            base, _, rest = mine.partition(sign)
            base_there, _, rest_there = other.partition(sign)
            if rest and rest == rest_there:
                mine, other = base, base_there
        if mine != other:
            found[_show_name(mine), _show_name(other)] = None
    return tuple(found)


def _show_name(name: str) -> str:
    base, _, accent = name.partition(".")
    accent, mark, index = accent.partition("_")
    return unicodedata.normalize("NFC", base + _ACCENTS.get(accent, "")) + mark + index


class _Presentation:
    """A presentation tree: its nodes, breadth first, and the visible leaves below each of them, in reading order.

    Args:
        root: Its root.
        tree: The operator tree that was parsed from it.
    """

    def __init__(self, root: Node, tree: OperatorTree) -> None:
        self.nodes, self.tree = [root], tree
        self.children: list[range] = []
        for node in self.nodes:
            self.children.append(range(len(self.nodes), len(self.nodes) + len(node.children)))
            self.nodes += node.children
        self.leaves: list[int] = []
        self.texts: list[str] = []  # of the leaves
        starts, ends = [0] * len(self.nodes), [0] * len(self.nodes)
        stack = [0]
        while stack:
            number = stack.pop()
            if number < 0:  # everything below has been visited
                ends[~number] = len(self.leaves)
                continue
            starts[number] = len(self.leaves)
            if self.children[number]:
                stack.append(~number)
                stack += reversed(self.children[number])
                continue
            node = self.nodes[number]
            if text := _read_sign(node.tag, node.text):
                self.leaves.append(number)
                self.texts.append(text)
            ends[number] = len(self.leaves)
        self.spans = list(zip(starts, ends, strict=True))
        nesting = [(text in _OPENING) - (text in _CLOSING) for text in self.texts]
        self._depths = [0, *accumulate(nesting)]  # brackets that are open before each leaf, and after the last
        self._extents: list[tuple[int, int]] = []
        self._names: set[int] = set()

    def find_node(self, node: int) -> int:
        """Return the presentation node of a node of the operator tree."""
        origin = min(self.tree.origins[node], len(self.nodes) - 1)
        children = self.children[origin]
        return children[self.tree.script[node]] if node in self.tree.script and len(children) > 1 else origin

    def get_span(self, node: int) -> tuple[int, int]:
        """Return the leaves of the presentation node of a node of the operator tree."""
        origin = self.find_node(node)
        children = self.children[origin]
        if len(children) > 1 and self.nodes[origin].tag in _DOUBLE_SCRIPT_TAGS and not self.tree.children[node]:
            return self.spans[children[0]][0], self.spans[children[1]][1]  # a name with an index: without the exponent
        return self.spans[origin]

    @property
    def extents(self) -> list[tuple[int, int]]:
        """The leaves from the first to the last of each node of the operator tree; (0, 0) if it has none."""
        tree, extents = self.tree, self._extents
        known = len(extents)  # matching may have added nodes since, none of them below others
        extents += [(0, 0)] * (len(tree.labels) - known)
        for node in range(len(extents) - 1, known - 1, -1):
            span = self.get_span(node)
            below = tree.children[node]
            parts = [extent for child in below if (extent := extents[child])[0] < extent[1]] if below else []
            if span[0] < span[1]:
                grouped = self.nodes[self.find_node(node)].tag in _GROUP_TAGS
                if grouped and self.texts[span[0]] in _OPENING:
                    inner = (min(parts)[0] - 1, max(end for _, end in parts) + 1) if parts else span
                    grouped = span != inner
                parts += [] if grouped else [span]
            if parts:
                start, end = parts[0] if len(parts) == 1 else (min(parts)[0], max(end for _, end in parts))
                bar = self.texts[start] if span == (start, start + 1) else ""
                if bar in _BARS:
                    end = next((leaf for leaf in range(end, len(self.leaves)) if self.texts[leaf] == bar), end - 1) + 1
                extents[node] = self._balance(start, end)
        return extents

    def is_written(self, node: int) -> bool:
        """Return whether a leaf of the operator tree is written, not implied as the exponent 1/2 of a root is."""
        composed = self.tree.children[node] or not _COMPOSED_SIGNS.isdisjoint(self.tree.labels[node])
        return bool(composed) or not self.children[self.find_node(node)]

    @property
    def names(self) -> set[int]:
        """The leaves that are names, numbers and other operands, not signs."""
        if not self._names:
            for node, children in enumerate(self.tree.children):
                if not children and self.is_written(node):
                    self._names.update(range(*self.get_span(node)))
        return self._names

    def _balance(self, start: int, end: int) -> tuple[int, int]:
        """Extend leaves to the brackets that close those opened among them."""
        depths = self._depths
        if depths[end] <= depths[start]:
            return start, end
        closed = (leaf for leaf in range(end + 1, len(depths)) if depths[leaf] <= depths[start])
        return start, next(closed, end)

    def list_maximal_nodes(self, leaves: set[int]) -> list[int]:
        """List the nodes whose leaves are all among these, without those below them."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            start, end = self.spans[node]
            if start < end and leaves.issuperset(range(start, end)):
                found.append(node)
            elif start < end:
                stack += reversed(self.children[node])
        return found

    def build_part(self, leaves: set[int]) -> Node:
        """Return the tree of some leaves."""
        nodes = [self.nodes[number] for number in self.list_maximal_nodes(leaves)]
        return nodes[0] if len(nodes) == 1 else Node("mrow", children=nodes)


class _PartPairs:
    """Matching nodes of operator trees as matching nodes of presentation trees."""

    def __init__(self, query: _Presentation, hit: _Presentation, match: OperatorMatch) -> None:
        self._query, self._ours, self._hit, self._theirs, self._match = query, query.tree, hit, hit.tree, match
        self._pairings: dict[int, list[Pairing]] = {}
        self._partner: dict[int, tuple[int, int, float]] = {}  # of each leaf of the query: leaves of the hit
        self._used: set[int] = set()  # nodes of the hit
        self._extents, self._extents_there = query.extents, hit.extents

    def list_pairings(self) -> tuple[Pairing, ...]:
        """List all pairs of matching presentation nodes."""
        query, hit = self._query, self._hit
        if (
            query.children == hit.children
            and not self._ours.is_open[0]
            and all(
                ours.tag == theirs.tag and ours.text == theirs.text
                for ours, theirs in zip(query.nodes, hit.nodes, strict=True)
            )
        ):
            return tuple(Pairing(node, node, _SAME_SIMILARITY) for node in range(len(query.nodes)))
        inner = []
        bound: dict[int, set[int]] = defaultdict(set)  # wildcards and the leaves they match
        for ours, theirs in self._match.pairs:
            if self._ours.get_wildcard(ours) and self._match.bindings:
                bound[ours].update(range(*self._extents_there[theirs]))
            elif self._ours.children[ours] and self._theirs.children[theirs]:
                inner.append((ours, theirs))
            elif query.is_written(ours) and hit.is_written(theirs):
                same = self._ours.named[ours] == self._theirs.named[theirs]
                self._pair_names(query.get_span(ours), hit.get_span(theirs), same)
        for ours, leaves in bound.items():
            self._pair_wildcard(ours, leaves)
        inner.sort(key=lambda pair: (self._extents[pair[0]][1] - self._extents[pair[0]][0], pair))
        for ours, theirs in inner:  # small parts first
            self._pair_signs(self._extents[ours], self._extents_there[theirs])
        self._pair_inner_nodes()
        return tuple(pairing for node in sorted(self._pairings) for pairing in self._pairings[node])

    def build_bindings(self, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the MathML of what each wildcard matches, in the order of their names."""
        bindings = self._match.bindings
        return tuple(
            (name, to_mathml(self._hit.build_part(self._list_leaves(bindings[name])), display=False))
            for name in names
            if name in bindings
        )

    def _list_leaves(self, nodes: Sequence[int]) -> set[int]:
        """Return the leaves of operands, with the signs before all but the first."""
        leaves: set[int] = set()
        for start, end in sorted(self._extents_there[node] for node in nodes):
            while leaves and start and start - 1 not in leaves:
                before = self._hit.nodes[self._hit.leaves[start - 1]]
                if before.tag != "mo" and before.text != "/":
                    break
                start -= 1
            leaves.update(range(start, end))
        return leaves

    def _add(self, ours: int, theirs: int, similarity: float) -> None:
        if ours not in self._pairings and theirs not in self._used:
            self._pairings[ours] = [Pairing(ours, theirs, similarity)]
            self._used.add(theirs)

    def _pair_wildcard(self, ours: int, leaves: set[int]) -> None:
        node = self._query.find_node(ours)
        found = [Pairing(node, there, _WILDCARD_SIMILARITY) for there in self._hit.list_maximal_nodes(leaves)]
        if found:
            self._pairings[node] = found
            self._used.update(pairing.hit_node for pairing in found)
            self._partner[self._query.spans[node][0]] = min(leaves), max(leaves) + 1, _WILDCARD_SIMILARITY

    def _pair_names(self, ours: tuple[int, int], theirs: tuple[int, int], same: bool) -> None:
        """Pair the leaves of two names; leaf by leaf, if both have the same number."""
        query, hit = self._query, self._hit
        (start, end), (first, last) = ours, theirs
        if first == last or any(leaf in self._partner for leaf in range(start, end)):
            return
        if end - start == last - first:
            for leaf, there in zip(range(start, end), range(first, last), strict=True):
                alike = same or query.texts[leaf] == hit.texts[there]
                similarity = _SAME_SIMILARITY if alike else _RENAMED_SIMILARITY
                self._partner[leaf] = there, there + 1, similarity
                self._add(query.leaves[leaf], hit.leaves[there], similarity)
            return
        similarity = _SAME_SIMILARITY if same else _RENAMED_SIMILARITY
        self._partner.update({leaf: (first, last, similarity) for leaf in range(start, end)})
        mine, other = query.list_maximal_nodes(set(range(*ours))), hit.list_maximal_nodes(set(range(*theirs)))
        if mine:
            self._add(mine[0], other[0], similarity)

    def _pair_signs(self, ours: tuple[int, int], theirs: tuple[int, int]) -> None:
        """Pair what remains of two matching parts, signs and brackets, in order."""
        query, hit = self._query, self._hit
        names, names_there = query.names, hit.names
        free = [leaf for leaf in range(*ours) if leaf not in self._partner and leaf not in names]
        if not free:
            return
        left = [leaf for leaf in range(*theirs) if hit.leaves[leaf] not in self._used and leaf not in names_there]
        for leaf in free:
            there = next((at for at in left if query.texts[leaf] == hit.texts[at]), None)
            if there is not None:
                left = [at for at in left if at > there]
                self._partner[leaf] = there, there + 1, _SAME_SIMILARITY
                self._add(query.leaves[leaf], hit.leaves[there], _SAME_SIMILARITY)

    def _pair_inner_nodes(self) -> None:
        """Pair fractions, scripts and rows whose leaves match each other, and nothing else does."""
        query, hit = self._query, self._hit
        by_span: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, span in enumerate(hit.spans):
            if hit.children[number] and number not in self._used:
                by_span[span].append(number)
        for number, (start, end) in enumerate(query.spans):
            partners = [self._partner[leaf] for leaf in range(start, end) if leaf in self._partner]
            if not query.children[number] or len(partners) < max(end - start, 1) or number in self._pairings:
                continue
            there = min(first for first, _, _ in partners), max(last for _, last, _ in partners)
            covered = {leaf for first, last, _ in partners for leaf in range(first, last)}
            if len(covered) < there[1] - there[0]:
                continue
            tag = query.nodes[number].tag
            other = next((node for node in by_span[there] if _have_same_role(tag, hit.nodes[node].tag)), None)
            if other is not None:
                by_span[there].remove(other)
                self._add(number, other, sum(value for _, _, value in partners) / len(partners))


def _have_same_role(tag: str, other: str) -> bool:
    return normalise_tag(tag) == normalise_tag(other) or (tag in ROW_TAGS and other in ROW_TAGS)


def mark_mathml(root: Node, pairings: Iterable[Pairing] = ()) -> str:
    """Return MathML whose nodes have their number as `data-node`, matched ones also a class.

    Args:
        root: The tree.
        pairings: Pairs of the query's nodes with nodes of this tree; the class is `kin kin-1` to `kin kin-3` by how
            similar they are.
    """
    classes = {}
    for pairing in pairings:
        level = min(max(int(pairing.similarity * (_SHADE_LEVELS + 1)) - 1, 1), _SHADE_LEVELS)
        classes[pairing.hit_node] = f"kin kin-{level}"
    return to_mathml(root, classes=classes)
