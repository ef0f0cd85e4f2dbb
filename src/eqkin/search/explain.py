"""Why a hit was found: which of its parts answer which parts of the query.

Both trees' nodes have vectors that know their surroundings (`Encoder.node_vectors`). The roots are paired; below two
nodes of one kind, children of fixed places (numerator, exponent) pair with each other, members of rows with the member
of the same kind whose vector is nearest; what is left over may still find its like elsewhere in the other tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.forest import Forest, ForestBuilder
from eqkin.mathml.tree import Node, forest_of, to_mathml
from eqkin.network.encoder import Encoder
from eqkin.search.results import Pairing

_UNRELATED = 0.5  # cosine of nodes that have nothing in common: the vectors have no negative numbers
_LEAST = 0.2  # similarity below which a pair says nothing
_SAME_TEXT = 0.1  # what an equal symbol is worth when the nearest is chosen
_SAME_FORM = 0.25  # by how much parts that differ in letters alone are nearer than their vectors say
_LARGEST = 600  # nodes of a tree that is explained
_ROWS = frozenset({"mrow", "mstyle", "mpadded", "mtd", "menclose", "mphantom"})
_SLOTS = {
    "msub": (0, 1), "munder": (0, 1), "msup": (0, 2), "mover": (0, 2), "msubsup": (0, 1, 2), "munderover": (0, 1, 2),
}  # base, below, above  # fmt: skip
_LEVELS = 3  # classes by which a page can shade a match


@dataclass(frozen=True)
class Parts:
    """A tree's nodes, breadth first, and what the network says of each."""

    tags: list[str]
    kinds: list[str]  # nodes of the same kind can answer each other
    texts: list[str]
    forms: list[str]  # of each subtree of more than one node: all but the names of its letters
    children: list[range]
    sizes: list[int]  # nodes of each subtree
    nodes: npt.NDArray[np.float32]  # unit vectors
    means: npt.NDArray[np.float32]  # unit vectors of the mean over each subtree


def parts_of(encoder: Encoder, roots: Sequence[Node]) -> list[Parts | None]:
    """The parts of several trees, computed together; None for one that is too large to explain."""
    forests = [forest_of(root) for root in roots]
    builder = ForestBuilder()
    for forest in forests:
        if len(forest.tag) <= _LARGEST:
            builder.add_forest(forest)
    vectors = encoder.node_vectors(builder.build())
    parts: list[Parts | None] = []
    at = 0
    for forest in forests:
        if len(forest.tag) > _LARGEST:
            parts.append(None)
            continue
        parts.append(_parts(forest, vectors[at : at + len(forest.tag)]))
        at += len(forest.tag)
    return parts


def _parts(forest: Forest, vectors: npt.NDArray[np.float32]) -> Parts:
    parent, sums, sizes = forest.parent().tolist(), vectors.copy(), [1] * len(vectors)
    for i in range(len(parent) - 1, 0, -1):
        sums[parent[i]] += sums[i]
        sizes[parent[i]] += sizes[i]
    first, counts = forest.first_child().tolist(), forest.n_children.tolist()
    children = [range(start, start + count) for start, count in zip(first, counts, strict=True)]
    tags = [forest.tags[i] for i in forest.tag.tolist()]
    texts = [forest.texts[i] for i in forest.text.tolist()]
    kinds = [_kind(tag, text) for tag, text in zip(tags, texts, strict=True)]
    forms = _forms(kinds, texts, children)
    return Parts(
        tags,
        kinds,
        texts,
        forms,
        children,
        sizes,
        _unit(vectors),
        _unit(sums),
    )


def _kind(tag: str, text: str) -> str:
    if tag == "mi" and not text.isalnum():
        return "mo"  # the converter takes a bar for a letter
    return "row" if tag in _ROWS else "script" if tag in _SLOTS else tag


def _forms(kinds: list[str], texts: list[str], children: list[range]) -> list[str]:
    forms = ["" if kind == "mi" else text or kind for kind, text in zip(kinds, texts, strict=True)]
    for i in range(len(kinds) - 1, -1, -1):
        if children[i]:
            forms[i] = f"{kinds[i]}({','.join(forms[child] for child in children[i])})"
    return [form if below else "" for form, below in zip(forms, children, strict=True)]


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: npt.NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit


def align(query: Parts, hit: Parts) -> tuple[Pairing, ...]:
    """Pairs of nodes that answer each other, each node in one pair at most, in the order of the query."""
    return _Alignment(query, hit).pairings()


