"""Equalities and inequalities as pairs of sides (paper, section 6.4): what models are finetuned and tested on.

The paper splits LaTeX with regular expressions; here trees are split at relation signs. The rules were fixed before
anything was measured on the pairs:

- A line is the content of the root, or of a row of the root's table, with its cells in order. A line that begins with a
  relation sign continues the last statement of the line above. One that begins with another operator, or with an empty
  cell where the first line has none, continues a side, which is left out.
- Wide spaces, words, arrows of implication, and commas, semicolons and colons outside of brackets split a line into
  statements. Relation signs outside of brackets split a statement into sides. A sign with something written below or
  above it is that sign.
- Two neighbouring sides with a sign of the set between them are a pair if each has at least `MIN_SIDE_NODES` nodes, and
  the larger one at most `MAX_SIZE_RATIO` times as many as the smaller one. Full stops and spaces at their ends are
  dropped.
- A statement gives at most one pair, the first: in a chain a = b = c all sides are right answers to each other.
- No side occurs twice, on either side: of pairs that share one, the first is kept. So every side has one right answer,
  and no side of the training pairs occurs in a test.

All pairs of a work (a book, a repository) are in the same part of every split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.formulas.normal import ROW_TAGS, label_nodes
from eqkin.learning.data import Corpus

Integers: TypeAlias = npt.NDArray[np.int64]

MIN_SIDE_NODES = 6  # more than f(x), which has five with the row around it
MAX_SIZE_RATIO = 1.3
TEST_FRACTION = 0.5  # of the pairs
VALIDATION_FRACTION = 0.1  # of the other pairs
PAIR_SPLIT_SEED = 0


class NodeKind(IntEnum):
    """The role of a node in its line."""

    PLAIN = 0
    EQUAL = 1
    LESS = 2
    GREATER = 3
    RELATION = 4  # any other relation
    SEPARATOR = 5
    COLON = 6  # a separator, unless it belongs to the sign after it
    OPENING = 7
    CLOSING = 8
    OPERATOR = 9  # binary
    BLANK = 10  # full stops and spaces
    EMPTY = 11  # shows nothing


_COLON, _OPENING, _CLOSING = NodeKind.COLON, NodeKind.OPENING, NodeKind.CLOSING  # attribute access is slow
_OPERATORS = {
    NodeKind.EQUAL: "=",
    NodeKind.LESS: "< ≤ ⩽ ≦",
    NodeKind.GREATER: "> ≥ ⩾ ≧",
    NodeKind.RELATION: "≠ ≡ ≢ ≈ ≃ ≅ ≊ ∼ ≁ ≍ ≐ ≑ ≜ ≔ ≕ ≝ ≟ ∝ ≪ ≫ ≲ ≳ ⪅ ⪆ ≺ ≻ ≼ ≽ ⪯ ⪰ ≮ ≯ ≰ ≱ ∈ ∉ ∋ ⊂ ⊃ ⊆ ⊇ ⊊ ⊋ ⊄"
    " ⊈ ⊏ ⊐ ⊑ ⊒ ⊢ ⊨ ⊩ ⊣ → ← ↔ ↦ ↪ ↩ ⟶ ⟵ ⟷ ⟼ ↠ ⇀ ⇌ ⇝ ⊥ ∥ ⋈ ≰ :=",
    NodeKind.SEPARATOR: ", ; ⇒ ⇐ ⇔ ⟹ ⟸ ⟺ ∀ ∃ ∴ ∵ ↓ ↑",
    NodeKind.COLON: ":",
    NodeKind.OPENING: "( [ { ⟨ ⌊ ⌈ ⟦ ⟮",
    NodeKind.CLOSING: ") ] } ⟩ ⌋ ⌉ ⟧ ⟯",
    NodeKind.OPERATOR: "+ − - ± ∓ × ⋅ · ∗ * ∘ ⊗ ⊕ ⊙ ∧ ∨ ∩ ∪ ÷ ∙ ⋆ ∖",
    NodeKind.BLANK: ". ⁡",
}
_IDENTIFIERS = {NodeKind.RELATION: "≔ ≕ ≜ ⊥", NodeKind.SEPARATOR: "∀ ∃ , ;", NodeKind.BLANK: "."}
_SEPARATING_WORDS = frozenset(
    "and as by else for from if iff i.e. in on or otherwise over s.t. so subject then when where with".split()
)
_WRAPPER_TAGS = ROW_TAGS | {"mtd", "menclose"}
_SCRIPT_TAGS = frozenset("mover munder munderover".split())
_MAX_NESTING = 4  # wrappers around a sign with something written above it


def classify_nodes(forest: Forest) -> npt.NDArray[np.int8]:
    """Return the `NodeKind` of each node, (nodes,)."""
    kind = np.zeros(len(forest.tag), np.int8)
    index_of = {text: index for index, text in enumerate(forest.texts)}
    for tag, meanings in (("mo", _OPERATORS), ("mi", _IDENTIFIERS)):
        text_kind = np.zeros(len(forest.texts), np.int8)
        for meaning, texts in meanings.items():
            text_kind[[index_of[text] for text in texts.split() if text in index_of]] = meaning
        kind = np.where(_has_tag(forest, tag), text_kind[forest.text], kind)
    words = np.array([_classify_text(text) for text in forest.texts], np.int8)
    kind = np.where(_has_tag(forest, "mtext"), words[forest.text], kind)
    spaces = np.array([_classify_space(attributes) for attributes in forest.attributes], np.int8)
    kind = np.where(_has_tag(forest, "mspace"), spaces[forest.attribute], kind)
    fences = np.array(["fence=true" in attributes.split("\n") for attributes in forest.attributes], bool)
    kind[fences[forest.attribute]] = NodeKind.PLAIN
    wrapper = _has_tag(forest, *_WRAPPER_TAGS)
    kind[(wrapper & (forest.n_children == 0)) | _has_tag(forest, "mphantom")] = NodeKind.EMPTY
    scripted = _has_tag(forest, *_SCRIPT_TAGS) & (forest.n_children > 0)
    around = np.flatnonzero(scripted | (wrapper & (forest.n_children == 1)))
    inside = forest.compute_first_child()[around]
    for _ in range(_MAX_NESTING):
        sign = (kind[inside] >= NodeKind.EQUAL) & (kind[inside] <= NodeKind.RELATION)
        kind[around[sign]] = kind[inside[sign]]
    return kind


def _has_tag(forest: Forest, *tags: str) -> npt.NDArray[np.bool_]:
    """Return which nodes have one of these tags."""
    return np.array([tag in tags for tag in forest.tags], bool)[forest.tag]


def _classify_text(text: str) -> NodeKind:
    words = text.replace("\u00a0", " ")
    if words.strip() in ("", "."):
        return NodeKind.BLANK
    is_prose = " " in words and any(character.isalpha() for character in words)
    if is_prose or words.strip(" ,.;:").lower() in _SEPARATING_WORDS or words.strip() in (",", ";"):
        return NodeKind.SEPARATOR
    return NodeKind.PLAIN


def _classify_space(attributes: str) -> NodeKind:
    values = dict(line.split("=", 1) for line in attributes.split("\n") if "=" in line)
    width = values.get("width", "")
    is_wide = width.endswith("em") and width[:-2].replace(".", "", 1).isdecimal() and float(width[:-2]) >= 1
    return NodeKind.SEPARATOR if is_wide or "linebreak" in values else NodeKind.BLANK


@dataclass(frozen=True)
class Side:
    """The nodes between two relation signs."""

    sign: int  # before the side; PLAIN for the first side of a statement
    nodes: list[int]


class StatementReader:
    """Reads the statements at the top of trees."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self.kind = classify_nodes(forest)
        self._first_child = forest.compute_first_child()
        self._wrapper = np.array([tag in _WRAPPER_TAGS for tag in forest.tags], bool)
        self._table = np.array([tag == "mtable" for tag in forest.tags], bool)

    def read_statements(self, tree: int) -> list[list[Side]]:
        """Read the statements of a tree, each as its sides; an incomplete side has no nodes."""
        found: list[list[Side]] = []
        for number, (nodes, indented) in enumerate(self._split_lines(self._unwrap(int(self._forest.offsets[tree])))):
            statements, first = self._split_statements(nodes), nodes[0]
            is_joined = self.kind[first] in (NodeKind.OPERATOR, NodeKind.CLOSING)
            if number and (indented or is_joined or self._is_sign(first)):
                if not self._is_sign(first):
                    found[-1][-1].nodes.clear()  # this line continues it
                found[-1].extend(statements.pop(0)[1:])
            found += statements
        return found

    def _is_sign(self, node: int) -> bool:
        return bool(NodeKind.EQUAL <= self.kind[node] <= NodeKind.RELATION)

    def _list_children(self, node: int) -> list[int]:
        first = int(self._first_child[node])
        last = first + int(self._forest.n_children[node])
        kept = self.kind[first:last] != NodeKind.EMPTY
        return list(range(first, last)) if kept.all() else (first + np.flatnonzero(kept)).tolist()

    def _unwrap(self, node: int) -> list[int]:
        """Return the nodes in a row: a node, or its children if it only wraps them."""
        nodes = [node]
        while len(nodes) == 1 and self._wrapper[self._forest.tag[nodes[0]]]:
            nodes = self._list_children(nodes[0])
        return nodes

    def _is_table(self, nodes: list[int]) -> bool:
        return len(nodes) == 1 and bool(self._table[self._forest.tag[nodes[0]]])

    def _split_lines(self, nodes: list[int]) -> list[tuple[list[int], bool]]:
        """Split the content of a tree into lines that are not empty.

        Also returns whether a line is indented: its first cell is empty, and that of the table's first line is not.
        """
        if not self._is_table(nodes):
            return [(nodes, False)] if nodes else []
        rows = [[self._unwrap(cell) for cell in self._list_children(row)] for row in self._list_children(nodes[0])]
        rows = [row for row in rows if any(row)]
        lines: list[tuple[list[int], bool]] = []
        for row in rows:
            filled = [cell for cell in row if cell]
            if len(filled) == 1 and self._is_table(filled[0]):
                lines += self._split_lines(filled[0])
            else:
                indented = not row[0] and bool(rows[0][0])
                lines.append(([node for cell in filled for node in cell], indented))
        return lines

    def _split_statements(self, nodes: list[int]) -> list[list[Side]]:
        """Split a line into statements, at least one; one side without nodes if its brackets do not match."""
        kinds = [*self.kind[nodes].tolist(), NodeKind.SEPARATOR]
        statements: list[list[Side]] = []
        sides = [Side(NodeKind.PLAIN, [])]
        depth = 0
        for index, kind in enumerate(kinds):
            depth += (kind == _OPENING) - (kind == _CLOSING)
            if depth < 0:
                break
            if depth == 0 and 0 < kind <= _COLON:
                if kind <= NodeKind.RELATION:
                    sides.append(Side(kind, []))
                elif kind == NodeKind.SEPARATOR or kinds[index + 1] != NodeKind.EQUAL:
                    statements.append([Side(side.sign, self._trim(side.nodes)) for side in sides])
                    sides = [Side(NodeKind.PLAIN, [])]
            elif index < len(nodes):
                sides[-1].nodes.append(nodes[index])
        return statements if depth == 0 else [[Side(NodeKind.PLAIN, [])]]

    def _trim(self, nodes: list[int]) -> list[int]:
        """Drop blanks at the ends; return nothing if the last node is an operator, because its operand is missing."""
        first, last = 0, len(nodes)
        while last > first and self.kind[nodes[last - 1]] == NodeKind.BLANK:
            last -= 1
        while last > first and self.kind[nodes[first]] == NodeKind.BLANK:
            first += 1
        return nodes[first:last] if first < last and self.kind[nodes[last - 1]] != NodeKind.OPERATOR else []


