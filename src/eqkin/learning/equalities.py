"""Equalities as pairs of sides (paper, section 6.4), and networks finetuned to find the other side.

The paper splits LaTeX with regular expressions; here trees are split at relation signs:

- A line is the content of the root, or of a row of the root's table. Wide spaces, words, arrows of implication, commas
  and semicolons outside of brackets split a line into statements; relation signs split a statement into sides.
- Two neighbouring sides are a pair if each has at least `MIN_SIDE_NODES` nodes, and the larger one at most
  `MAX_SIZE_RATIO` times as many as the smaller one.
- A statement gives at most one pair, the first: in a chain a = b = c all sides are right answers to each other.
- No side occurs twice: every side has one right answer, and no side of the training pairs occurs in a test.

All pairs of a work (a book, a repository) are in the same part of every split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import ROW_TAGS, Node, list_nodes, to_forest, to_mathml, to_node
from eqkin.learning.data import Corpus, choose_works

if TYPE_CHECKING:
    pass

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

# More than f(x), which has five nodes with the row around it.
MIN_SIDE_NODES = 6
MAX_SIZE_RATIO = 1.3
# Of the pairs that are not for testing.
VALIDATION_FRACTION = 0.1
PAIR_SPLIT_SEED = 0
DEPTHS = (1, 10, 100)

# What `--pairs` selects: the signs between two sides.
PAIR_SIGNS = {"equalities": "=", "inequalities": "<", "relations": "=<>"}
_RELATIONS = {
    **dict.fromkeys("= :=".split(), "="),
    **dict.fromkeys("< ≤ ⩽ ≦".split(), "<"),
    **dict.fromkeys("> ≥ ⩾ ≧".split(), ">"),
    # Other relations end a side, but their sides are no pair.
    **dict.fromkeys(
        "≠ ≡ ≢ ≈ ≃ ≅ ∼ ≍ ≐ ≜ ≔ ≕ ≝ ∝ ≪ ≫ ≲ ≳ ≺ ≻ ≼ ≽ ⪯ ⪰ ∈ ∉ ∋ ⊂ ⊃ ⊆ ⊇ ⊢ ⊨ → ← ↔ ↦ ↪ ⟶ ⟵ ⟷ ⟼ ⊥ ∥".split(), "other"
    ),
}
_SEPARATORS = frozenset(", ; ⇒ ⇐ ⇔ ⟹ ⟸ ⟺ ∀ ∃ ∴ ∵".split())
_JOINING_WORDS = frozenset("and as by for from if in on or otherwise so then when where with".split()) | {""}
_OPENING = frozenset("( [ { ⟨ ⌊ ⌈ ⟦".split())
_CLOSING = frozenset(") ] } ⟩ ⌋ ⌉ ⟧".split())
# Dropped at the ends of sides; a colon belongs to the sign after it.
_BLANKS = frozenset((".", ":", "", "\u2061"))
_WRAPPERS = frozenset(ROW_TAGS | {"mtd", "menclose"})
_SCRIPTS = frozenset({"mover", "munder", "munderover"})
_MAX_PAIRS = 1_000_000
# Vector lengths of so many equations determine the soft norm.
_NORM_SAMPLE = 10_000
# Smaller differences of cosines are ties.
_TIE_DECIMALS = 6
_QUERY_BATCH = 1_024


@dataclass(frozen=True, eq=False)
class EqualityPairs:
    """Pairs of sides: pair i has the trees i and len + i of the forest."""

    forest: Forest
    # Number of the tree that contains each pair, and the sign between its sides.
    origin: Integers
    signs: list[str]

    def __len__(self) -> int:
        return len(self.signs)


def find_pairs(forest: Forest, signs: Collection[str]) -> EqualityPairs:
    """Find the pairs with some signs ("=", "<" or ">"): at most one per statement, none with a side seen before."""
    # Most formulas are no equalities: only trees with one of the signs are read.
    has_sign = np.array([_RELATIONS.get(text, "none") in signs for text in forest.texts], bool)
    trees = np.unique(np.searchsorted(forest.offsets, np.flatnonzero(has_sign[forest.text]), side="right") - 1)
    seen: set[str] = set()
    found: list[tuple[int, str, Node, Node]] = []
    for tree in trees.tolist():
        for statement in _read_statements(to_node(forest, tree)):
            for (_, left), (sign, right) in pairwise(statement):
                if sign not in signs or not _is_fitting(left, right):
                    continue
                markups = [to_mathml(left), to_mathml(right)]
                if markups[0] != markups[1] and seen.isdisjoint(markups):
                    seen.update(markups)
                    found.append((tree, sign, left, right))
                # Only the first fitting pair of a statement counts, even if a side was seen before.
                break
    sides = [pair[2] for pair in found] + [pair[3] for pair in found]
    return EqualityPairs(
        Forest.concatenate([to_forest(side) for side in sides]),
        np.array([pair[0] for pair in found], np.int64),
        [pair[1] for pair in found],
    )


def _is_fitting(left: Node, right: Node) -> bool:
    small, large = sorted((len(list_nodes(left)), len(list_nodes(right))))
    return small >= MIN_SIDE_NODES and large <= MAX_SIZE_RATIO * small


def _read_statements(root: Node) -> Iterator[list[tuple[str, Node]]]:
    """Yield the statements of a tree: its sides, each with the sign before it. Incomplete sides are empty rows."""
    content = _unwrap(root)
    rows = [content]
    if len(content) == 1 and content[0].tag == "mtable":
        rows = [[node for cell in row.children for node in _unwrap(cell)] for row in content[0].children]
    for number, row in enumerate(rows):
        statements = _split_row(row)
        # A row that begins with an operator continues the row above.
        if number and row and row[0].tag == "mo" and row[0].text not in _OPENING:
            statements[0][0] = ("", Node("mrow"))
        yield from statements


def _unwrap(node: Node) -> list[Node]:
    """Return the nodes in a row: a node, or its children if it only wraps them; rows without content are dropped."""
    nodes = [node]
    while len(nodes) == 1 and nodes[0].tag in _WRAPPERS:
        nodes = [child for child in nodes[0].children if child.children or child.tag not in _WRAPPERS]
    return nodes


def _split_row(row: Sequence[Node]) -> list[list[tuple[str, Node]]]:
    statements: list[list[tuple[str, Node]]] = [[]]
    sign = ""
    nodes: list[Node] = []
    depth = 0
    for node in [*row, Node("mo", text=";")]:
        if node.tag == "mo":
            depth += (node.text in _OPENING) - (node.text in _CLOSING)
        if depth < 0:
            break
        next_sign = _find_sign(node)
        is_end = _is_separator(node)
        if depth or not (next_sign or is_end):
            nodes.append(node)
            continue
        statements[-1].append((sign, _join_side(nodes)))
        sign = next_sign
        nodes = []
        if is_end:
            statements.append([])
    # Brackets that do not match: nothing says where a side ends.
    return statements if depth == 0 else [[("", Node("mrow"))]]


def _find_sign(node: Node) -> str:
    """Return the sign that a node is, also with something written above or below it; empty if it is none."""
    while (node.tag in _SCRIPTS and node.children) or (node.tag in _WRAPPERS and len(node.children) == 1):
        node = node.children[0]
    return _RELATIONS.get(node.text, "") if node.tag in ("mo", "mi") else ""


def _is_separator(node: Node) -> bool:
    if node.tag == "mspace":
        width = node.attributes.get("width", "")
        return width.endswith("em") and width[:-2].replace(".", "", 1).isdecimal() and float(width[:-2]) >= 1
    if node.tag == "mtext":
        words = node.text.replace("\u00a0", " ")
        # Several words, or one that joins statements; other single words are names.
        return " " in words.strip() or words.strip(" ,;:.").lower() in _JOINING_WORDS
    return node.text in _SEPARATORS and node.tag in ("mo", "mi")


def _join_side(nodes: list[Node]) -> Node:
    """Return the tree of a side without blanks at its ends; an empty row if an operand is missing at its end."""
    while nodes and not nodes[-1].children and nodes[-1].text.strip() in _BLANKS:
        nodes = nodes[:-1]
    while nodes and not nodes[0].children and nodes[0].text.strip() in _BLANKS:
        nodes = nodes[1:]
    if nodes and nodes[-1].tag == "mo" and nodes[-1].text not in _CLOSING | {"!", "′"}:
        nodes = []
    return nodes[0] if len(nodes) == 1 else Node("mrow", children=nodes)


def export_pairs(corpus: Corpus) -> Iterator[dict[str, str]]:
    """Yield all pairs: the equation's id, the sign, and both sides as MathML."""
    pairs = find_pairs(corpus.forest, PAIR_SIGNS["relations"])
    for pair, (origin, sign) in enumerate(zip(pairs.origin.tolist(), pairs.signs, strict=True)):
        left, right = (to_mathml(to_node(pairs.forest, tree)) for tree in (pair, len(pairs) + pair))
        yield {"id": corpus.get_equation_id(origin), "sign": sign, "left": left, "right": right}


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSet:
    """Pairs of sides, split into training, validation and test pairs."""

    name: str
    pairs: EqualityPairs
    # Number of the work that each pair comes from.
    work: Integers
    # Numbers of pairs.
    train: Integers
    validation: Integers
    test: Integers

    @classmethod
    def split(cls, corpus: Corpus, name: str, test: float = 0.5, most: int = _MAX_PAIRS) -> PairSet:
        """Split the pairs of a corpus with the signs of one of `PAIR_SIGNS`; `test` is the share of test pairs.

        Raises:
            BadInput: The set is unknown, or its pairs come from fewer than three works and cannot be split.
        """
        if name not in PAIR_SIGNS:
            raise BadInput(f"unknown set of pairs {name!r}; choose from {', '.join(PAIR_SIGNS)}")
        pairs = find_pairs(corpus.forest, PAIR_SIGNS[name])
        kept = np.linspace(0, len(pairs), min(most, len(pairs)), endpoint=False).astype(np.int64)
        works = [corpus.works[paper] for paper in corpus.paper[pairs.origin[kept]].tolist()]
        if len(set(works)) < 3:
            raise BadInput(
                f"{name}: {len(pairs):,} pairs from {len(set(works))} works are too few to split into training, "
                "validation and test pairs; add papers of more works"
            )
        is_test = _choose_pairs(works, test)
        rest = np.flatnonzero(~is_test)
        is_checked = _choose_pairs([works[pair] for pair in rest.tolist()], VALIDATION_FRACTION)
        number = np.zeros(len(pairs), np.int64)
        number[kept] = np.unique(np.array(works), return_inverse=True)[1]
        return cls(
            name=name,
            pairs=pairs,
            work=number,
            train=kept[rest[~is_checked]],
            validation=kept[rest[is_checked]],
            test=kept[is_test],
        )

    def get_sides(self, pairs: Integers) -> Integers:
        """Return the trees of some pairs, (n, 2): left and right."""
        return np.stack([pairs, len(self.pairs) + pairs], axis=1)

    @property
    def clusters(self) -> Integers:
        """The work of each side of the test pairs, left sides first."""
        return np.tile(self.work[self.test], 2)