class _Alignment:
    def __init__(self, query: Parts, hit: Parts) -> None:
        self.query, self.hit = query, hit
        near = query.nodes @ hit.nodes.T
        inner = np.ix_(np.array(query.sizes) > 1, np.array(hit.sizes) > 1)
        near[inner] = (near[inner] + (query.means @ hit.means.T)[inner]) / 2
        similarity = np.clip((near - _UNRELATED) / (1 - _UNRELATED), 0, 1)
        similarity += _SAME_FORM * (1 - similarity) * _equal(query.forms, hit.forms)
        self._near: list[list[float]] = similarity.tolist()
        self._rank: list[list[float]] = (similarity + _SAME_TEXT * _equal(query.texts, hit.texts)).tolist()
        self.pairs: dict[int, int] = {}
        self.taken: set[int] = set()

    def pairings(self) -> tuple[Pairing, ...]:
        self._pair(0, 0)
        left = [i for i in range(len(self.query.tags)) if i not in self.pairs]
        free = [j for j in range(len(self.hit.tags)) if j not in self.taken]
        self._match(left, free, wander=True)
        found = ((i, j, self._near[i][j]) for i, j in sorted(self.pairs.items()))
        return tuple(Pairing(i, j, value) for i, j, value in found if value >= _LEAST)

    def _pair(self, i: int, j: int) -> None:
        """Pair two nodes, then what is below them."""
        stack = [(i, j)]
        while stack:
            i, j = stack.pop()
            if i in self.pairs or j in self.taken:
                continue
            self.pairs[i] = j
            self.taken.add(j)
            below, theirs = self.query.children[i], self.hit.children[j]
            kind = self.query.kinds[i]
            if kind != self.hit.kinds[j] or not below or not theirs:
                continue
            if kind == "row":
                self._match(below, theirs)
            elif kind == "script":
                slots = dict(zip(_SLOTS[self.hit.tags[j]], theirs, strict=False))
                ours = zip(_SLOTS[self.query.tags[i]], below, strict=False)
                stack.extend((child, slots[slot]) for slot, child in ours if slot in slots)
            else:
                stack.extend(zip(below, theirs, strict=False))

    def _match(self, ours: Sequence[int], theirs: Sequence[int], *, wander: bool = False) -> None:
        """Pair members of two rows, nearest first; `wander`: they may stand anywhere, larger parts first."""
        choices = []
        by_kind: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for place, j in enumerate(theirs):
            by_kind[self.hit.kinds[j]].append((place / len(theirs), j))
        for place, i in enumerate(ours):
            kind = self.query.kinds[i]
            for there, j in by_kind[kind]:
                if self._near[i][j] < _LEAST or not self._may_answer(i, j):
                    continue
                apart = abs(place / len(ours) - there) / 10
                leaf = wander and min(self.query.sizes[i], self.hit.sizes[j]) == 1
                choices.append((leaf, apart - self._rank[i][j], i, j))
        for _, _, i, j in sorted(choices):
            if i not in self.pairs and j not in self.taken:
                self._pair(i, j)

    def _may_answer(self, i: int, j: int) -> bool:
        """Whether two nodes of one kind can: operators that are the same, scripts in the same places of like bases."""
        kind = self.query.kinds[i]
        if kind == "mo":
            return self.query.texts[i] == self.hit.texts[j]
        if kind == "script" and self.query.children[i] and self.hit.children[j]:
            places = set(_SLOTS[self.query.tags[i]]) & set(_SLOTS[self.hit.tags[j]])
            ours, theirs = self.query.kinds[self.query.children[i][0]], self.hit.kinds[self.hit.children[j][0]]
            return len(places) > 1 and (ours == "mo") == (theirs == "mo")
        return True


def _equal(ours: list[str], theirs: list[str]) -> npt.NDArray[np.bool_]:
    """Which of two lists' strings are the same, and not empty."""
    left, right = np.array(ours, object), np.array(theirs, object)
    same: npt.NDArray[np.bool_] = (left[:, None] == right) & (left != "")[:, None]
    return same


def marked_mathml(root: Node, similarity: dict[int, float]) -> str:
    """MathML whose nodes carry their number as `data-node`, matched ones also a class: `kin kin-1` to `kin kin-3`.

    Args:
        root: the tree.
        similarity: of the matched nodes, by their number, breadth first.
    """
    classes = {number: f"kin kin-{_level(value)}" for number, value in similarity.items()}
    return to_mathml(root, classes=classes)


def query_marks(pairings: Iterable[Pairing]) -> dict[int, float]:
    """The query's side of pairings, for `marked_mathml`."""
    marks: dict[int, float] = {}
    for pairing in pairings:
        marks[pairing.query_node] = max(pairing.similarity, marks.get(pairing.query_node, 0.0))
    return marks


def hit_marks(pairings: Iterable[Pairing]) -> dict[int, float]:
    """The hit's side of pairings, for `marked_mathml`."""
    return {pairing.hit_node: pairing.similarity for pairing in pairings}


def _level(similarity: float) -> int:
    return min(int(similarity * _LEVELS) + 1, _LEVELS)