PAIR_SIGNS: dict[str, frozenset[int]] = {
    "equalities": frozenset({NodeKind.EQUAL}),
    "inequalities": frozenset({NodeKind.LESS}),
    "relations": frozenset({NodeKind.EQUAL, NodeKind.LESS, NodeKind.GREATER}),
}


@dataclass(frozen=True, eq=False)
class NeighbouringSides:
    """Neighbouring sides with the sign between them, from which the pairs of every set are selected.

    Pair i has the trees i and len + i.
    """

    forest: Forest
    origin: Integers  # (pairs,) the tree that contains the pair
    statement: Integers  # (pairs,) number of the statement within its tree
    sign: Integers  # (pairs,)

    def __len__(self) -> int:
        return len(self.origin)

    def select(self, pairs: Integers) -> NeighbouringSides:
        """Return some pairs, in the given order."""
        forest = self.forest.select(np.concatenate([pairs, len(self) + pairs]))
        return NeighbouringSides(forest, self.origin[pairs], self.statement[pairs], self.sign[pairs])

    @classmethod
    def read(cls, forest: Forest) -> NeighbouringSides:
        """Read all trees that contain a sign of any set; takes seconds for 100,000."""
        reader = StatementReader(forest)
        signs = frozenset[int]().union(*PAIR_SIGNS.values())
        trees = np.searchsorted(forest.offsets, np.flatnonzero(np.isin(reader.kind, list(signs))), side="right") - 1
        found = [
            (tree, number, right.sign, left.nodes, right.nodes)
            for tree in np.unique(trees).tolist()
            for number, statement in enumerate(reader.read_statements(tree))
            for left, right in pairwise(statement)
            if right.sign in signs and left.nodes and right.nodes
        ]
        origin, statement, sign = np.array([row[:3] for row in found], np.int64).reshape(-1, 3).T
        sides = extract_subforest(forest, [row[3] for row in found] + [row[4] for row in found])
        return cls(sides, origin, statement, sign)

    def select_pairs(self, signs: frozenset[int]) -> NeighbouringSides:
        """Select the pairs with some signs: at most one per statement, none with a side of an earlier pair."""
        small, large = np.sort(self.forest.sizes.reshape(2, -1), axis=0)
        is_fitting = (small >= MIN_SIDE_NODES) & (large <= MAX_SIZE_RATIO * small)
        fitting = np.flatnonzero(is_fitting & np.isin(self.sign, list(signs)))
        statements = np.stack([self.origin[fitting], self.statement[fitting]], axis=1)
        pairs = self.select(fitting[np.unique(statements, axis=0, return_index=True)[1]])
        return pairs.select(_find_distinct(pairs.forest))