def _choose_pairs(works: Sequence[str], share: float) -> npt.NDArray[np.bool_]:
    """Choose about a share of the pairs, all of a work or none."""
    chosen = choose_works(Counter(works), share * len(works), PAIR_SPLIT_SEED)
    return np.array([work in chosen for work in works], bool)


def compute_partner_ranks(vectors: Floats) -> Integers:
    """Rank each formula's partner among all other formulas by cosine; the first rank is 0.

    A partner that ties with other formulas is ranked behind them, and so is one whose cosine is NaN.

    Args:
        vectors: Vectors of n left sides, then of the right sides in the same order.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    count = len(vectors)
    ranks = np.empty(count, np.int64)
    for first in range(0, count, _QUERY_BATCH):
        query = np.arange(first, min(first + _QUERY_BATCH, count))
        row = np.arange(len(query))
        similarity = np.round(unit[query] @ unit.T, _TIE_DECIMALS)
        partner = similarity[row, (query + count // 2) % count]
        similarity[row, query] = -np.inf
        # The partner itself is not behind itself: one less.
        ranks[query] = (~(similarity < partner[:, None])).sum(axis=1) - 1
    return ranks


def compute_mrr(vectors: Floats) -> float:
    """Compute the mean reciprocal rank of all partners."""
    return float(np.mean(1 / (compute_partner_ranks(vectors) + 1)))