def export_pairs(corpus: Corpus) -> Iterator[dict[str, str]]:
    """Yield the pairs of the set "relations": the equation's id, the sign, and both sides as MathML."""
    neighbours = NeighbouringSides.read(corpus.forest)
    for name, kind in {"=": NodeKind.EQUAL, "<": NodeKind.LESS, ">": NodeKind.GREATER}.items():
        pairs = neighbours.select_pairs(frozenset({kind}))
        for pair, origin in enumerate(pairs.origin.tolist()):
            left, right = (to_mathml(to_node(pairs.forest, tree)) for tree in (pair, len(pairs) + pair))
            yield {"id": corpus.get_equation_id(origin), "sign": name, "left": left, "right": right}


def _find_distinct(forest: Forest) -> Integers:
    """Return the pairs that share no side with an earlier pair."""
    _, label = label_nodes(forest)
    content = np.stack([label, forest.n_children.astype(np.int32)], axis=1)
    names = [content[start:end].tobytes() for start, end in pairwise(forest.offsets.tolist())]
    half = len(names) // 2
    seen: set[bytes] = set()
    kept = []
    for pair, sides in enumerate(zip(names[:half], names[half:], strict=True)):
        if sides[0] != sides[1] and seen.isdisjoint(sides):
            seen.update(sides)
            kept.append(pair)
    return np.array(kept, np.int64)


def extract_subforest(forest: Forest, tops: list[list[int]]) -> Forest:
    """Build a tree for each list of nodes: a single node with its subtree, or several in a new row."""
    tags, attributes, texts = (list(strings) for strings in (forest.tags, forest.attributes, forest.texts))
    row = [_find_or_append(tags, "mrow"), _find_or_append(attributes, ""), _find_or_append(texts, "")]
    lengths = np.array([len(nodes) for nodes in tops], np.int64)
    several = np.flatnonzero(lengths > 1)
    owner = np.repeat(np.arange(len(tops)), lengths)
    node = np.array([node for nodes in tops for node in nodes], np.int64)
    levels, first_child, counts = [(owner, node)], forest.compute_first_child(), forest.n_children
    while len(node):
        below = counts[node].astype(np.int64)
        owner = np.repeat(owner, below)
        node = np.repeat(first_child[node] - np.cumsum(below) + below, below) + np.arange(below.sum())
        levels.append((owner, node))
    owner = np.concatenate([several, *(level[0] for level in levels)])
    order = np.argsort(owner, kind="stable")  # level by level within each tree
    rows = np.zeros(len(several), np.int64)
    node = np.concatenate([rows, *(level[1] for level in levels)])[order]
    is_row = order < len(several)
    tag, attribute, text = (
        np.where(is_row, own, column[node].astype(np.int64))
        for own, column in zip(row, (forest.tag, forest.attribute, forest.text), strict=True)
    )
    n_children = np.where(is_row, lengths[owner[order]], counts[node].astype(np.int64))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(tops)))))
    return Forest(tags, attributes, texts, tag, attribute, text, n_children, offsets)


def _find_or_append(strings: list[str], wanted: str) -> int:
    """Return the index of a string in a list, to which it is appended if missing."""
    if wanted not in strings:
        strings.append(wanted)
    return strings.index(wanted)


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of sides, split into training, validation and test pairs."""

    name: str
    pairs: NeighbouringSides
    work: Integers  # (pairs,) number of the work each comes from
    train: Integers  # indices of pairs
    validation: Integers
    test: Integers

    @classmethod
    def split(
        cls,
        corpus: Corpus,
        name: str,
        most: int,
        test: float = TEST_FRACTION,
        neighbours: NeighbouringSides | None = None,
    ) -> PairSet:
        """Split the pairs of a corpus with the signs of one of `PAIR_SIGNS`.

        Args:
            corpus: Source of the pairs.
            name: Name of the set.
            most: Maximum number of pairs.
            test: Share of test pairs.
            neighbours: All neighbouring sides of the corpus, if they were read before.

        Raises:
            BadInput: The set is unknown, or its pairs come from fewer than three works and cannot be split.
        """
        if name not in PAIR_SIGNS:
            raise BadInput(f"unknown set of pairs {name!r}; choose from {', '.join(PAIR_SIGNS)}")
        pairs = (neighbours or NeighbouringSides.read(corpus.forest)).select_pairs(PAIR_SIGNS[name])
        if len(pairs) > most:
            pairs = pairs.select(np.linspace(0, len(pairs), most, endpoint=False).astype(np.int64))
        works = [corpus.works[paper] for paper in corpus.paper[pairs.origin].tolist()]
        if len(set(works)) < 3:
            raise BadInput(
                f"{name}: {len(pairs):,} pairs from {len(set(works))} works are too few to split into training, "
                "validation and test pairs; add papers of more works"
            )
        is_test = split_by_work(works, test, f"test:{PAIR_SPLIT_SEED}")
        rest = np.flatnonzero(~is_test)
        rest_works = [works[pair] for pair in rest.tolist()]
        is_validation = split_by_work(rest_works, VALIDATION_FRACTION, f"check:{PAIR_SPLIT_SEED}")
        number = np.unique(np.array(works), return_inverse=True)[1].astype(np.int64)
        return cls(name, pairs, number, rest[~is_validation], rest[is_validation], np.flatnonzero(is_test))

    def get_sides(self, pairs: Integers) -> Integers:
        """Return the trees of some pairs, (n, 2): left and right."""
        return np.stack([pairs, len(self.pairs) + pairs], axis=1)

    @property
    def clusters(self) -> Integers:
        """The work of each side of the test pairs, left sides first."""
        return np.tile(self.work[self.test], 2)


def split_by_work(works: Sequence[str], share: float, seed: str) -> npt.NDArray[np.bool_]:
    """Choose about a share of the items, all of a work or none; at least one work, never all.

    Works are tried in an order that depends on the seed and their names only; a work that is too large is skipped.
    """
    sizes = Counter(works)
    order = sorted(sizes, key=lambda work: sha256(f"{seed}:{work}".encode("utf-8", "surrogatepass")).digest())
    room = share * len(works)
    taken: set[str] = set()
    for work in order:
        if sizes[work] <= room and len(taken) + 1 < len(sizes):
            taken.add(work)
            room -= sizes[work]
    taken = taken or {min(order, key=sizes.__getitem__)}
    return np.array([work in taken for work in works], bool)
